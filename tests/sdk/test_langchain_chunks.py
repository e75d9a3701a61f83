"""LangChain's own message objects, built as its integrations build them for other providers."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from processor.core.outcomes import CallRejected
from tests.sdk.clients import module
from tests.sdk.published import Told, told_by

ARGUMENTS = '{"order_id":"ORDER-1001"}'
HEAD = {"name": "lookup_order", "args": "", "id": "call_A", "index": 0}
PIECES = [{"name": None, "args": text, "id": None, "index": 0} for text in ('{"order', '_id":"')]
LAST = {"name": None, "args": 'ORDER-1001"}', "id": None, "index": 0}

WHOLE: Sequence[Mapping[str, object]] = (HEAD, *PIECES, LAST)


def chunk(pieces: Sequence[Mapping[str, object]] = (), **fields: object) -> Any:
    """One real `AIMessageChunk`."""
    made = [{**piece, "type": "tool_call_chunk"} for piece in pieces]
    return module("langchain_core.messages").AIMessageChunk(
        content="", tool_call_chunks=made, **fields
    )


def published(**told: object) -> Told:
    """A whole response in pieces, the last chunk with `told` as its metadata."""
    pieces = [chunk([piece]) for piece in WHOLE]
    return told_by("openai-chat", [*pieces, chunk(response_metadata=told, chunk_position="last")])


def reasons(told: Told) -> list[str]:
    """Why the calls were refused."""
    return [one.reason for one in told.outcomes if isinstance(one, CallRejected)]


@pytest.mark.parametrize(
    ("field", "word"),
    [
        ("finish_reason", "tool_calls"),
        ("finish_reason", "stop"),
        ("finish_reason", "STOP"),
        ("stop_reason", "tool_use"),
        ("stop_reason", "end_turn"),
        ("stopReason", "tool_use"),
        ("done_reason", "stop"),
    ],
)
def test_a_providers_word_of_success_proves_the_calls(field: str, word: str) -> None:
    """OpenAI's word, and those of the providers that name it otherwise."""
    assert [one.arguments.decode() for one in published(**{field: word}).completed] == [ARGUMENTS]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({}, "stream_ended"),
        ({"finish_reason": None}, "stream_ended"),
        ({"finish_reason": "length"}, "truncated"),
        ({"stop_reason": "max_tokens"}, "unexpected_finish_reason"),
        ({"finish_reason": "MAX_TOKENS"}, "unexpected_finish_reason"),
        ({"finish_reason": "MALFORMED_FUNCTION_CALL"}, "unexpected_finish_reason"),
        ({"done_reason": "load"}, "unexpected_finish_reason"),
        ({"finish_reason": "stop", "stop_reason": "max_tokens"}, "unexpected_finish_reason"),
        ({"finish_reason": 7}, "malformed_event"),
    ],
)
def test_any_other_word_refuses_them(told: dict[str, object], reason: str) -> None:
    """Also none at all: the last chunk of a stream that was cut looks the same."""
    assert reasons(published(**told)) == [reason]


def test_what_langchain_parsed_from_halves_is_never_read() -> None:
    """`tool_calls` of one chunk is a guess at a whole; a cut stream must not complete by it."""
    half = chunk([{**HEAD, "args": '{"order_id":"ORD'}])
    assert half.tool_calls[0]["args"] == {"order_id": "ORD"}
    told = told_by("openai-chat", [half, chunk(response_metadata={"finish_reason": "stop"})])
    assert reasons(told) == ["invalid_json"]


def test_the_id_of_a_run_is_no_id_of_the_response() -> None:
    """It differs with every retry of the same request."""
    run = chunk([{**HEAD, "args": ARGUMENTS}], id="run--0001")
    told = told_by("openai-chat", [run, chunk(response_metadata={"finish_reason": "stop"})])
    assert [one.key.response_id for one in told.completed] == ["~"]
    own = chunk([{**HEAD, "args": ARGUMENTS}], id="chatcmpl-0001")
    told = told_by("openai-chat", [own, chunk(response_metadata={"finish_reason": "stop"})])
    assert [one.key.response_id for one in told.completed] == ["chatcmpl-0001"]


def test_counters_of_other_providers_are_left_out() -> None:
    """They are increments that LangChain adds up; the last one alone would be wrong."""
    usage = {"input_tokens": 0, "output_tokens": 18, "total_tokens": 18}
    metadata = {"model_provider": "anthropic", "stop_reason": "tool_use"}
    assert told_by("openai-chat", [chunk(response_metadata=metadata, usage_metadata=usage)]) == (
        Told([], [], None, None)
    )


def test_a_whole_message_is_no_chunk() -> None:
    """Its calls are parsed values already; the fault names the type only."""
    message = module("langchain_core.messages").AIMessage(content="sk-canary-0003")
    told = told_by("openai-chat", [message])
    assert [fault.code for fault in told.faults] == ["chunk_refused"]
    assert "AIMessage" in str(told.faults[0])
    assert "canary" not in str(told.faults[0])
