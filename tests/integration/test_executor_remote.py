"""HTTP and MCP tools of a catalogue, without any Python module: real Kafka, real Postgres, real servers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from processor.core.outcomes import CallCompleted
from tests.integration.test_executor_kafka import ROOT, Rig, calls_of, wait_until
from tests.unit.executor.calls import completed_call
from tests.unit.executor.hostile_http import HostileServer

pytestmark = pytest.mark.integration

TOKEN = "CANARY-pay-token"
MCP_PROGRAM = ROOT / "tests/unit/executor/mcp_program.py"


class RemoteRig(Rig):
    """As `Rig`, with a catalogue instead of a module."""

    def __init__(self, kafka: str, database: str, topic: str, folder: Path) -> None:
        super().__init__(kafka, database, topic, folder)
        self.catalogue = folder / "catalogue.yaml"

    def start(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        """Start `toolcalls execute` with the catalogue."""
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "processor.cli.main", "execute"),
                *("--catalogue", str(self.catalogue), "--completed-topic", self.topic),
                *("--group", self.group, "--slot", "0", *options),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "TOOLCALLS_KAFKA_BOOTSTRAP": self.kafka,
                "TOOLCALLS_DATABASE_URL": self.database,
                "PAY_TOKEN": TOKEN,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def states_of(self, calls: list[CallCompleted]) -> set[str]:
        """The states of these calls."""
        states = self.states()
        return {states[call.key.idempotency_key] for call in calls}

    def results(self) -> list[bytes]:
        """The stored bodies, by idempotency key."""
        with psycopg.connect(self.database) as connection:
            rows = connection.execute(
                "SELECT body FROM tcl.call_result ORDER BY idempotency_key"
            ).fetchall()
        return [bytes(body) for (body,) in rows]

    def errors(self) -> set[str]:
        """Every stored error class."""
        with psycopg.connect(self.database) as connection:
            rows = connection.execute(
                "SELECT DISTINCT error_class FROM tcl.call_result WHERE error_class IS NOT NULL"
            ).fetchall()
        return {str(word) for (word,) in rows}


@pytest.fixture
def rig(kafka_bootstrap: str, database: str, topic_prefix: str, tmp_path: Path) -> RemoteRig:
    """A rig of this test alone."""
    return RemoteRig(kafka_bootstrap, database, f"{topic_prefix}completed", tmp_path)


@pytest.fixture
def server() -> Iterator[HostileServer]:
    """A system behind the tools that knows a key again."""
    with HostileServer(dedupes=True) as found:
        yield found


def tool_line(name: str, effect_class: str, url: str) -> str:
    """One HTTP tool."""
    token = '{Authorization: "Bearer ${PAY_TOKEN}"}'
    return f'  {name}: {{effect_class: {effect_class}, http: {{url: "{url}", headers: {token}}}}}\n'


def test_a_catalogue_alone_runs_http_and_mcp_tools_and_each_call_takes_effect_once(
    rig: RemoteRig, server: HostileServer, tmp_path: Path
) -> None:
    """Every delivery comes twice; a lost answer is repeated under its key, or is in doubt."""
    notes = tmp_path / "mcp_effects"
    notes.touch()
    rig.catalogue.write_text(
        "version: 1\n"
        f'mcp_servers: {{bank: {{command: {sys.executable}, args: ["{MCP_PROGRAM}", "{notes}"]}}}}\n'
        "tools:\n"
        + tool_line("refund", "at_most_once", server.url("/ok"))
        + tool_line("notify", "idempotent", server.url("/flaky"))
        + tool_line("declined", "at_most_once", server.url("/422"))
        + tool_line("broken", "at_most_once", server.url("/500"))
        + "  transfer: {effect_class: at_most_once, mcp: {server: bank, tool: refund}}\n"
    )
    tools = {
        "refund": "succeeded",
        "notify": "succeeded",
        "declined": "failed",
        "broken": "in_doubt",
        "transfer": "succeeded",
    }
    calls = [call for tool in tools for call in calls_of(tool, 4)]
    rig.produce([*calls, *calls])
    status, output = rig.run("--start", "earliest", "--until-idle-s", "4")
    assert status == 0, output
    for tool, state in tools.items():
        assert rig.states_of(calls_of(tool, 4)) == {state}, tool
    assert rig.errors() == {"http_422"}
    assert set(server.effects.values()) == {1}
    assert len(server.effects) == 12
    sent = [r.headers["idempotency-key"] for r in server.requests if r.path == "/flaky"]
    assert len(sent) == 8
    assert len(set(sent)) == 4
    assert len(notes.read_text().splitlines()) == 4
    assert rig.committed() == 2 * len(calls)
    for secret in (TOKEN, "ORDER-1001", "refunded", str(server.port)):
        assert secret not in output


@pytest.mark.faults
@pytest.mark.parametrize(
    ("point", "state", "effects"), [("after_begin", "failed", 0), ("after_effect", "succeeded", 1)]
)
def test_a_process_killed_after_begin_is_followed_by_a_question_to_the_other_side(
    rig: RemoteRig, server: HostileServer, point: str, state: str, effects: int
) -> None:
    """Nobody guesses: the lookup says whether the effect happened, and nothing is sent twice."""
    asked = server.url("/asked/{idempotency_key}")
    rig.catalogue.write_text(
        "version: 1\ntools:\n  refund:\n    effect_class: reconcilable\n"
        f'    http: {{url: "{server.url("/ok")}"}}\n'
        f'    reconcile: {{absent_after_s: 1, http: {{url: "{asked}"}}}}\n'
    )
    (call,) = calls_of("refund", 1)
    rig.produce([call])
    killed, output = rig.run(
        *("--start", "earliest"), TOOLCALLS_CRASH_AT=point, TOOLCALLS_ALLOW_CRASH_POINTS="1"
    )
    assert killed == -signal.SIGKILL, output
    rig.end_leases()
    status, output = rig.run("--until-idle-s", "5", "--start", "earliest")
    assert status == 0, output
    assert rig.states() == {call.key.idempotency_key: state}
    assert server.effects.total() == effects
    assert sum(r.method == "POST" for r in server.requests) == effects
    assert rig.errors() == (set() if effects else {"not_happened"})


def test_a_stop_request_ends_a_hanging_mcp_server_with_the_process(
    rig: RemoteRig, tmp_path: Path
) -> None:
    """The call is left to its lease; no child outlives the executor."""
    notes = tmp_path / "mcp_effects"
    notes.touch()
    rig.catalogue.write_text(
        "version: 1\n"
        f'mcp_servers: {{bank: {{command: {sys.executable}, args: ["{MCP_PROGRAM}", "{notes}"]}}}}\n'
        "tools: {hangs: {mcp: {server: bank}}}\n"
    )
    rig.produce(calls_of("hangs", 1))
    process = rig.start("--start", "earliest", "--drain-s", "0.5")
    try:
        wait_until(lambda: notes.read_text().endswith("\n") or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert set(rig.states().values()) == {"executing"}
    with pytest.raises(ProcessLookupError):
        os.kill(int(json.loads(notes.read_text())["pid"]), 0)


def test_the_catalogue_of_the_readme_runs_as_it_is(
    rig: RemoteRig, server: HostileServer, tmp_path: Path
) -> None:
    """Both tools, with the MCP server of the same page."""
    program = tmp_path / "warehouse.py"
    program.write_text(block_of_the_readme("# warehouse.py"))
    text = block_of_the_readme("# catalogue.yaml")
    assert "args: [warehouse.py]" in text
    rig.catalogue.write_text(text.replace("args: [warehouse.py]", f"args: ['{program}']"))
    arguments = b'{"order_id":"ORDER-1001"}'
    calls = [
        completed_call(arguments, tool=t, number=n) for n, t in ((1, "refund"), (2, "reserve"))
    ]
    rig.produce(calls)
    status, output = rig.run(
        *("--start", "earliest", "--until-idle-s", "2"),
        PAY_URL=server.url(""),
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    )
    assert status == 0, output
    assert rig.states_of(calls) == {"succeeded"}
    paid, reserved = rig.results()
    assert paid == b'{"paid":true}'
    assert json.loads(reserved)["structuredContent"] == {"reserved": "ORDER-1001"}
    (request,) = server.requests
    assert request.body == arguments
    assert request.headers["idempotency-key"] == '"acme/req_1:call_1"'


def block_of_the_readme(first_line: str) -> str:
    """The block of code that begins with this line."""
    blocks = (ROOT / "README.md").read_text().split("```")
    (found,) = [b for b in blocks if b.partition("\n")[2].startswith(first_line)]
    return found.partition("\n")[2]


def test_a_variable_that_is_not_set_and_a_catalogue_without_tools_are_refused(
    rig: RemoteRig, server: HostileServer
) -> None:
    """Before anything is read, by file, line and field."""
    rig.catalogue.write_text(
        "version: 1\ntools:\n" + tool_line("a", "read_only", server.url("/ok"))
    )
    status, output = rig.run("--start", "earliest", PAY_TOKEN="")
    assert status == 2
    assert "catalogue.yaml:3: tools.a.http.headers.Authorization: " in output.replace("\n", " ")
    rig.catalogue.write_text("version: 1\ntools: {a: {}}\n")
    status, output = rig.run("--start", "earliest")
    assert status == 2
    assert "there is no tool to serve" in output
    assert server.requests == []
