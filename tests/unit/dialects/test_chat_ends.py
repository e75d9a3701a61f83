"""Chat: what ends a call, and what refuses it."""

import pytest

from processor.core.events import CallAborted, ResponseEnded, ResponseOutcome
from tests.golden.replay import stream
from tests.unit.dialects.verdicts import events, verdicts
from tests.unit.dialects.wires import Chunk, chat, chat_call, entry

A = '{"a":1}'
CALL = chat_call("call_A", 0, A)


def of(*chunks: Chunk) -> str:
    """The one verdict of a stream with one call."""
    (verdict,) = verdicts("openai-chat", [*CALL, *chunks]).values()
    return verdict


@pytest.mark.parametrize("finish", ["tool_calls", "stop", "function_call"])
def test_a_success_ends_the_calls_of_its_choice(finish: str) -> None:
    """All three words are clean ends; the end mark of the wire is not needed."""
    assert of(chat(finish=finish)) == A


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("length", "truncated"),
        ("content_filter", "content_filter"),
        ("error", "response_failed"),
        ("insufficient_system_resource", "unexpected_finish_reason"),
    ],
)
def test_any_other_finish_refuses_even_a_whole_text(finish: str, reason: str) -> None:
    """A text that parses proves nothing."""
    assert of(chat(finish=finish)) == reason


def test_a_later_failure_revokes_a_success_and_never_the_reverse() -> None:
    """Two different ends contradict each other: closed."""
    success, failure = chat(finish="stop"), chat(finish="length")
    assert of(success, failure) == of(failure, success) == "truncated"


def test_no_finish_is_no_end() -> None:
    """Neither the end of input nor the end mark completes a call."""
    assert of() == "stream_ended"
    response = stream("openai-chat")
    for chunk in CALL:
        response.observe(chunk)
    (told,) = response.observe_bytes(b"data: [DONE]\n\n")
    assert told.event.body == ResponseEnded("stream_ended")
    assert response.ended
    assert response.end() == []


def test_a_cancelled_reader_is_no_end() -> None:
    """Cancelled before the finish_reason is refused, after it changes nothing."""
    ends: list[tuple[list[Chunk], ResponseOutcome]] = [
        ([], "cancelled"),
        ([chat(finish="stop")], "completed"),
    ]
    for finish, outcome in ends:
        response = stream("openai-chat")
        for chunk in (*CALL, *finish):
            response.observe(chunk)
        (told,) = response.end(cancelled=True)
        assert told.event.body == ResponseEnded(outcome)


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "upstream", "code": 502}},
        {"choices": [], "error": {"code": 502}},
        {"x_groq": {"error": "tool_use_failed"}, "choices": []},
        {"choices": [{"index": 0, "error": {"code": 502}, "finish_reason": "stop"}]},
    ],
)
def test_an_error_in_the_stream_refuses_also_after_a_clean_finish(error: Chunk) -> None:
    """What follows an error, a success too, is not believed."""
    assert of(chat(finish="tool_calls"), error, chat(finish="stop")) == "stream_error"


def test_a_fragment_after_the_finish_is_too_late() -> None:
    """The call was complete without it; with it nobody knows."""
    assert of(chat(finish="stop"), chat(entry(0, arguments=" "))) == "fragment_after_end"


def test_an_empty_fragment_after_the_finish_is_nothing() -> None:
    """Only bytes count."""
    assert of(chat(finish="stop"), chat(entry(0, arguments=""))) == A


def test_a_call_that_begins_after_the_finish_is_refused() -> None:
    """Servers that finish every chunk cannot be told from a late call."""
    found = verdicts("openai-chat", [chat(finish="stop"), *CALL, chat(finish="stop")])
    assert found == {"call_A": "fragment_after_end"}


def test_a_chunk_that_cannot_be_read_refuses_the_whole_response() -> None:
    """Without numbers nobody knows what was in it, for calls that begin later neither."""
    bad: Chunk = {"id": "chatcmpl-0001", "choices": "none"}
    found = verdicts(
        "openai-chat", [*CALL, bad, *chat_call("call_B", 1, A), chat(finish="tool_calls")]
    )
    assert found == {"call_A": "malformed_event", "call_B": "malformed_event"}


def test_another_response_id_refuses_what_is_open_and_what_begins() -> None:
    """Two responses in one stream are not separated by guessing."""
    other = [chat(entry(1, "call_B", "x", A), response_id="chatcmpl-0002")]
    found = verdicts("openai-chat", [*CALL, *other, chat(finish="stop")])
    assert found == {"call_A": "response_id_changed", "call_B": "response_id_changed"}


def test_a_stream_without_response_id_is_keyed_by_a_tilde() -> None:
    """The request still names its calls."""
    chunks = [chat(entry(0, "call_A", "x", A), response_id=""), chat(finish="stop", response_id="")]
    keys = {event.key for event in events("openai-chat", chunks)}
    assert {key.response_id for key in keys} == {"~"}
    assert verdicts("openai-chat", chunks) == {"call_A": A}


def test_every_call_gets_one_response_end_also_a_refused_one() -> None:
    """The end frees the key of the call in the assembler."""
    bodies = [e.event.body for e in events("openai-chat", [*CALL, {"error": {"code": 1}}])]
    assert bodies[-2:] == [CallAborted("stream_error"), ResponseEnded("failed")]


def test_abort_refuses_what_is_open_and_takes_nothing_more() -> None:
    """For a caller that lost an event on its way."""
    response = stream("openai-chat")
    for chunk in CALL:
        response.observe(chunk)
    (told,) = response.abort("stream_error")
    assert told.event.body == CallAborted("stream_error")
    assert (response.observe(chat(finish="stop")), response.end()) == ([], [])
    assert response.ignored_count == 1


def test_a_text_that_ends_in_half_a_character_is_refused() -> None:
    """A free text has no parser that would notice."""
    custom: Chunk = {"index": 0, "id": "call_A", "type": "custom"}
    custom["custom"] = {"name": "run_query", "input": "SELECT 1\ud83d"}
    found = verdicts("openai-chat", [chat(custom), chat(finish="tool_calls")])
    assert found == {"call_A": "invalid_utf8"}
