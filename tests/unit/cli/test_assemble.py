"""`toolcalls assemble`: what a newcomer sees of a captured stream."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from processor.cli.main import build_app
from processor.core.errors import Misuse
from processor.dialects.recognise import HEAD_BYTES_MAX
from tests.golden.replay import FIXTURES

STREAMS = FIXTURES / "streams"
SECRET = "CANARY-5f1e-secret"


def run(*words: str, given: bytes | None = None) -> tuple[str, str]:
    """Standard output and standard error of a run that must end well."""
    result = CliRunner().invoke(build_app(), ["assemble", *words], input=given)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def refused(*words: str, given: bytes | None = None) -> str:
    """The one line that a run is refused with."""
    with pytest.raises(Misuse) as caught:
        CliRunner().invoke(build_app(), ["assemble", *words], input=given, catch_exceptions=False)
    return str(caught.value)


def test_each_call_is_one_line_in_order_of_appearance() -> None:
    """In a pipe: ten columns parted by tabs, a dash for what is absent."""
    out, err = run(
        str(STREAMS / "openai-chat/two-choices-one-truncated.sse"), "--dialect", "openai-chat"
    )
    completed = ["call_A", "lookup_order", "completed", "-", "-", '{"order_id":"ORDER-1001"}']
    rejected = ["call_B", "get_weather", "rejected", "truncated", "completion", "-"]
    assert [line.split("\t") for line in out.splitlines()] == [
        [*completed, "chatcmpl-0001", "0", "-", "request-1:call_A"],
        [*rejected, "chatcmpl-0001", "0", "-", "request-1:call_B"],
    ]
    assert err == ""


def test_json_has_the_exact_text_and_the_given_identity() -> None:
    """One object a line, arguments as a string, absent values null."""
    path = STREAMS / "openai-responses/custom-tool.sse"
    out, _ = run(str(path), "--dialect", "openai-responses", "--json", "--request-id", "req_7")
    (line,) = out.splitlines()
    assert json.loads(line) == {
        "call_id": "call_A",
        "tool": "run_query",
        "verdict": "completed",
        "reason": None,
        "stage": None,
        "arguments": "SELECT *\nFROM orders\nWHERE id = 'ORDER-1001'",
        "response_id": "resp_0001",
        "output_index": 0,
        "item_id": "ctc_A",
        "idempotency_key": "req_7:call_A",
    }


def test_control_characters_never_reach_a_plain_line() -> None:
    """A line stays a line, and no text moves a terminal's cursor."""
    path = STREAMS / "openai-responses/custom-tool.sse"
    out, _ = run(str(path), "--dialect", "openai-responses")
    assert len(out.splitlines()) == 1
    assert r"SELECT *\nFROM orders" in out


@pytest.mark.parametrize("form", ["sse", "lines", "array"])
def test_standard_input_takes_every_framing(form: str) -> None:
    """Server-sent events, JSON lines, one JSON array."""
    data = (STREAMS / "openai-chat/single-call.sse").read_bytes()
    chunks = [line[6:] for line in data.splitlines() if line.startswith(b"data: {")]
    given = {"sse": data, "lines": b"\n".join(chunks), "array": b"[" + b",\n".join(chunks) + b"]"}
    out, _ = run("-", "--dialect", "openai-chat", given=given[form])
    assert out.startswith("call_A\tlookup_order\tcompleted\t")


def test_a_response_without_calls_is_said_so() -> None:
    """An empty output alone would look like a fault."""
    out, err = run(str(STREAMS / "openai-chat/refusal.sse"), "--dialect", "openai-chat")
    assert out == ""
    assert "calls no tool" in err


def test_a_response_that_is_only_an_error_is_not_taken_for_a_quiet_one() -> None:
    """It calls no tool either, but somebody will want to know why."""
    data = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    _, err = run("-", "--dialect", "anthropic", given=data)
    assert "calls no tool and ended as failed" in err


def test_a_second_response_in_the_file_is_not_lost_silently() -> None:
    """One file is one response; the rest is counted."""
    data = (STREAMS / "openai-chat/single-call.sse").read_bytes()
    _, err = run("-", "--dialect", "openai-chat", given=data * 2)
    assert "events after the response's end were ignored" in err


def test_another_dialect_is_refused_by_file_and_line_without_content(tmp_path: Path) -> None:
    """The message names where and the likely dialect, and quotes nothing."""
    path = tmp_path / "stream.sse"
    path.write_bytes((STREAMS / "openai-chat/single-call.sse").read_bytes())
    assert refused(str(path), "--dialect", "openai-responses") == (
        f"{path}: line 1: not openai-responses: the first event has no type of a response event;"
        " it looks like openai-chat"
    )
    path.write_text(f'data: {{"x":"{SECRET}"}}\n\n')
    assert SECRET not in refused(str(path), "--dialect", "openai-chat")


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "cohere-v2"])
def test_auto_gives_the_lines_of_the_dialect_it_finds(name: str) -> None:
    """The same output as by its name, from a file and from a pipe, and a word on standard error."""
    path = STREAMS / name / "unicode-escapes-split.sse"
    out, _ = run(str(path), "--dialect", name)
    assert run(str(path), "--dialect", "auto") == (out, f"{path}: recognised as {name}\n")
    given = path.read_bytes()
    assert run("-", "--dialect", "auto", given=given) == (
        out,
        f"standard input: recognised as {name}\n",
    )


def test_auto_loses_nothing_of_a_long_input() -> None:
    """What was looked at is read once more, and the rest after it."""
    data = (STREAMS / "cohere-v2/parallel.sse").read_bytes()
    begin, _, rest = data.partition(b"\n\n")
    plan = b'data: {"type":"tool-plan-delta"}\n\n' * 50_000
    out, _ = run("-", "--dialect", "auto", given=begin + b"\n\n" + plan + rest)
    assert len(plan) > HEAD_BYTES_MAX
    assert out == run("-", "--dialect", "cohere-v2", given=data)[0]


def test_auto_refuses_where_nothing_is_certain() -> None:
    """Look-alikes by their names; no dialect; no event. The way out is in the message."""
    path = STREAMS / "mistral/parallel.sse"
    assert refused(str(path), "--dialect", "auto") == (
        f"{path}: it could be mistral or openai-chat, and nothing in it tells these apart;"
        " name its dialect with --dialect"
    )
    given = f'data: {{"x":"{SECRET}"}}\n\n'.encode()
    message = refused("-", "--dialect", "auto", given=given)
    assert "none of the known dialects" in message
    assert SECRET not in message
    assert "no event of a model stream" in refused("-", "--dialect", "auto", given=b"")


def test_what_is_no_stream_is_refused(tmp_path: Path) -> None:
    """A missing file, a folder, a text, nothing at all, an unknown dialect."""
    assert "cannot be read" in refused(str(tmp_path / "none"), "--dialect", "openai-chat")
    assert "cannot be read" in refused(str(tmp_path), "--dialect", "openai-chat")
    for given in (b"", b"hello\n"):
        assert "no event of a model stream" in refused("-", "--dialect", "openai-chat", given=given)
    assert "openai-responses" in refused("-", "--dialect", "nix", given=b"")
