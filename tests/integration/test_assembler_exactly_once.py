"""The assembler on a real broker: killed anywhere, its outputs equal a pure fold of the topic."""

import random
import signal
import threading

import pytest

from processor.codec.records import decode_completed
from processor.runtime.crash_points import COMMIT_POINTS, OTHER_POINTS
from processor.runtime.offset_metadata import decode_metadata
from tests.integration.assembler_rig import call_records, random_log, rig

pytestmark = pytest.mark.integration

SEED = 20_261_201


def test_interleaved_calls_complete_with_their_exact_arguments(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Two interleaved calls come out whole, each with its own text."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        first = call_records(1, b'{"order_id":"ORDER-1001"}', 2)
        second = call_records(2, b'{"city":"Paris"}', 2)
        made.write([record for pair in zip(first, second, strict=True) for record in pair])
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        outputs = made.assert_exact()
        texts = {
            decode_completed(out.key or b"", out.value or b"").arguments
            for out in outputs
            if out.topic == made.topics.completed
        }
        assert texts == {b'{"order_id":"ORDER-1001"}', b'{"city":"Paris"}'}


@pytest.mark.parametrize("point", [*COMMIT_POINTS, *OTHER_POINTS])
def test_a_kill_at_every_point_loses_doubles_and_invents_nothing(
    kafka_bootstrap: str, topic_prefix: str, point: str
) -> None:
    """SIGKILL at a named point, at its first and at a later passage, then a clean restart."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        log = random_log(SEED + len(point), 120)
        third = len(log) // 3
        made.write(log[:third])
        if point == "mid_restore":
            # A restore needs a committed position with calls open below it.
            process = made.start()
            made.wait_committed(process)
            made.stop(process)
        for passage, part in ((1, log[third : 2 * third]), (2, log[2 * third :])):
            made.write(part)
            crashing = made.start(
                crash_at=f"{point}:{passage}",
                allow_crash_points="1",
                commit_interval_ms="20",
                checkpoint_after_ms="1",
            )
            if point == "mid_restore" or passage == 2:
                made.wait_ended_or_committed(crashing)
                crashing.kill()
            crashing.wait(60)
            assert crashing.returncode == -signal.SIGKILL
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        made.assert_exact()


def test_kills_at_random_moments_lose_double_and_invent_nothing(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """A dozen SIGKILLs under load at moments drawn from a seed."""
    rng = random.Random(SEED)
    with rig(kafka_bootstrap, topic_prefix) as made:
        log = random_log(SEED, 1_500)
        pause = threading.Event()
        kills = 12
        size = len(log) // kills
        for number in range(kills):
            made.write(log[number * size : (number + 1) * size])
            process = made.start(commit_interval_ms="10", checkpoint_after_ms="1")
            pause.wait(rng.uniform(0.3, 2.0))
            process.kill()
            process.wait(60)
        made.write(log[kills * size :])
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        made.assert_exact()


def test_the_committed_position_and_low_water_are_those_of_a_pure_fold(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Whatever was killed before, offset, low-water and log time are a function of the topic.

    Without checkpoints, whose place depends on when a process commits.
    """
    with rig(kafka_bootstrap, topic_prefix) as made:
        log = random_log(SEED, 150)
        made.write(log[: len(log) // 2])
        never = str(2**50)
        crashing = made.start(
            crash_at="after_send_offsets", allow_crash_points="1", checkpoint_after_ms=never
        )
        crashing.wait(60)
        made.write(log[len(log) // 2 :])
        process = made.start(checkpoint_after_ms=never)
        made.wait_committed(process)
        made.stop(process)
        tasks, _ = made.fold()
        for partition, (offset, text) in made.committed().items():
            metadata = decode_metadata(text)
            pure = tasks[partition].metadata()
            assert offset == tasks[partition].next_offset
            assert (metadata.low, metadata.log_time_ms) == (pure.low, pure.log_time_ms)
