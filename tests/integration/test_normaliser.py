"""The normaliser on a real broker: killed anywhere, its outputs equal a pure re-fold of the chunks."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from processor.codec.chunk_records import chunk_key, encode_chunk
from processor.codec.records import decode_completed, decode_usage
from processor.core.chunks import ChunkBody, RawChunk, ResponseChunk, StreamClosed
from processor.runtime.absorb import Message as Consumed
from processor.runtime.crash_points import COMMIT_POINTS, OTHER_POINTS
from processor.runtime.normalising import NormaliserTopics, Normalising
from processor.runtime.outbox import Outbox
from processor.runtime.restore import StartAt, TopicFacts
from processor.runtime.settings import RuntimeSettings
from tests.integration.assembler_rig import Record, Rig, made_rig, rig

pytestmark = pytest.mark.integration

SEED = 20_261_201
STREAMS = Path(__file__).parents[1] / "fixtures" / "streams"
CAPTURES = sorted(
    path for folder in STREAMS.iterdir() if folder.is_dir() for path in folder.glob("*.sse")
)


class NormaliserRig(Rig):
    """A `Rig` of normalisers, on the chunks topic."""

    verb = "normalize"
    group_variable = "TOOLCALLS_NORMALISER_GROUP"

    def __init__(self, bootstrap: str, prefix: str, partitions: int = 3) -> None:
        super().__init__(bootstrap, prefix, partitions)
        self.input_topic = self.topics.by_role()["chunks"]
        self.output_topics = [self.topics.events, self.topics.usage, self.topics.deadletter]

    def outputs(self) -> Outbox:
        """What a pure fold of the chunks topic puts out."""
        folding = Normalising(
            NormaliserTopics(
                self.input_topic, self.topics.events, self.topics.usage, self.topics.deadletter
            ),
            value_bytes_max=RuntimeSettings(self.bootstrap, self.input_topic).value_bytes_max,
            dead_letter_bytes_max=self.dead_letter_bytes(),
        )
        facts = TopicFacts("", self.partitions)
        tasks = {
            p: folding.begin(p, StartAt(0, 0, -1, "fresh", 0), facts)
            for p in range(self.partitions)
        }
        outbox: Outbox = []
        for message in self.read(self.input_topic):
            folding.absorb([cast("Consumed", message)], tasks, outbox)
        return outbox


@contextmanager
def normaliser_rig(bootstrap: str, prefix: str) -> Generator[NormaliserRig]:
    """A rig with its topics made."""
    with made_rig(NormaliserRig(bootstrap, prefix)) as made:
        yield made


def response_records(rng: random.Random, number: int, path: Path) -> list[Record]:
    """A captured stream as records of one response, cut at random."""
    data = path.read_bytes()
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(12)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]
    bodies: list[ChunkBody] = [
        *map(RawChunk, pieces),
        StreamClosed(cancelled=rng.random() < 0.1),
    ]
    dialect = json.loads(path.with_suffix(".expected.json").read_text())["dialect"]
    made: list[Record] = []
    for place, body in enumerate(bodies):
        chunk = ResponseChunk("acme", f"req_{number}", f"try_{number}", dialect, place, body)
        made.append((chunk_key(chunk), encode_chunk(chunk)))
    return made


def random_chunks(seed: int, responses: int) -> list[Record]:
    """Interleaved responses: whole, cut, with holes, repeats, redeliveries and bad bytes."""
    rng = random.Random(seed)
    open_responses: list[list[Record]] = []
    log: list[Record] = []
    number = 0
    while number < responses or open_responses:
        while number < responses and len(open_responses) < 10:
            records = response_records(rng, number, rng.choice(CAPTURES))
            place = rng.randrange(len(records))
            fault = rng.randrange(10)
            if fault == 0:
                del records[place]
            elif fault == 1:
                records.insert(place, records[0])
            elif fault == 2:
                records += records
            elif fault == 3:
                records.insert(place, (records[0][0], rng.randbytes(rng.randrange(30))))
            open_responses.append(records)
            number += 1
        chosen = rng.choice(open_responses)
        if chosen:
            log.append(chosen.pop(0))
        else:
            open_responses.remove(chosen)
    return log


@pytest.mark.parametrize("point", [*COMMIT_POINTS, *OTHER_POINTS])
def test_a_kill_at_every_point_loses_doubles_and_invents_no_event(
    kafka_bootstrap: str, topic_prefix: str, point: str
) -> None:
    """SIGKILL at a named point, then a clean restart: the events equal a pure re-fold."""
    with normaliser_rig(kafka_bootstrap, topic_prefix) as made:
        log = random_chunks(SEED + len(point), 60)
        half = len(log) // 2
        made.write(log[:half])
        if point == "mid_restore":
            process = made.start()
            made.wait_committed(process)
            made.stop(process)
        made.write(log[half:])
        crashing = made.start(crash_at=point, allow_crash_points="1", commit_interval_ms="20")
        if point == "mid_restore":
            made.wait_ended_or_committed(crashing)
            crashing.kill()
        crashing.wait(60)
        assert crashing.returncode == -signal.SIGKILL
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        made.assert_exact()


def test_kills_at_random_moments_lose_double_and_invent_no_event(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """SIGKILLs under load at moments drawn from a seed."""
    rng = random.Random(SEED)
    with normaliser_rig(kafka_bootstrap, topic_prefix) as made:
        kills = 6
        log = random_chunks(SEED, 300)
        size = len(log) // kills
        pause = threading.Event()
        for number in range(kills):
            made.write(log[number * size : (number + 1) * size])
            process = made.start(commit_interval_ms="10")
            pause.wait(rng.uniform(0.3, 2.0))
            process.kill()
            process.wait(60)
        made.write(log[kills * size :])
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        made.assert_exact()


def test_captured_files_go_through_both_folds_to_completed_calls_and_usage(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """`publish --to chunks`, `normalize`, `run`: the calls of `publish` alone, and once."""
    capture = STREAMS / "openai-responses" / "parallel-interleaved.sse"
    with (
        normaliser_rig(kafka_bootstrap, topic_prefix) as normalisers,
        rig(kafka_bootstrap, topic_prefix) as assemblers,
    ):
        # Together, so that the one's records come before the other's response is forgotten.
        with ThreadPoolExecutor() as pool:
            both = [pool.submit(_publish, kafka_bootstrap, topic_prefix, capture) for _ in range(2)]
        for each in both:
            each.result()
        process = normalisers.start()
        normalisers.wait_committed(process)
        normalisers.stop(process)
        normalisers.assert_exact()
        process = assemblers.start()
        assemblers.wait_committed(process)
        assemblers.stop(process)
        assemblers.assert_exact()
        completed = [
            decode_completed(m.key(), m.value())
            for m in assemblers.read(assemblers.topics.completed)
        ]
        usage = [decode_usage(m.key(), m.value()) for m in assemblers.read(assemblers.topics.usage)]
    assert completed
    assert len({call.key for call in completed}) == len(completed)
    assert {call.key.request_id for call in completed} == {"req_1"}
    assert len(usage) == 1


def _publish(bootstrap: str, prefix: str, capture: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "processor.cli.main", "publish", "--to", "chunks"),
            *("--dialect", "openai-responses", "--request-id", "req_1", str(capture)),
        ],
        env={
            **os.environ,
            "TOOLCALLS_KAFKA_BOOTSTRAP": bootstrap,
            "TOOLCALLS_TOPIC_PREFIX": prefix,
        },
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
