"""Ollama: who a call is, what ends it, and what refuses it."""

import pytest

from processor.core.events import ArgumentsDelta, ArgumentsDone, CallStarted, ResponseEnded
from processor.dialects.stream import DialectError
from tests.golden.replay import events_of, stream
from tests.unit.dialects.value_wires import ollama, ollama_call
from tests.unit.dialects.verdicts import events, verdicts
from tests.unit.dialects.wires import Chunk

NAME = "ollama"
A = '{"a":1}'
ARGS: Chunk = {"a": 1}
CALL = ollama(ollama_call(arguments=ARGS))
DONE = ollama(done=True)


def of(*lines: Chunk) -> dict[str, str]:
    """Verdicts of a stream of these lines."""
    return verdicts(NAME, lines)


def test_a_call_ends_only_with_the_last_line() -> None:
    """Its line is no proof: the response may still be cut."""
    bodies = [e.event.body for e in events(NAME, [CALL, DONE])]
    assert isinstance(bodies[0], CallStarted)
    assert bodies[0].response_id == "~"
    assert bodies[1:] == [ArgumentsDelta(A.encode()), ArgumentsDone(), ResponseEnded("completed")]
    assert of(CALL) == {"call_A": "stream_ended"}


def test_calls_in_the_last_line_are_read_before_it_ends_them() -> None:
    """Older servers send them there."""
    assert of(ollama(ollama_call(arguments=ARGS), done=True)) == {"call_A": A}


def test_without_ids_a_call_is_named_by_its_ordinal() -> None:
    """Made up, the same each time, and beginning with a tilde; an index is told as it is."""
    bare, at_seven = ollama_call(None, arguments=ARGS), ollama_call("call_B", index=7)
    lines = [ollama(bare, at_seven), ollama(bare), DONE]
    assert of(*lines) == {"~call:0": A, "call_B": "{}", "~call:2": A}
    starts = [e.event.body for e in events(NAME, lines) if isinstance(e.event.body, CallStarted)]
    assert [start.output_index for start in starts] == [0, 7, 2]


@pytest.mark.parametrize("arguments", [None, {}])
def test_no_arguments_are_an_empty_object(arguments: object) -> None:
    """Absent or empty: the wire has no other way to say it."""
    assert of(ollama(ollama_call(arguments=arguments)), DONE) == {"call_A": "{}"}


@pytest.mark.parametrize("arguments", [[], "", '{"a":1}', 1, False])
def test_arguments_of_another_type_are_no_object(arguments: object) -> None:
    """Not even a text that would parse as one."""
    assert of(ollama(ollama_call(arguments=arguments)), DONE) == {"call_A": "not_an_object"}


def test_numbers_keep_the_digits_of_the_wire() -> None:
    """Nothing is rounded on the way through the adapter."""
    text = '{"n":1.10,"e":1E5,"big":123456789012345678901234567890}'
    line = '{"message":{"tool_calls":[{"function":{"name":"f","arguments":%s}}]},"done":false}'
    told = [e.event.body for e in events_of(NAME, (line % text).encode())]
    assert told[1] == ArgumentsDelta(text.encode())


def test_an_id_that_comes_again_is_a_repeat_or_a_conflict() -> None:
    """The same tool and text add nothing; anything else refuses the call."""
    assert of(CALL, CALL, DONE) == {"call_A": A}
    for other in (ollama_call(arguments={"a": 2}), ollama_call(name="g", arguments=ARGS)):
        assert of(CALL, ollama(other), DONE) == {"call_A": "identity_conflict"}


def test_a_call_without_a_tool_is_refused_and_seen() -> None:
    """It must not vanish."""
    assert of(ollama(ollama_call(name=None)), DONE) == {"call_A": "tool_name_missing"}
    assert of(ollama(ollama_call(None, None)), DONE) == {"~call:0": "tool_name_missing"}


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("length", "truncated"),
        ("load", "unexpected_finish_reason"),
        ("unload", "unexpected_finish_reason"),
        ("something_new", "unexpected_finish_reason"),
        (None, "stream_ended"),
        ("", "stream_ended"),
    ],
)
def test_any_other_end_refuses_a_call_that_came_whole(reason: str | None, verdict: str) -> None:
    """Only `stop` is a clean end; no reason is what a lost runner leaves."""
    assert of(CALL, ollama(done=True, reason=reason)) == {"call_A": verdict}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"error": "out of memory"}, "stream_error"),
        ({"message": {}, "done": "yes"}, "malformed_event"),
        ({"message": [], "done": False}, "malformed_event"),
        ({"message": {"tool_calls": [{"id": "call_B"}]}, "done": False}, "malformed_event"),
    ],
)
def test_an_error_and_a_line_that_cannot_be_read_refuse_the_response(
    line: Chunk, reason: str
) -> None:
    """There are no numbers that would show what was lost."""
    assert of(CALL, line, DONE) == {"call_A": reason}


def test_what_follows_the_last_line_is_ignored_and_counted() -> None:
    """The response is over."""
    response = stream(NAME)
    for line in (CALL, DONE, ollama(ollama_call("call_B")), {"error": "late"}):
        response.observe(line)
    assert (response.ended, response.ignored_count, response.end()) == (True, 2, [])


def test_a_first_line_that_is_an_error_is_of_the_wire() -> None:
    """A request that failed at once has no calls."""
    assert of({"error": "model not found"}) == {}


def test_a_cancelled_reader_and_a_foreign_end_mark_are_no_end() -> None:
    """Only the last line is."""
    response = stream(NAME)
    response.observe(CALL)
    (told,) = response.end(cancelled=True)
    assert told.event.body == ResponseEnded("cancelled")
    response = stream(NAME)
    response.observe(CALL)
    (told,) = response.observe_bytes(b"data: [DONE]\n\n")
    assert told.event.body == ResponseEnded("stream_ended")


def test_a_cut_line_refuses_what_came_before() -> None:
    """It may have been the last one, with any reason."""
    whole = b'{"message":{"tool_calls":[{"id":"call_A","function":{"name":"f"}}]},"done":false}\n'
    bodies = [e.event.body for e in events_of(NAME, whole + b'{"message":{"content":"x')]
    assert bodies[-1] == ResponseEnded("stream_ended")
    assert not any(isinstance(body, ArgumentsDone) for body in bodies)


@pytest.mark.parametrize(
    "line", [{"response": "x", "done": False}, {"choices": []}, {"message": {}}]
)
def test_another_wire_is_not_taken_for_this_one(line: Chunk) -> None:
    """Of the same server's other ways too."""
    with pytest.raises(DialectError):
        stream(NAME).observe(line)
