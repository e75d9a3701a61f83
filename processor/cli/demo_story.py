"""What the demo does, step by step, and what must be true after each step; nothing is printed here."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from processor.codec.records import decode_completed, decode_event, decode_rejected
from processor.core._record import field, record
from processor.core.errors import ProcessorError
from processor.core.events import ArgumentsDelta, StreamEvent
from processor.core.identity import CallKey, decode_call_key
from processor.core.outcomes import CallCompleted, CallRejected
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import CallView, Transition
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.publisher import Publisher, PublisherSettings
from processor.resources import migrations_dir
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.topic_reader import TopicReader, uncommitted_count
from processor.runtime.topics import TopicNames, topic_specs

TENANT: Final = "demo"
DATA: Final = Path(__file__).parent / "demo_data"
EXPECTED: Final = {
    "call_A": b'{"order_id":"ORDER-1001"}',
    "call_B": b'{"city":"Paris"}',
}
#: Log time after which the assembler forgets a closed call; short, so that a redelivery is told
#: from a late repeat within the patience of somebody who watches.
LINGER_MS: Final = 500
_PATIENCE_S: Final = 40.0


class DemoFailed(ProcessorError):
    """Something is not as it must be; the text says what was waited for."""

    code = "demo_failed"


class Fragment(NamedTuple):
    """A fragment as it lies on the events topic."""

    offset: int
    partition: int
    key: CallKey
    seq: int
    text: str


@record
class Place:
    """Where the demo runs: addresses, topic names, and a folder for its own files."""

    bootstrap: str
    database_url: str
    topics: TopicNames
    prefix: str
    request_prefix: str
    folder: Path

    def request(self, number: int) -> str:
        """Id of the demo's request `number`, new in every run."""
        return f"{self.request_prefix}_{number}"

    @property
    def effects_file(self) -> Path:
        """One line for each real effect of a tool."""
        return self.folder / "effects.jsonl"


@record
class Verdicts:
    """What the output topics hold, by call id, in the order of arrival."""

    completed: list[CallCompleted] = field(default_factory=list[CallCompleted])
    rejected: list[CallRejected] = field(default_factory=list[CallRejected])


def prepare(place: Place) -> None:
    """Make the topics and the ledger's schema."""
    # One partition, so that the order of the log is the order of arrival for whoever watches.
    specs = topic_specs(place.topics, partitions=1, replication_factor=1)
    KafkaAdmin(place.bootstrap).create(specs)
    migrate(place.database_url, read_migrations(migrations_dir()), phase="all")
    place.effects_file.touch()


def publish(place: Place, capture: str, request_id: str) -> None:
    """Publish a captured OpenAI Responses stream through the SDK, as an application would."""
    settings = PublisherSettings(
        place.bootstrap,
        events_topic=place.topics.events,
        usage_topic=place.topics.usage,
        on_publish_error="raise",
        client={"log_level": 2},
    )
    with Publisher(settings) as publisher:
        stream = publisher.stream(dialect="openai-responses", tenant=TENANT, request_id=request_id)
        with stream:
            for chunk in (DATA / capture).read_bytes().splitlines(keepends=True):
                stream.observe(chunk)
        if not stream.confirm(10.0):
            raise DemoFailed("the events were not confirmed by Kafka within 10 s")


class Process:
    """One `toolcalls` process of the demo; its log goes to a file in the demo's folder."""

    def __init__(self, place: Place, name: str, arguments: Sequence[str], **extra: str) -> None:
        self.name = name
        self.log_path = place.folder / f"{name}.log"
        environment = {
            "TOOLCALLS_KAFKA_BOOTSTRAP": place.bootstrap,
            "TOOLCALLS_DATABASE_URL": place.database_url,
            "TOOLCALLS_TOPIC_PREFIX": place.prefix,
            "TOOLCALLS_START": "earliest",
            "TOOLCALLS_LINGER_MS": str(LINGER_MS),
            "TOOLCALLS_DEMO_EFFECTS": str(place.effects_file),
            **extra,
        }
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "processor.cli.main", *arguments],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    @property
    def returncode(self) -> int | None:
        """Exit status; negative for a signal, None while it runs."""
        return self._process.poll()

    def end(self) -> None:
        """Ask the process to stop and wait for it; kill it when it does not."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(15)


@contextmanager
def assembler(place: Place) -> Generator[Process]:
    """An assembler process."""
    with _running(Process(place, "assembler", ["run"], TOOLCALLS_GROUP=f"{place.prefix}asm")) as p:
        yield p


@contextmanager
def executor(place: Place, crash_at: str = "") -> Generator[Process]:
    """An executor process, which kills itself at the point `crash_at` if one is named."""
    tools = str(Path(__file__).parent / "demo_tools.py")
    extra = {"TOOLCALLS_EXECUTOR_GROUP": f"{place.prefix}exec", "TOOLCALLS_SLOT": "executor-0"}
    if crash_at:
        extra |= {"TOOLCALLS_CRASH_AT": crash_at, "TOOLCALLS_ALLOW_CRASH_POINTS": "1"}
    arguments = ["execute", "--tools", tools, "--lease-margin-s", "1"]
    with _running(Process(place, "executor", arguments, **extra)) as process:
        yield process


@contextmanager
def _running(process: Process) -> Generator[Process]:
    try:
        yield process
    finally:
        process.end()


def fragments(place: Place) -> list[Fragment]:
    """The fragments on the events topic, in the order in which they arrived."""
    found: list[Fragment] = []
    with TopicReader(place.bootstrap, place.topics.events) as reader:
        items = reader.read()
    for item in items:
        event: StreamEvent = decode_event(item.key, item.value)
        if isinstance(event.body, ArgumentsDelta):
            key = decode_call_key(item.key or b"")
            text = event.body.fragment.decode()
            found.append(Fragment(item.offset, item.partition, key, event.seq, text))
    return found


class Outputs:
    """Follows the completed and rejected topics."""

    def __init__(self, place: Place) -> None:
        self._readers = (
            TopicReader(place.bootstrap, place.topics.completed),
            TopicReader(place.bootstrap, place.topics.rejected),
        )
        self.seen = Verdicts()

    def __enter__(self) -> "Outputs":
        return self

    def __exit__(self, *exception: object) -> None:
        for reader in self._readers:
            reader.__exit__(*exception)

    def wait(self, assembling: Process, completed: int, rejected: int) -> Verdicts:
        """Wait until so many verdicts of each kind are there."""

        def there() -> bool:
            _require_running(assembling)
            completed_reader, rejected_reader = self._readers
            self.seen.completed.extend(
                decode_completed(item.key, item.value) for item in completed_reader.read()
            )
            self.seen.rejected.extend(
                decode_rejected(item.key, item.value) for item in rejected_reader.read()
            )
            return len(self.seen.completed) >= completed and len(self.seen.rejected) >= rejected

        wait_for(there, f"{completed} completed and {rejected} rejected calls")
        return self.seen


def effects(place: Place) -> dict[str, int]:
    """How often each idempotency key took effect, counted outside of the ledger."""
    counts: dict[str, int] = {}
    for line in place.effects_file.read_text().splitlines():
        key = str(json.loads(line)["key"])
        counts[key] = counts.get(key, 0) + 1
    return counts


class LedgerView:
    """What the ledger says, read as an operator would."""

    def __init__(self, place: Place) -> None:
        self._ledger = PostgresLedger(PostgresSettings(place.database_url, pool_max=2))

    def __enter__(self) -> "LedgerView":
        self._ledger.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ledger.__exit__(None, None, None)

    def call(self, idempotency_key: str) -> CallView | None:
        """The call, or None."""
        return self._ledger.show(TENANT, idempotency_key)

    def state(self, idempotency_key: str) -> str:
        """Its state in one word; `absent` when the ledger has not seen it."""
        call = self.call(idempotency_key)
        return call.state if call else "absent"

    def result(self, idempotency_key: str) -> str:
        """The stored result as text."""
        stored = self._ledger.fetch_result(TENANT, idempotency_key)
        return (stored.body or b"").decode() if stored else ""

    def history(self, idempotency_key: str) -> list[Transition]:
        """The transitions so far."""
        return self._ledger.history(TENANT, idempotency_key)

    def wait_state(self, process: Process, idempotency_key: str, state: str) -> None:
        """Wait until the call is in `state`."""

        def there() -> bool:
            _require_running(process)
            return self.state(idempotency_key) == state

        wait_for(there, f"{idempotency_key} to be {state} in the ledger")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait with patience, then fail naming what was waited for."""
    pause = threading.Event()
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise DemoFailed(f"waited {_PATIENCE_S:.0f} s for {what}, in vain")
        pause.wait(0.05)


def wait_executed(place: Place, executing: Process) -> None:
    """Wait until the executor has committed everything on the completed topic."""
    group = f"{place.prefix}exec"

    def there() -> bool:
        _require_running(executing)
        return uncommitted_count(place.bootstrap, group, place.topics.completed) == 0

    wait_for(there, "the executor to settle every completed call")


def wait_killed(process: Process) -> None:
    """Wait until the process has killed itself at its crash point."""
    wait_for(lambda: process.returncode is not None, f"the {process.name} to be killed")


def pass_linger() -> None:
    """Let the assembler's memory of closed calls run out."""
    threading.Event().wait(LINGER_MS / 1000 * 1.5)


def _require_running(process: Process) -> None:
    if process.returncode is not None:
        raise DemoFailed(
            f"the {process.name} ended with status {process.returncode}; see {process.log_path}"
        )
