"""A real executor process with tools that misbehave, and what its ledger and its log say."""

import os
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from processor.codec.records import encode_completed
from processor.core.outcomes import EffectClass
from processor.ledger.migrate import migrate, read_migrations
from processor.resources import migrations_dir
from tests.integration.assembler_rig import wait_until
from tests.unit.executor.calls import completed_call

ROOT = Path(__file__).parents[2]
SECRET = "CANARY-4e1d-SECRET"
TOOLS = f'''
import asyncio, sys, threading, time
from processor.executor import NotSent, ToolContext, ToolFailed, tool

class Odd(BaseException):
    """As the cancellations of some libraries: no Exception."""

class Sealed(dict):
    def items(self):
        raise KeyError("{SECRET}")

@tool(effect_class="at_most_once")
def good(order: str): return 1

@tool(effect_class="at_most_once")
async def good_async(order: str): return 1

@tool(effect_class="at_most_once", timeout_s=1)
async def async_exit(order: str): sys.exit(0)

@tool(effect_class="at_most_once", timeout_s=1)
async def async_cancelled(order: str): raise asyncio.CancelledError("{SECRET}")

@tool(effect_class="at_most_once", timeout_s=1)
async def async_odd(order: str): raise Odd("{SECRET}")

@tool(effect_class="at_most_once", timeout_s=1)
async def async_blocking(order: str): time.sleep(100_000)

@tool(effect_class="at_most_once", timeout_s=1)
def odd(order: str): raise Odd("{SECRET}")

@tool(effect_class="at_most_once", timeout_s=1)
def sealed(order: str): return Sealed(a=1)

@tool(effect_class="at_most_once", timeout_s=1)
def failed_number(order: str): raise ToolFailed(402)

@tool(effect_class="at_most_once", timeout_s=1)
def failed_sentence(order: str): raise ToolFailed("declined for {SECRET}")

@tool(effect_class="at_most_once", timeout_s=1)
def failed_long(order: str): raise ToolFailed("x" * 5_000)

@tool(effect_class="at_most_once", timeout_s=1)
def retry_never(order: str): raise NotSent(retry_after_s=float("inf"))

@tool(effect_class="at_most_once", timeout_s=1)
def retry_far(order: str): raise NotSent(retry_after_s=1e15)

@tool(effect_class="transactional", timeout_s=1)
def transactional_exit(order: str, context: ToolContext): sys.exit(0)

@tool(effect_class="transactional", timeout_s=1)
def transactional_swallow(order: str, context: ToolContext):
    try:
        context.connection.execute("SELECT 1/0")
    except Exception:
        pass
    return 1

@tool(effect_class="transactional", timeout_s=1)
def transactional_deferred(order: str, context: ToolContext):
    context.connection.execute("INSERT INTO child VALUES (999)")
    return 1

@tool(effect_class="transactional", timeout_s=1)
def transactional_cut(order: str, context: ToolContext):
    context.connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

@tool(effect_class="transactional", timeout_s=1)
def transactional_endless(order: str, context: ToolContext): threading.Event().wait()

@tool(effect_class="at_most_once", timeout_s=3600)
def endless(order: str): threading.Event().wait()
'''  # noqa: S608 - a program text, no query; the constant is ours
DEFERRED = (
    "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child"
    " (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)"
)


class Host:
    """One executor process, its topic and its ledger."""

    def __init__(self, kafka: str, database: str, topic: str, folder: Path) -> None:
        self._kafka, self._database, self._topic = kafka, database, topic
        self._log_path = folder / "log"
        tools = folder / "my_tools.py"
        tools.write_text(TOOLS)
        migrate(database, read_migrations(migrations_dir()), phase="all")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(DEFERRED)
        admin = AdminClient({"bootstrap.servers": kafka})
        made = cast(
            "dict[str, Future[None]]",
            admin.create_topics([NewTopic(topic, 1, 1)]),  # pyright: ignore[reportUnknownMemberType]  # no stub
        )
        made[topic].result(30)
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "processor.cli.main", "execute"),
                    *("--tools", str(tools), "--completed-topic", topic, "--group", topic),
                    *("--slot", "0", "--start", "earliest", "--lease-margin-s", "0.5"),
                    *("--drain-s", "1"),
                ],
                cwd=ROOT,
                env={
                    **os.environ,
                    "TOOLCALLS_KAFKA_BOOTSTRAP": kafka,
                    "TOOLCALLS_DATABASE_URL": database,
                },
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        """What the process has written."""
        return self._log_path.read_text()

    def produce(self, tool: str, number: int) -> None:
        """Write a completed call of `tool`."""
        effect_class: EffectClass = "at_most_once"
        if tool.startswith("transactional"):
            effect_class = "transactional"
        call = completed_call(number=number, tool=tool, effect_class=effect_class)
        producer = Producer({"bootstrap.servers": self._kafka})
        producer.produce(self._topic, encode_completed(call), call.key.encode())
        assert producer.flush(30) == 0

    def state(self, tool: str) -> str | None:
        """State of the one call of `tool`, None before its claim."""
        with psycopg.connect(self._database) as connection:
            row = connection.execute(
                "SELECT state::text FROM tcl.call_guard WHERE tool = %s", (tool,)
            ).fetchone()
        return None if row is None else str(row[0])

    def reasons(self, tool: str) -> list[str]:
        """Every reason in the history of the one call of `tool`."""
        with psycopg.connect(self._database) as connection:
            rows = connection.execute(
                "SELECT h.why FROM tcl.call_history h JOIN tcl.call_guard g"
                " USING (tenant, idempotency_key) WHERE g.tool = %s AND h.why IS NOT NULL"
                " ORDER BY h.id",
                (tool,),
            ).fetchall()
        return [str(why) for (why,) in rows]

    def error_class(self, tool: str) -> str | None:
        """The stored error class of the one call of `tool`."""
        with psycopg.connect(self._database) as connection:
            row = connection.execute(
                "SELECT r.error_class FROM tcl.call_result r JOIN tcl.call_guard g"
                " USING (tenant, idempotency_key) WHERE g.tool = %s",
                (tool,),
            ).fetchone()
        return None if row is None else row[0]

    def has_begun(self, tool: str) -> bool:
        """True when the tool may have run, or the process has ended."""
        return self.state(tool) not in {None, "claimed"} or self.process.poll() is not None

    def serves(self, tool: str, number: int) -> bool:
        """Write a call of a good tool and say whether it succeeds."""
        self.produce(tool, number)
        wait_until(
            lambda: (
                self.state(tool) in {"succeeded", "in_doubt"} or self.process.poll() is not None
            ),
            f"an answer for {tool}",
        )
        return self.state(tool) == "succeeded"


@contextmanager
def host(kafka: str, database: str, topic: str, folder: Path) -> Generator[Host]:
    """A running executor, ended at exit."""
    made = Host(kafka, database, topic, folder)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait(30)
