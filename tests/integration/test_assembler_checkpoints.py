"""Calls that stay open for long do not make a restart read long: checkpoints on a real broker."""

import json
import re
import signal

import pytest

from processor.codec.checkpoint_records import call_key_of
from processor.runtime.offset_metadata import decode_metadata
from tests.integration.assembler_rig import Record, Rig, call_records, rig

pytestmark = pytest.mark.integration

OTHERS = 400
NEVER = str(2**50)


def long_call() -> list[Record]:
    """A call of many fragments."""
    return call_records(0, b'{"order_id":"ORDER-1001","note":"%s"}' % (b"n" * 200), 20)


def run_to_the_end(made: Rig, **settings: str) -> str:
    """One life of a process; returns what it logged."""
    process = made.start(commit_interval_ms="10", **settings)
    made.wait_committed(process)
    return made.stop(process)


def assigned(log: str) -> list[tuple[int, int]]:
    """Low and committed offset of every partition that was taken over."""
    lines = [json.loads(line) for line in log.splitlines() if "partition_assigned" in line]
    return [(line["low_offset"], line["committed_offset"]) for line in lines]


def live_checkpoints(made: Rig) -> set[bytes]:
    """Call keys with a checkpoint that no tombstone has taken away."""
    latest = {m.key(): m.value() for m in made.read(made.topics.checkpoints)}
    keys = (call_key_of(made.group, key) for key, value in latest.items() if value is not None)
    return {key for key in keys if key is not None}


def test_a_call_that_stays_open_does_not_hold_the_mark_and_completes_all_the_same(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Restarts read from close behind the committed offset, and the outputs are the pure fold's."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        call = long_call()
        for number in range(4):
            made.write(call[5 * number : 5 * number + 5])
            numbers = range(1 + number * OTHERS, 1 + (number + 1) * OTHERS)
            made.write([record for n in numbers for record in call_records(n, b'{"n":%d}' % n, 3)])
            log = run_to_the_end(made, checkpoint_after_ms="0", linger_ms="1")
            if number:
                ((low, committed),) = assigned(log)
                assert committed - low < 100, (low, committed)
            # Log time has moved on, so what was needed until now is written down.
            made.write(call_records(10_000 + number, b"{}", 1))
            run_to_the_end(made, checkpoint_after_ms="0", linger_ms="1")
        assert call[0][0] in live_checkpoints(made)
        ((position, text),) = made.committed().values()
        assert decode_metadata(text).low > position - 100
        made.write(call[20:])
        run_to_the_end(made, checkpoint_after_ms="0", linger_ms="1")
        made.assert_exact()


def test_a_checkpoint_is_removed_when_its_call_is_forgotten(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Nothing of a finished call stays on the topic."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        call = long_call()
        made.write(call[:5])
        made.write(call_records(1, b"{}", 1))
        run_to_the_end(made, checkpoint_after_ms="0", linger_ms="1")
        made.write(call_records(2, b"{}", 1))
        run_to_the_end(made, checkpoint_after_ms="0", linger_ms="1")
        assert call[0][0] in live_checkpoints(made)
        made.write(call[5:])
        for number in range(3, 9):
            made.write(call_records(number, b"{}", 1))
            run_to_the_end(made, checkpoint_after_ms="0", linger_ms="1")
            if call[0][0] not in live_checkpoints(made):
                break
        assert call[0][0] not in live_checkpoints(made)
        made.assert_exact()


def test_a_group_that_starts_anew_uses_no_checkpoint_of_the_position_it_gave_up(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Its first commit removes them."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        call = long_call()
        made.write(call[:5])
        made.write(call_records(1, b"{}", 1))
        run_to_the_end(made, checkpoint_after_ms="0")
        made.write(call_records(2, b"{}", 1))
        run_to_the_end(made, checkpoint_after_ms="0")
        assert live_checkpoints(made)
        made.delete_group()
        run_to_the_end(made, checkpoint_after_ms=NEVER)
        assert not live_checkpoints(made)


def test_a_kill_between_checkpoint_and_commit_leaves_the_old_state(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Checkpoint and position move together or not at all."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        call = long_call()
        for start in range(0, 20, 4):
            made.write(call[start : start + 4])
            made.write(call_records(1 + start, b"{}", 1))
            crashing = made.start(
                crash_at="after_produce:2",
                allow_crash_points="1",
                checkpoint_after_ms="0",
                commit_interval_ms="10",
            )
            made.wait_ended_or_committed(crashing)
            crashing.kill()
            crashing.wait(60)
            assert crashing.returncode == -signal.SIGKILL
        made.write(call[20:])
        run_to_the_end(made)
        outputs = made.assert_exact()
        assert any(re.search(rb"ORDER-1001", out.value or b"") for out in outputs)
