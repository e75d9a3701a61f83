"""The executor as a process: real Kafka, real Postgres, tools in a file, the command line."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import cast

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from processor.cli.exit_codes import ExitCode
from processor.codec.records import encode_completed
from processor.core.outcomes import CallCompleted
from processor.ledger.migrate import migrate, read_migrations
from processor.resources import migrations_dir
from tests.unit.executor.calls import completed_call

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
SECRET = "canary-5f1c"
TOOLS = f'''
import os
from concurrent.futures import Future
from pathlib import Path
from typing import cast
from processor.executor import NotSent, ToolContext, ToolFailed, tool

EFFECTS = Path(os.environ["EFFECTS"])
SEEN = set()

def note(context):
    with EFFECTS.open("a") as file:
        file.write(context.tool + " " + context.idempotency_key + "\\n")

@tool(effect_class="at_most_once")
def refund(order: str, context: ToolContext):
    note(context)
    return {{"order": order}}

@tool(effect_class="idempotent")
async def notify(order: str, context: ToolContext):
    note(context)
    return "sent"

@tool(effect_class="at_most_once")
def unreachable_once(order: str, context: ToolContext):
    if context.idempotency_key not in SEEN:
        SEEN.add(context.idempotency_key)
        raise NotSent(retry_after_s=0.1)
    note(context)

@tool(effect_class="at_most_once")
def declined(order: str):
    raise ToolFailed("card_declined", result={{"reason": "funds"}})

@tool(effect_class="at_most_once")
def broken(order: str):
    raise ValueError("{SECRET}")
'''


def make_topic(kafka: str, topic: str) -> None:
    """Create it and wait for it."""
    admin = AdminClient({"bootstrap.servers": kafka})
    made = cast(
        "dict[str, Future[None]]",
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)]),  # pyright: ignore[reportUnknownMemberType]  # no stub
    )
    made[topic].result(30)


class Rig:
    """One topic, one database and the processes of a test."""

    def __init__(self, kafka: str, database: str, topic: str, folder: Path) -> None:
        self.kafka = kafka
        self.database = database
        self.topic = topic
        self.group = f"{topic}-group"
        self.effects_path = folder / "effects"
        self.effects_path.touch()
        self.tools = folder / "my_tools.py"
        self.tools.write_text(TOOLS)
        migrate(database, read_migrations(migrations_dir()), phase="all")
        make_topic(kafka, topic)

    def produce(self, calls: Sequence[CallCompleted], *, junk: bool = False) -> None:
        """Write completed calls; with `junk` a record that nobody can read before them."""
        producer = Producer({"bootstrap.servers": self.kafka})
        if junk:
            for partition in range(PARTITIONS):
                producer.produce(self.topic, SECRET.encode(), b"x", partition=partition)
        for call in calls:
            producer.produce(self.topic, encode_completed(call), call.key.encode())
        assert producer.flush(30) == 0

    def start(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        """Start `toolcalls execute`."""
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "processor.cli.main", "execute"),
                *("--tools", str(self.tools), "--completed-topic", self.topic),
                *("--group", self.group, "--slot", "0", *options),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "TOOLCALLS_KAFKA_BOOTSTRAP": self.kafka,
                "TOOLCALLS_DATABASE_URL": self.database,
                "EFFECTS": str(self.effects_path),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *options: str, **environment: str) -> tuple[int, str]:
        """Run it to its end; the exit status and everything it wrote."""
        process = self.start(*options, **environment)
        output, _ = process.communicate(timeout=90)
        return process.returncode, output

    def effects(self) -> Counter[str]:
        """How often each tool and key took effect."""
        return Counter(self.effects_path.read_text().splitlines())

    def states(self) -> dict[str, str]:
        """State by idempotency key."""
        with psycopg.connect(self.database) as connection:
            rows = connection.execute(
                "SELECT idempotency_key, state::text FROM tcl.call_guard"
            ).fetchall()
        return {str(key): str(state) for key, state in rows}

    def end_leases(self) -> None:
        """As if time had passed."""
        with psycopg.connect(self.database) as connection:
            connection.execute("UPDATE tcl.call_active SET lease_until = now() - interval '1 s'")

    def committed(self) -> int:
        """The sum of the group's next offsets."""
        consumer = Consumer({"bootstrap.servers": self.kafka, "group.id": self.group})
        try:
            stored = consumer.committed(
                [TopicPartition(self.topic, p) for p in range(PARTITIONS)], timeout=30
            )
        finally:
            consumer.close()
        return sum(max(p.offset, 0) for p in stored)


@pytest.fixture
def rig(kafka_bootstrap: str, database: str, topic_prefix: str, tmp_path: Path) -> Rig:
    """A rig of this test alone."""
    return Rig(kafka_bootstrap, database, f"{topic_prefix}completed", tmp_path)


def calls_of(tool: str, count: int) -> list[CallCompleted]:
    """Calls of one tool, each with an id of its own."""
    first = sum(ord(letter) for letter in tool) * 1000
    return [completed_call(tool=tool, number=first + n) for n in range(count)]


def wait_until(true: Callable[[], bool]) -> None:
    """Ask until it is so."""
    signal_ = threading.Event()
    for _ in range(3000):
        if true():
            return
        signal_.wait(0.02)
    raise AssertionError("it did not become true")


def test_calls_delivered_twice_take_effect_once_and_every_ending_is_recorded(rig: Rig) -> None:
    """Successes, a refusal of the tool, a request not sent, a doubt, junk and a foreign tool."""
    tools = ("refund", "notify", "unreachable_once", "declined", "broken", "somebody_elses")
    calls = [call for tool in tools for call in calls_of(tool, 8)]
    rig.produce([*calls, *calls], junk=True)
    status, output = rig.run("--start", "earliest", "--until-idle-s", "3")
    assert status == 0, output
    states = rig.states()
    assert set(rig.effects().values()) == {1}
    assert len(rig.effects()) == 24
    expected = {
        "refund": "succeeded",
        "notify": "succeeded",
        "unreachable_once": "succeeded",
        "declined": "failed",
        "broken": "in_doubt",
    }
    for tool, state in expected.items():
        found = {states[c.key.idempotency_key] for c in calls_of(tool, 8)}
        assert found == {state}, tool
    assert not {c.key.idempotency_key for c in calls_of("somebody_elses", 8)} & set(states)
    assert output.count("completed_record_unreadable") == PARTITIONS
    assert SECRET not in output
    assert "ORDER-1001" not in output
    assert rig.committed() == 2 * len(calls) + PARTITIONS

    rig.produce(calls)
    status, output = rig.run("--until-idle-s", "2")
    assert status == 0, output
    assert set(rig.effects().values()) == {1}
    assert len(rig.effects()) == 24


def test_same_key_with_other_arguments_is_recorded_and_not_executed(rig: Rig) -> None:
    """The first one runs; the other is a conflict with ids only in the log."""
    first = completed_call(b'{"order":"ORDER-1001"}')
    other = completed_call(b'{"order":"ORDER-2002"}')
    rig.produce([first, other])
    status, output = rig.run("--start", "earliest", "--until-idle-s", "2", "--threads", "1")
    assert status == 0, output
    assert rig.effects().total() == 1
    assert output.count("claim_conflict") == 1
    assert "ORDER-" not in output


@pytest.mark.faults
@pytest.mark.parametrize(
    ("point", "state", "effects"),
    [
        ("after_claim", "succeeded", 1),
        ("after_begin", "in_doubt", 0),
        ("after_effect", "in_doubt", 1),
        ("after_finish", "succeeded", 1),
        ("before_commit", "succeeded", 1),
    ],
)
def test_a_process_killed_at_a_crash_point_is_followed_by_an_honest_ledger(
    rig: Rig, point: str, state: str, effects: int
) -> None:
    """The next process of the slot reads the call again and finds out where it stood."""
    call = completed_call()
    rig.produce([call])
    killed, output = rig.run(
        "--start",
        "earliest",
        TOOLCALLS_CRASH_AT=point,
        TOOLCALLS_ALLOW_CRASH_POINTS="1",
    )
    assert killed == -signal.SIGKILL, output
    rig.end_leases()
    status, output = rig.run("--start", "earliest", "--until-idle-s", "2")
    assert status == 0, output
    assert rig.states() == {call.key.idempotency_key: state}
    assert rig.effects().total() == effects
    assert rig.committed() == 1


def test_a_stop_request_ends_the_process_and_moves_the_offsets(rig: Rig) -> None:
    """SIGTERM: what ran is finished, its offsets are stored, the status is 0."""
    calls = calls_of("refund", 20)
    rig.produce(calls)
    process = rig.start("--start", "earliest")
    try:
        wait_until(lambda: rig.effects().total() == 20)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert rig.committed() == 20
    assert set(rig.states().values()) == {"succeeded"}


def test_a_group_without_a_start_is_refused_with_the_fix(rig: Rig) -> None:
    """No default decides whether old calls run."""
    status, output = rig.run("--until-idle-s", "2")
    assert status == ExitCode.RESTORE_REFUSED
    assert "--start earliest or --start latest" in output
    assert rig.effects().total() == 0


def test_a_topic_that_does_not_exist_is_refused(rig: Rig) -> None:
    """By name, and it is not created."""
    rig.topic += "-missing"
    status, output = rig.run("--start", "earliest", "--until-idle-s", "2")
    assert status == 2
    assert rig.topic in output


def test_the_ledger_verbs_answer_what_happened_and_what_comes_next(rig: Rig) -> None:
    """List by state, show with history, both for machines too."""
    call = completed_call(tool="broken")
    rig.produce([call])
    rig.run("--start", "earliest", "--until-idle-s", "2")
    listed = json.loads(ledger(rig, "list", "--state", "in_doubt", "--json"))
    assert [(x["idempotency_key"], x["next_key"]) for x in listed] == [
        (call.key.idempotency_key, "same_key")
    ]
    shown = json.loads(ledger(rig, "show", call.key.encode().decode(), "--json"))
    assert shown["state"] == "in_doubt"
    assert "resolve" in shown["next_step"]
    steps = [(t["from_state"], t["to_state"], t["why"]) for t in shown["history"]]
    assert steps[:2] == [(None, "claimed", None), ("claimed", "executing", "allow_all")]
    assert steps[2][:2] == ("executing", "in_doubt")
    assert re.fullmatch(r"raised:ValueError \w+\.py:\d+", steps[2][2])
    assert SECRET not in json.dumps(shown)
    assert call.key.idempotency_key in ledger(rig, "list")


def ledger(rig: Rig, *arguments: str) -> str:
    """Run `toolcalls ledger`."""
    done = subprocess.run(
        [sys.executable, "-m", "processor.cli.main", "ledger", *arguments],
        cwd=ROOT,
        env={**os.environ, "TOOLCALLS_DATABASE_URL": rig.database},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout
