"""Bytes to messages: framing, cuts, bounds, and texts that are refused."""

import json

import pytest

from processor.core.errors import Misuse
from processor.core.events import ArgumentsDelta
from processor.dialects.fields import Malformed
from processor.dialects.json_lines import decode
from processor.dialects.lines import Frame
from processor.dialects.stream import DialectError, ResponseStream
from processor.dialects.surrogates import SurrogateJoiner, Unpaired
from processor.dialects.wire import WireReader
from tests.golden.replay import stream
from tests.unit.dialects.wires import chat, chat_call, entry, sse

SECRET = "CANARY-5f1e-secret"


def frames(data: bytes, bytes_max: int = 1_000) -> list[Frame]:
    """All messages of an input, fed byte by byte."""
    reader = WireReader(bytes_max)
    fed = [frame for at in range(len(data)) for frame in reader.feed(data[at : at + 1])]
    return fed + reader.close()


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (b"data: 1\n\ndata:2\r\n\r\ndata:  3\r\r", [b"1", b"2", b" 3"]),
        (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
        (b": comment\nevent: x\nid: 7\nretry: 1\ndata: 1\n\n\n\n", [b"1"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
        (b"data\n\ndata: 1\n\n", [b"1"]),
        (b"data: 1\n\ndata: 2\n", [b"1"]),
        (b"database: 1\n\n", []),
        (b'\n\n{"a":1}\r\n\r\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (b'\xef\xbb\xbf [ {"a":"],"}\n,[1,{"x":"\\\\"}], 2 ] \n', None),
        (b"[]", []),
    ],
)
def test_messages_are_found_however_they_are_framed(
    data: bytes, messages: list[bytes] | None
) -> None:
    """Line ends, marks, comments, several data lines, JSON lines and arrays, cut at every byte."""
    expected = [b'{"a":"],"}\n', b'[1,{"x":"\\\\"}]', b"2 "] if messages is None else messages
    assert [frame.data for frame in frames(data)] == expected


def test_lines_are_counted_from_one() -> None:
    """A message is named by its first line."""
    assert [f.line for f in frames(b": x\n\ndata: 1\n\nevent: y\ndata: 2\ndata: 3\n\n")] == [3, 6]
    assert [f.line for f in frames(b'\n[\n{"a":\n1},\n2]')] == [3, 5]


@pytest.mark.parametrize("begin", [b"data: ", b'{"a":"', b'["'])
def test_what_is_too_long_is_dropped_as_a_whole_and_said(begin: bytes) -> None:
    """The bound is enforced while reading; the next message is whole again."""
    ends = {b"data: ": (b"\n\n", b"data: 1\n\n"), b'{"a":"': (b"\n", b"1\n"), b'["': (b'",', b"1,")}
    end, after = ends[begin]
    found = frames(begin + b"x" * 2_000 + end + after)
    assert [frame.data for frame in found[:2]] == [None, b"1"]


@pytest.mark.parametrize("rest", [b"", b"1", b"1,", b"1] x"])
def test_an_array_that_is_cut_or_goes_on_cannot_be_read(rest: bytes) -> None:
    """The message that says so has no data."""
    assert frames(b"[" + rest)[-1].data is None


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"a":"\\ud83d","a":2}',
        b'{"a":NaN}',
        b'{"x":"\\ud83d","a":Infinity}',
        b'{"a":1} {"b":2}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud83d\xff"}',
        b"[" * 100_000,
        b'"\\u0041' + b"[" * 100_000,
        b'{"a":' + b"9" * 5_000 + b',"b":"\\ud83d"}',
        b"",
    ],
)
def test_a_chunk_that_readers_understand_differently_is_refused(text: bytes) -> None:
    """Duplicate members, non-finite numbers, rests, bad UTF-8, depths; never another error."""
    with pytest.raises(Malformed):
        decode(text)


def test_lone_halves_are_joined_across_fragments_and_nothing_is_replaced() -> None:
    """A pair cut between its halves is one character; any other half is refused."""
    joiner = SurrogateJoiner()
    assert joiner.join("hi \ud83d") + joiner.join("\ude00!") == "hi \U0001f600!".encode()
    assert not joiner.waits
    for texts in (["\ude00"], ["\ud83d", "x"], ["a\ud83db"], ["\ud83d", "\ud83d\ud83d"]):
        joiner = SurrogateJoiner()
        with pytest.raises(Unpaired):
            _ = [joiner.join(text) for text in texts]


def test_many_fragments_cost_one_event_each_and_no_copy_of_the_rest() -> None:
    """Work is linear: bytes emitted equal bytes given, whatever came before."""
    given = chat_call("call_A", 0, *("x" * 5_000))
    response = stream("openai-chat")
    counts = [len(response.observe(chunk)) for chunk in given]
    assert counts == [1] * 5_001
    told = stream("openai-chat").observe_bytes(sse(given))
    fragments = [e.event.body.fragment for e in told if isinstance(e.event.body, ArgumentsDelta)]
    assert fragments == [b"x"] * 5_000


def test_held_texts_are_bounded() -> None:
    """A call whose head never comes cannot fill the memory."""
    response = stream("openai-chat")
    response.observe(chat(entry(0, "call_A")))
    for _ in range(5):
        response.observe(chat(entry(0, arguments="x" * 1_048_576)))
    told = response.end()
    assert [type(e.event.body).__name__ for e in told] == ["ResponseEnded"]


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"type":"message_start","text":"%s"}\n\n' % SECRET.encode(),
        b"data: %s\n\n" % SECRET.encode(),
        b'{"text":"%s"\n' % SECRET.encode(),
        b'data: "%s"\n\n' % SECRET.encode(),
        b"data: [DONE]\n\n",
        json.dumps([SECRET]).encode(),
        json.dumps({"object": "chat.completion", "choices": [{"message": SECRET}]}).encode()
        + b"\n",
    ],
)
def test_an_input_of_another_kind_is_refused_by_line_without_content(data: bytes) -> None:
    """Only the first event decides, and no text quotes it."""
    with pytest.raises(DialectError, match="line 1") as caught:
        stream("openai-chat").observe_bytes(data)
    assert SECRET not in str(caught.value)
    assert "CANARY" not in repr(caught.value.__cause__)


def test_the_likely_dialect_is_named() -> None:
    """A wrong option is the usual mistake."""
    with pytest.raises(DialectError, match="it looks like openai-chat"):
        stream("openai-responses").observe(chat())


@pytest.mark.parametrize(
    ("dialect", "tenant", "request_id", "model"),
    [
        ("no-such", "acme", "req_1", None),
        ("openai-chat", "", "req_1", None),
        ("openai-chat", "acme", "a:b", None),
        ("openai-chat", "acme", "x" * 129, None),
        ("openai-chat", "acme", "req_1", "a\nb"),
    ],
)
def test_wrong_arguments_are_misuse(
    dialect: str, tenant: str, request_id: str, model: str | None
) -> None:
    """Before any work, and without the value."""
    with pytest.raises(Misuse):
        ResponseStream(dialect, tenant=tenant, request_id=request_id, model=model)


def test_abort_takes_reasons_of_the_closed_list_only() -> None:
    """The assembler would not know another one."""
    with pytest.raises(Misuse):
        stream("openai-chat").abort("because")
