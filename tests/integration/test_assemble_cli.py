"""`toolcalls assemble`, run as its users run it: with files, with a pipe, and with mistakes."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

STREAMS = Path(__file__).parents[1] / "fixtures" / "streams"
TWO_CALLS = STREAMS / "openai-responses" / "truncated-after-complete-call.sse"
PARALLEL = STREAMS / "openai-chat" / "parallel-interleaved.sse"
NO_CALLS = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'
FIELDS = [
    "call_id",
    "tool",
    "verdict",
    "reason",
    "stage",
    "arguments",
    "response_id",
    "output_index",
    "item_id",
    "idempotency_key",
]


def chat(arguments: str, tool: str = "refund") -> bytes:
    """A Chat stream with one whole call."""
    function = {"name": tool, "arguments": arguments}
    entry = {"index": 0, "id": "call_1", "type": "function", "function": function}
    choice = {"index": 0, "delta": {"tool_calls": [entry]}, "finish_reason": "tool_calls"}
    chunk = {"id": "chatcmpl-1", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"


def assemble(
    *arguments: str, stdin: bytes = b"", dialect: str = "openai-chat"
) -> subprocess.CompletedProcess[bytes]:
    """Run the program."""
    command = [sys.executable, "-m", "processor.cli.main", "assemble", "--dialect", dialect]
    return subprocess.run([*command, *arguments], input=stdin, capture_output=True, check=False)


def test_a_pipe_gets_one_line_per_call_in_order_of_appearance() -> None:
    """Ten cells parted by tabs, - for what is not there, and no heading."""
    done = assemble(str(PARALLEL))
    assert (done.returncode, done.stderr) == (0, b"")
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["call_A", "call_B"]
    for row in rows:
        assert len(row) == len(FIELDS)
        assert row[2:5] == ["completed", "-", "-"]
        assert json.loads(row[5])
        assert row[9] == f"request-1:{row[0]}"


def test_rejected_calls_are_a_result_and_no_failure() -> None:
    """Status 0, the reason and its stage, and no text."""
    done = assemble(str(TWO_CALLS), "--json", dialect="openai-responses")
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(row) for row in rows] == [FIELDS, FIELDS]
    assert [row["call_id"] for row in rows] == ["call_A", "call_B"]
    assert {row["verdict"] for row in rows} == {"rejected"}
    assert {(row["reason"], row["stage"]) for row in rows} == {("truncated", "completion")}
    assert {row["arguments"] for row in rows} == {None}


def test_json_holds_the_exact_text_as_a_string() -> None:
    """Digits, spaces and characters as the model wrote them."""
    text = '{ "amount":1.10,\n\t"note":"caf\u00e9 \U0001f600" }'
    done = assemble("--json", "--tenant", "acme", "--request-id", "req_7", "-", stdin=chat(text))
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert row["arguments"] == text
    assert row["idempotency_key"] == "req_7:call_1"
    assert row["response_id"] == "chatcmpl-1"
    assert row["output_index"] == 0


def test_a_line_end_or_an_escape_in_a_cell_breaks_no_row() -> None:
    """Control characters are escaped."""
    done = assemble("-", stdin=chat('{\n\t"note":"x"}'))
    (line,) = done.stdout.decode().splitlines()
    assert line.split("\t")[5] == r'{\n\t"note":"x"}'


@pytest.mark.parametrize("form", ["lines", "array"])
def test_json_lines_and_an_array_are_read_too(tmp_path: Path, form: str) -> None:
    """The framing is found by looking."""
    chunk = chat('{"a":1}').split(b"\n")[0].removeprefix(b"data: ")
    path = tmp_path / "capture"
    path.write_bytes(chunk if form == "lines" else b"[" + chunk + b"]")
    assert assemble(str(path)).stdout.split(b"\t")[2] == b"completed"


def test_a_catalogue_brings_schemas(tmp_path: Path) -> None:
    """A text that does not fit its tool's schema is refused, by pointer and without the value."""
    catalogue = tmp_path / "catalogue.yaml"
    catalogue.write_text(
        "version: 1\ntools:\n  refund:\n    schema: {type: object, required: [order]}\n"
    )
    done = assemble("--json", "--catalogue", str(catalogue), "-", stdin=chat('{"a":"canary-1"}'))
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (row["verdict"], row["reason"]) == ("rejected", "schema_mismatch")
    assert b"canary-1" not in done.stdout + done.stderr


def test_a_stream_without_calls_prints_a_note_beside_the_results() -> None:
    """Nothing in the pipe, one line on standard error, status 0."""
    done = assemble("-", stdin=NO_CALLS)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == "no tool calls in standard input\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["no-such-file.sse"], b"", "no-such-file.sse"),
        (["-"], b"<html>canary-1</html>", "standard input: not a stream of the dialect"),
        (["-"], b'data: {"type":"canary-1"}\n\n', "standard input: not a stream of the dialect"),
        (["-"], b"[canary-1]", "/dev/stdin is no JSON array"),
        (["--dialect", "openai", "-"], b"", "known: openai-chat, openai-responses"),
        (["--request-id", "a:b", "-"], b"", "request_id contains a colon"),
        (["--catalogue", "no-such.yaml", "-"], b"", "no-such.yaml"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(arguments: list[str], stdin: bytes, told: str) -> None:
    """Status 2, nothing in the pipe, no content and no traceback."""
    done = assemble(*arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert told in line
    assert "canary-1" not in line


def test_a_mistake_in_a_catalogue_is_named_by_file_and_line(tmp_path: Path) -> None:
    """The reader of the message can go there."""
    catalogue = tmp_path / "catalogue.yaml"
    catalogue.write_text("version: 1\ntools:\n  refund:\n    colour: red\n")
    done = assemble("--catalogue", str(catalogue), "-", stdin=chat("{}"))
    assert done.returncode == 2
    assert f"{catalogue}:4" in done.stderr.decode() or "line 4" in done.stderr.decode()


def test_a_terminal_gets_a_coloured_table() -> None:
    """With a heading; the colour says the verdict."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "processor.cli.main", "assemble", "--dialect", "openai-chat"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    done = subprocess.run([*command, str(PARALLEL)], stdout=follower, env=environment, check=False)
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 65536):
            shown += piece
    except OSError:
        pass  # Linux reports the closed other side so.
    os.close(leader)
    assert done.returncode == 0
    assert b"idempotency_key" in shown
    assert b"\x1b[32mcompleted" in shown


def test_the_help_has_an_example() -> None:
    """And says the exit codes."""
    done = subprocess.run(
        [sys.executable, "-m", "processor.cli.main", "assemble", "--help"],
        capture_output=True,
        check=True,
    )
    assert b"Example: toolcalls assemble" in done.stdout
    assert b"Exit codes" in done.stdout
