"""From a model's stream to the result in the application's hands, through every process there is."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from processor.ledger.migrate import migrate, read_migrations
from processor.publisher import (
    AsyncResultReader,
    CallAnswers,
    Publisher,
    PublisherSettings,
    ResultReader,
    ResultReaderSettings,
)
from processor.resources import migrations_dir
from tests.integration.assembler_rig import Rig, rig

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
STREAMS = ROOT / "processor" / "cli" / "demo_data"
TOOLS = ROOT / "processor" / "cli" / "demo_tools.py"


class Place:
    """Every process of the way, and the application's two ends of it."""

    def __init__(self, assembler: Rig, database: str, folder: Path) -> None:
        self._assembler = assembler
        self._database = database
        self._folder = folder
        topics = assembler.topics
        self.publisher = PublisherSettings(
            assembler.bootstrap, events_topic=topics.events, usage_topic=topics.usage
        )
        self.reader = ResultReaderSettings(
            assembler.bootstrap, results_topic=topics.results, rejected_topic=topics.rejected
        )

    @contextmanager
    def running(self) -> Generator[None]:
        """Assembler, executor and relay."""
        self._assembler.start(linger_ms="1")
        started = [
            self._start("execute", "--tools", str(TOOLS), "--start", "earliest"),
            self._start("relay"),
        ]
        try:
            yield
        finally:
            for process in started:
                process.terminate()
            statuses = [process.wait(60) for process in started]
        assert statuses == [0, 0]

    def usage(self, *arguments: str) -> str:
        """A verb of `toolcalls usage` from start to end."""
        process = self._start("usage", *arguments, output=subprocess.PIPE)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return output

    def _start(self, *arguments: str, output: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        environment = {
            "TOOLCALLS_KAFKA_BOOTSTRAP": self._assembler.bootstrap,
            "TOOLCALLS_DATABASE_URL": self._database,
            "TOOLCALLS_TOPIC_PREFIX": self._assembler.prefix,
            "TOOLCALLS_EXECUTOR_GROUP": f"{self._assembler.prefix}executor",
            "TOOLCALLS_USAGE_GROUP": f"{self._assembler.prefix}usage",
            "TOOLCALLS_DEMO_EFFECTS": str(self._folder / "effects"),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "processor.cli.main", *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def effects(self) -> int:
        """How often a tool ran."""
        return len((self._folder / "effects").read_text().splitlines())

    def ask(self, publisher: Publisher, reader: ResultReader, request_id: str) -> CallAnswers:
        """What an agent's loop does: expect, stream, wait for all calls of the response."""
        with reader.expect("acme", request_id) as calls:
            with publisher.stream(
                dialect="openai-responses", tenant="acme", request_id=request_id
            ) as stream:
                stream.observe((STREAMS / "two_calls.sse").read_bytes())
            assert stream.call_ids == ("call_A", "call_B")
            return calls.wait(stream.call_ids, 60)


@pytest.fixture
def place(
    kafka_bootstrap: str, database: str, topic_prefix: str, tmp_path: Path
) -> Generator[Place]:
    """Topics, a migrated ledger, nothing running."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with rig(kafka_bootstrap, topic_prefix) as assembler:
        yield Place(assembler, database, tmp_path)


def test_a_stream_becomes_results_and_its_repetition_gets_the_stored_ones(place: Place) -> None:
    """Each call runs once; who sends the request again gets the same answers, marked as repeats."""
    with place.running(), Publisher(place.publisher) as publisher:
        with ResultReader(place.reader) as reader:
            first = place.ask(publisher, reader, "req_1")
        assert first.complete, first.missing
        assert {r.state for r in first.results.values()} == {"succeeded"}
        assert first.results["call_B"].body == b'{"city":"Paris","celsius":14}'
        assert not any(r.replayed for r in first.results.values())
        # A new process, so nothing of the first answers is before its eyes.
        with ResultReader(place.reader) as reader:
            again = place.ask(publisher, reader, "req_1")
        assert again.complete, again.missing
        assert all(r.replayed for r in again.results.values())
        assert again.results["call_A"].body == first.results["call_A"].body
        assert place.effects() == 2
    place.usage("record", "--start", "earliest", "--until-idle-s", "1")
    assert place.usage("report", "--by", "tool").splitlines()[-2:] == [
        "calls\tget_weather\t1\t-\t-\t1",
        "calls\tlookup_order\t1\t-\t-\t1",
    ]


async def ask_async(place: Place, publisher: Publisher) -> CallAnswers:
    """A cut response, waited for by a task."""
    async with (
        AsyncResultReader(place.reader) as reader,
        reader.expect("acme", "req_2") as calls,
    ):
        with publisher.stream(
            dialect="openai-responses", tenant="acme", request_id="req_2"
        ) as stream:
            stream.observe((STREAMS / "cut_call.sse").read_bytes())
        return await calls.wait(stream.call_ids, 60)


def test_a_call_that_was_rejected_is_known_at_once(place: Place) -> None:
    """Nobody waits for the executor then; and without any process nothing has a result."""
    with Publisher(place.publisher) as publisher, ResultReader(place.reader) as reader:
        with reader.expect("acme", "req_3") as calls:
            assert calls.wait(["call_X"], 0).missing == ("call_X",)
        place._assembler.start()
        answers = asyncio.run(ask_async(place, publisher))
    assert (answers.complete, answers.results) == (True, {})
    assert answers.rejected["call_C"].reason == "truncated"
