"""MCP tools on real servers, over pipes and over HTTP: killed, hanging, missing."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from processor.core.errors import Misuse
from processor.core.outcomes import EffectClass
from processor.executor.mcp_tool import exact_members
from processor.executor.remote import RemoteTools, ServerProblem
from processor.executor.runner import Ran
from processor.executor.signals import ToolFailed
from processor.executor.tools import ToolSet
from processor.policy.catalogue import parse_catalogue
from tests.unit.executor.runner_rig import Rig, call_of

PROGRAM = Path(__file__).with_name("mcp_program.py")
KEY = "acme/req_1001:call_1"


class Notes:
    """The file in which the servers of a test note their effects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self) -> list[dict[str, object]]:
        """What happened, in order."""
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def pid(self) -> int:
        """The process of the last effect."""
        return int(str(self.lines()[-1]["pid"]))


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """An empty file."""
    return Notes(tmp_path / "effects")


def over_pipes(notes: Notes, effect_class: EffectClass, tool: str = "", more: str = "") -> str:
    """A catalogue with a server that is a command."""
    return f"""
version: 1
mcp_servers:
  bank:
    command: {sys.executable}
    args: ["{PROGRAM}", "{notes.path}"]
    env: {{BANK_TOKEN: "${{BANK_TOKEN}}"}}
tools:
  refund:
    effect_class: {effect_class}
    timeout_s: 20
    {more}
    mcp: {{server: bank{tool}}}
"""


@contextmanager
def rig_of(text: str) -> Generator[tuple[Rig, RemoteTools]]:
    """A runner of this catalogue; sessions and processes are ended."""
    catalogue = parse_catalogue(text)
    remote = RemoteTools(catalogue, {"BANK_TOKEN": "CANARY", "OTHER": "secret"})
    try:
        yield Rig(ToolSet(remote.declarations), catalogue=catalogue), remote
    finally:
        remote.close()


@contextmanager
def http_server(notes: Notes, port: int) -> Generator[subprocess.Popen[bytes]]:
    """A streamable HTTP server; it is there when this returns."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(notes.path), str(port)], stderr=subprocess.DEVNULL
    )
    try:
        waited = threading.Event()
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            waited.wait(0.1)
        yield process
    finally:
        process.kill()
        process.wait(30)


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])


def over_http(port: int, effect_class: EffectClass, tool: str = "") -> str:
    """A catalogue with a server that is a URL."""
    return f"""
version: 1
mcp_servers:
  bank: {{url: "http://127.0.0.1:{port}/mcp", headers: {{Authorization: "Bearer ${{BANK_TOKEN}}"}}}}
tools:
  refund: {{effect_class: {effect_class}, timeout_s: 20, mcp: {{server: bank{tool}}}}}
"""


def test_a_call_over_pipes_has_the_key_and_the_trace_and_one_session(notes: Notes) -> None:
    """Started when it is needed, kept for the next call, ended with the executor."""
    with rig_of(over_pipes(notes, "at_most_once")) as (rig, _):
        assert rig.run(call_of()) == Ran("settled", "succeeded")
        assert rig.run(call_of()) == Ran("settled", "replay")
        assert rig.run(call_of(number=2)) == Ran("settled", "succeeded")
        stored = json.loads(rig.result(call_of()).body or b"")
        assert stored["structuredContent"] == {"refunded": "ORDER-1001"}
        assert stored["content"][0]["type"] == "text"
        first, second = notes.lines()
        assert (first["key"], first["trace"]) == (KEY, "00-1-2-01")
        assert (second["key"], second["pid"]) == ("acme/req_2:call_1", first["pid"])
        pid = notes.pid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_result_that_says_error_is_failed_by_name_or_unknown_as_the_catalogue_says(
    notes: Notes,
) -> None:
    """The tool's own words reach the one who asked."""
    text = over_pipes(notes, "at_most_once", ", tool: declined")
    place = "{server: bank, tool: declined, error_means: unknown}"
    text += f"  doubted: {{mcp: {place}}}\n"
    text += f"  repeated: {{effect_class: idempotent, mcp: {place}}}\n"
    with rig_of(text) as (rig, _):
        assert rig.run(call_of()) == Ran("settled", "failed")
        stored = rig.result(call_of())
        assert stored.error_class == "mcp_tool_error"
        assert json.loads(stored.body or b"")["isError"] is True
        assert rig.run(call_of(number=2, tool="doubted")) == Ran("parked", "in_doubt")
        assert rig.run(call_of(number=3, tool="repeated")) == Ran("parked", "ready")


@pytest.mark.parametrize(
    ("effect_class", "words", "effects"),
    [
        ("at_most_once", ["in_doubt", "in_doubt"], 1),
        ("idempotent", ["ready", "ready"], 2),
    ],
)
def test_a_server_killed_after_the_effect_leaves_it_unknown(
    notes: Notes, effect_class: EffectClass, words: list[str], effects: int
) -> None:
    """And a new session works; a repeated call carries the same key."""
    with rig_of(over_pipes(notes, effect_class, ", tool: dies")) as (rig, _):
        assert [rig.run(call_of()).word for _ in words] == words
        assert rig.ledger.history("acme", "req_1001:call_1")[-1].why == "mcp_cut"
    assert [line["key"] for line in notes.lines()] == [KEY] * effects


def test_a_session_that_died_between_two_calls_is_started_again(notes: Notes) -> None:
    """Nothing was under way, so nothing is in doubt."""
    with rig_of(over_pipes(notes, "at_most_once")) as (rig, remote):
        assert rig.run(call_of()) == Ran("settled", "succeeded")
        os.kill(notes.pid(), signal.SIGKILL)
        remote.wait_for_end("bank", 30)
        assert rig.run(call_of(number=2)) == Ran("settled", "succeeded")
    assert len({line["pid"] for line in notes.lines()}) == 2


def test_a_tool_that_never_answers_is_unknown_and_holds_up_nobody(notes: Notes) -> None:
    """Its limit is its own; the session goes on."""
    text = over_pipes(notes, "at_most_once", ", tool: hangs").replace(
        "timeout_s: 20", "timeout_s: 0.5"
    )
    text += "  other: {mcp: {server: bank, tool: refund}}\n"
    with rig_of(text) as (rig, _):
        assert rig.run(call_of(number=2, tool="other")) == Ran("settled", "succeeded")
        assert rig.run(call_of()) == Ran("parked", "in_doubt")
        assert rig.ledger.history("acme", "req_1001:call_1")[-1].why == "mcp_timed_out"
        assert rig.run(call_of(number=3, tool="other")) == Ran("settled", "succeeded")


def test_a_server_that_cannot_be_started_was_not_sent_and_is_not_hammered(notes: Notes) -> None:
    """The next start waits; calls meanwhile go back as well."""
    text = over_pipes(notes, "at_most_once").replace(str(PROGRAM), "/no/such/program.py")
    with rig_of(text) as (rig, remote):
        assert remote.check() == [ServerProblem("bank", None, "mcp_not_started")]
        for number in (1, 2, 3):
            assert rig.run(call_of(number=number)) == Ran("parked", "ready")
            assert rig.view(call_of(number=number)).begun == 0


def test_a_server_gets_only_what_the_catalogue_gives_it(notes: Notes) -> None:
    """No database address, no other server's secret."""
    with rig_of(over_pipes(notes, "read_only", ", tool: environment")) as (rig, _):
        assert rig.run(call_of()) == Ran("settled", "succeeded")
        names = json.loads(rig.result(call_of()).body or b"")["structuredContent"]["result"]
    assert "BANK_TOKEN" in names
    assert set(names) <= {
        "BANK_TOKEN",
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "LC_CTYPE",
    }


def test_what_the_server_says_otherwise_is_reported_and_weakens_nothing(notes: Notes) -> None:
    """Missing tool, other schema, hints against the class."""
    text = over_pipes(notes, "read_only", more="schema: {type: object}")
    text += "  gone: {mcp: {server: bank}}\n"
    text += "  again: {effect_class: idempotent, mcp: {server: bank, tool: refund}}\n"
    with rig_of(text) as (rig, remote):
        assert {(p.tool, p.code) for p in remote.check()} == {
            ("refund", "mcp_schema_differs"),
            ("refund", "mcp_hint_not_read_only"),
            ("gone", "mcp_tool_missing"),
            ("again", "mcp_hint_not_idempotent"),
        }
        assert rig.run(call_of(tool="gone")).word == "failed"


def test_the_same_schema_is_no_difference(notes: Notes) -> None:
    """The order of members does not count."""
    schema = (
        "schema: {required: [order], type: object, title: refundArguments,"
        " properties: {order: {type: string, title: Order}}}"
    )
    with rig_of(over_pipes(notes, "at_most_once", more=schema)) as (_, remote):
        assert remote.check() == []


@pytest.mark.parametrize(
    ("mode", "ran", "why"),
    [
        ("ok", Ran("settled", "succeeded"), None),
        ("noisy", Ran("settled", "succeeded"), None),
        ("invalid_params", Ran("settled", "failed"), "mcp_invalid_params"),
        ("no_such_method", Ran("settled", "failed"), "mcp_method_not_found"),
        ("not_a_result", Ran("parked", "in_doubt"), "mcp_unreadable"),
        ("internal", Ran("parked", "in_doubt"), "mcp_error"),
        ("own_code", Ran("parked", "in_doubt"), "mcp_error"),
        ("closes", Ran("parked", "in_doubt"), "mcp_cut"),
    ],
)
def test_an_older_server_and_every_kind_of_answer(
    notes: Notes, capfd: pytest.CaptureFixture[str], mode: str, ran: Ran, why: str | None
) -> None:
    """One request, an honest word for its answer, and nothing of the server's texts in our output."""
    program = PROGRAM.with_name("plain_mcp_program.py")
    text = over_pipes(notes, "at_most_once").replace(
        f'"{PROGRAM}", "{notes.path}"', f'"{program}", "{notes.path}", {mode}'
    )
    with rig_of(text) as (rig, _):
        assert rig.run(call_of()) == ran
        assert rig.ledger.history("acme", "req_1001:call_1")[-1].why == why
    (line,) = notes.lines()
    assert line["arguments"] == {"order": "ORDER-1001"}
    assert line["_meta"] == {"idempotencyKey": KEY, "traceparent": "00-1-2-01"}
    assert "CANARY" not in "".join(capfd.readouterr())


# --- streamable HTTP


def test_a_call_over_http_has_the_key_and_the_trace(notes: Notes) -> None:
    """The same words over the other transport."""
    port = free_port()
    with http_server(notes, port), rig_of(over_http(port, "at_most_once")) as (rig, remote):
        assert remote.check() == []
        assert rig.run(call_of()) == Ran("settled", "succeeded")
        assert rig.run(call_of()) == Ran("settled", "replay")
    (line,) = notes.lines()
    assert (line["key"], line["trace"]) == (KEY, "00-1-2-01")


def test_a_server_killed_in_the_middle_of_a_post_leaves_it_unknown_and_may_come_back(
    notes: Notes,
) -> None:
    """While it is away nothing is sent; then a new session is made."""
    port = free_port()
    with rig_of(over_http(port, "at_most_once", ", tool: dies")) as (rig, _):
        with http_server(notes, port):
            assert rig.run(call_of()) == Ran("parked", "in_doubt")
        assert rig.run(call_of(number=2)) == Ran("parked", "ready")
        assert rig.view(call_of(number=2)).begun == 0
    assert len(notes.lines()) == 1
    port = free_port()
    with rig_of(over_http(port, "at_most_once")) as (rig, _):
        with http_server(notes, port):
            assert rig.run(call_of()) == Ran("settled", "succeeded")
        with http_server(notes, port):
            assert [rig.run(call_of(number=n)).word for n in (2, 3)] == ["succeeded", "succeeded"]


def test_a_server_that_is_not_there_was_not_sent(notes: Notes) -> None:
    """No connection, no session, no call."""
    with rig_of(over_http(free_port(), "at_most_once")) as (rig, _):
        assert rig.run(call_of()) == Ran("parked", "ready")


# --- without a server


def test_numbers_go_over_exactly_or_not_at_all() -> None:
    """A double that says another number than the text is refused."""
    assert exact_members(b'{"n":12345678901234567890,"f":0.1,"l":[1.50]}') == {
        "n": 12345678901234567890,
        "f": 0.1,
        "l": [1.5],
    }
    with pytest.raises(ToolFailed) as refused:
        exact_members(b'{"f":0.10000000000000000001}')
    assert refused.value.error_class == "number_not_exact"


def test_without_the_sdk_the_catalogue_is_refused_with_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is an extra."""
    monkeypatch.delitem(sys.modules, "processor.executor.mcp_session", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    text = "version: 1\nmcp_servers: {bank: {command: x}}\ntools: {refund: {mcp: {server: bank}}}"
    with pytest.raises(Misuse, match=r"toolcall-processor\[mcp\]"):
        RemoteTools(parse_catalogue(text), {})
