"""Messages of content blocks: what proves a call, what ends it, and what refuses it."""

import pytest

from processor.core.events import ArgumentsDone, CallAborted, ResponseEnded, ResponseOutcome
from processor.dialects.stream import DialectError
from tests.golden.replay import stream
from tests.unit.dialects.messages import (
    ANTHROPIC,
    BEDROCK,
    WIRES,
    MessageWire,
    call_of,
    message,
    said,
)
from tests.unit.dialects.verdicts import events, verdicts
from tests.unit.dialects.wires import Chunk

A = '{"a":1}'
LATE = "fragment_after_end"

both = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire.dialect))


def bodies(wire: MessageWire, *chunks: Chunk) -> list[str]:
    """The names of the events behind the last fragment of a message's first chunks."""
    of = stream(wire.dialect)
    told = [e.event.body for chunk in (wire.start(), *chunks) for e in of.observe(chunk)]
    names = [type(body).__name__ for body in told]
    return [name for name in names if name not in ("CallStarted", "ArgumentsDelta")]


@both
@pytest.mark.parametrize("reason", ["tool_use", "end_turn", "stop_sequence"])
def test_a_success_completes_what_has_stopped(wire: MessageWire, reason: str) -> None:
    """A call that has not stopped by then never ended."""
    chunks = [*call_of(wire, "call_A", 0, A), *call_of(wire, "call_B", 1, A)[:-1]]
    assert said(wire, *chunks, reason=reason) == {"call_A": A, "call_B": "stream_ended"}


@both
def test_a_stop_alone_proves_nothing(wire: MessageWire) -> None:
    """Cut blocks are stopped too: only the stop reason lets a call go, early tools included."""
    call = call_of(wire, "call_A", 0, A)
    assert bodies(wire, *call) == []
    assert bodies(wire, *call, wire.reason("tool_use")) == ["ArgumentsDone"]
    assert bodies(wire, *call, wire.reason("max_tokens")) == []
    assert bodies(wire, *call, wire.reason("tool_use"), wire.reason("tool_use")) == [
        "ArgumentsDone"
    ]
    assert bodies(wire, *call, wire.stop(0), wire.reason("tool_use")) == ["ArgumentsDone"]
    assert bodies(wire, *call, wire.reason("max_tokens"), wire.reason("tool_use")) == []


@both
@pytest.mark.parametrize("fragments", [(), ("",), ("", "")])
def test_a_call_without_arguments_has_an_empty_object(
    wire: MessageWire, fragments: tuple[str, ...]
) -> None:
    """Said once, as the call's whole text, when it is proven."""
    chunks = message(wire, *call_of(wire, "call_A", 0, *fragments))
    assert verdicts(wire.dialect, chunks) == {"call_A": "{}"}
    copies = [e.event.body for e in events(wire.dialect, chunks)]
    assert copies[1:] == [ArgumentsDone(b"{}"), ResponseEnded("completed")]


@both
@pytest.mark.parametrize("text", [" ", "\n", "null", '""'])
def test_only_no_text_at_all_means_no_arguments(wire: MessageWire, text: str) -> None:
    """What is there is judged as it is."""
    (verdict,) = said(wire, *call_of(wire, "call_A", 0, text)).values()
    assert verdict in ("empty_arguments", "not_an_object")


@pytest.mark.parametrize(
    ("wire", "word", "reason"),
    [
        (ANTHROPIC, "max_tokens", "truncated"),
        (ANTHROPIC, "model_context_window_exceeded", "truncated"),
        (ANTHROPIC, "refusal", "refusal"),
        (ANTHROPIC, "pause_turn", "unexpected_finish_reason"),
        (ANTHROPIC, "compaction", "unexpected_finish_reason"),
        (BEDROCK, "max_tokens", "truncated"),
        (BEDROCK, "model_context_window_exceeded", "truncated"),
        (BEDROCK, "guardrail_intervened", "content_filter"),
        (BEDROCK, "content_filtered", "content_filter"),
        (BEDROCK, "malformed_tool_use", "provider_flagged"),
        (BEDROCK, "malformed_model_output", "provider_flagged"),
        (BEDROCK, "pause_turn", "unexpected_finish_reason"),
    ],
)
def test_any_other_reason_refuses_every_call_of_the_message(
    wire: MessageWire, word: str, reason: str
) -> None:
    """Whole blocks too: no field says which one was cut."""
    calls = [*call_of(wire, "call_A", 0, A), *call_of(wire, "call_B", 1, A)]
    assert said(wire, *calls, reason=word) == {"call_A": reason, "call_B": reason}


@both
def test_a_later_failure_revokes_a_success_and_never_the_reverse(wire: MessageWire) -> None:
    """Two different reasons contradict each other: closed. The first failure names itself."""
    call = call_of(wire, "call_A", 0, A)
    success, failure = wire.reason("tool_use"), wire.reason("max_tokens")
    assert said(wire, *call, success, failure) == {"call_A": "truncated"}
    assert said(wire, *call, failure, success) == {"call_A": "truncated"}
    assert said(wire, *call, failure, wire.reason("other")) == {"call_A": "truncated"}


@both
def test_no_reason_is_no_end(wire: MessageWire) -> None:
    """Neither the last event nor the end of input completes a call."""
    call = call_of(wire, "call_A", 0, A)
    for chunks in ([wire.start(), *call], [wire.start(), *call, wire.last()]):
        assert verdicts(wire.dialect, chunks) == {"call_A": "stream_ended"}


@pytest.mark.parametrize(
    ("wire", "is_cancelled", "outcome"),
    [
        (ANTHROPIC, False, "stream_ended"),
        (ANTHROPIC, True, "cancelled"),
        (BEDROCK, False, "completed"),
        (BEDROCK, True, "completed"),
    ],
)
def test_anthropic_needs_the_messages_own_end_and_bedrock_has_none(
    wire: MessageWire, is_cancelled: bool, outcome: ResponseOutcome
) -> None:
    """A success lets early tools go; the others wait for `message_stop`, or for Bedrock's input."""
    of = stream(wire.dialect)
    for chunk in message(wire, *call_of(wire, "call_A", 0, A))[:-1]:
        of.observe(chunk)
    (told,) = of.end(cancelled=is_cancelled)
    assert told.event.body == ResponseEnded(outcome)


@both
def test_a_failure_counts_without_the_messages_own_end(wire: MessageWire) -> None:
    """Its word is told; a cancelled reader before any reason is its own outcome."""
    start = [wire.start(), *call_of(wire, "call_A", 0, A)]
    last = events(wire.dialect, [*start, wire.reason("max_tokens")])[-1]
    assert last.event.body == ResponseEnded("truncated", "max_tokens")
    of = stream(wire.dialect)
    for chunk in start:
        of.observe(chunk)
    assert of.end(cancelled=True)[-1].event.body == ResponseEnded("cancelled")


@both
def test_the_last_event_ends_the_response_and_what_follows_is_counted(wire: MessageWire) -> None:
    """Usage that came with it is kept."""
    of = stream(wire.dialect)
    for chunk in message(wire, *call_of(wire, "call_A", 0, A)):
        of.observe(chunk)
    assert of.ended
    assert of.observe(wire.fragment(0, "x")) == []
    assert of.ignored_count == 1
    assert of.usage is not None
    assert (of.usage.input_tokens, of.usage.output_tokens) == (61, 18)


def test_bedrock_usage_before_the_reason_ends_nothing() -> None:
    """Swapped events lose neither the usage nor the call."""
    call = call_of(BEDROCK, "call_A", 0, A)
    chunks = [BEDROCK.start(), *call, BEDROCK.last(), BEDROCK.reason("tool_use")]
    assert verdicts("bedrock-converse", chunks) == {"call_A": A}


@both
def test_a_fragment_after_the_stop_is_too_late_and_an_empty_one_is_nothing(
    wire: MessageWire,
) -> None:
    """Before the stop reason and after it; only characters count."""
    call = call_of(wire, "call_A", 0, A)
    assert said(wire, *call, wire.fragment(0, " ")) == {"call_A": LATE}
    assert said(wire, *call, wire.reason("tool_use"), wire.fragment(0, " ")) == {"call_A": LATE}
    assert said(wire, *call, wire.fragment(0, ""), wire.stop(0)) == {"call_A": A}


@both
def test_a_call_that_starts_after_the_stop_reason_is_refused(wire: MessageWire) -> None:
    """The message was over, whatever it ended by."""
    chunks = [wire.reason("tool_use"), *call_of(wire, "call_A", 0, A)]
    assert said(wire, *chunks) == {"call_A": LATE}


@both
def test_an_event_that_cannot_be_read_refuses_the_whole_response(wire: MessageWire) -> None:
    """Without numbers nobody knows what was in it, for calls that begin later neither."""
    of = stream(wire.dialect)
    told = of.observe(wire.start())
    for chunk in call_of(wire, "call_A", 0, A):
        told += of.observe(chunk)
    told += of.observe_bytes(b'{"type": oops}\n')
    for chunk in [*call_of(wire, "call_B", 1, A), wire.reason("tool_use"), wire.last()]:
        told += of.observe(chunk)
    aborted = [e.key.call_id for e in told if e.event.body == CallAborted("malformed_event")]
    assert aborted == ["call_A", "call_B"]
    assert not any(isinstance(e.event.body, ArgumentsDone) for e in told)


def test_anthropic_events_of_another_shape_refuse_the_whole_response() -> None:
    """Each lacks what its type demands."""
    call = call_of(ANTHROPIC, "call_A", 0, A)
    bad: list[Chunk] = [
        {"index": 0},
        {"type": "message_start"},
        {"type": "content_block_start", "index": 1},
        {"type": "content_block_start", "index": 1, "content_block": {}},
        {"type": "content_block_delta", "index": 0, "delta": {}},
        {"type": "content_block_delta", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": 7}},
    ]
    for chunk in bad:
        assert said(ANTHROPIC, *call, chunk) == {"call_A": "malformed_event"}, chunk


def test_bedrock_events_of_another_shape_refuse_the_whole_response() -> None:
    """Each lacks what its name demands."""
    call = call_of(BEDROCK, "call_A", 0, A)
    bad: list[Chunk] = [
        {"event": "contentBlockDelta"},
        {"event": 7},
        {"messageStop": {}},
        {"contentBlockDelta": {"contentBlockIndex": 0}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": []}},
        {"metadata": {"usage": 7}},
    ]
    for chunk in bad:
        assert said(BEDROCK, *call, chunk) == {"call_A": "malformed_event"}, chunk


@pytest.mark.parametrize(
    ("wire", "error", "word"),
    [
        (ANTHROPIC, {"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error"),
        (ANTHROPIC, {"type": "error", "error": {"type": "not a word"}}, None),
        (ANTHROPIC, {"type": "error"}, None),
        (ANTHROPIC, {"error": {"message": "upstream"}}, None),
        (BEDROCK, {"exception": "throttlingException", "payload": {}}, "throttlingException"),
        (BEDROCK, {"modelStreamErrorException": {"message": "x"}}, "modelStreamErrorException"),
        (BEDROCK, {"exception": "brandNew"}, "brandNew"),
    ],
)
def test_an_error_refuses_also_after_a_success_and_ends_the_response(
    wire: MessageWire, error: Chunk, word: str | None
) -> None:
    """What follows it is not believed; its text is passed on only if it is a word."""
    call = call_of(wire, "call_A", 0, A)
    chunks = [wire.start(), *call, wire.reason("tool_use"), error, wire.last()]
    assert verdicts(wire.dialect, chunks) == {"call_A": "stream_error"}
    assert events(wire.dialect, chunks)[-1].event.body == ResponseEnded("failed", word)


def test_a_fallback_refuses_the_calls_before_it_and_spares_those_after() -> None:
    """They are of a model that declined, stopped or not."""
    fallback = [ANTHROPIC.block(2, "fallback"), ANTHROPIC.stop(2)]
    before = [*call_of(ANTHROPIC, "call_A", 0, A), ANTHROPIC.head(1, "call_B")]
    found = said(ANTHROPIC, *before, *fallback, *call_of(ANTHROPIC, "call_C", 3, A))
    assert found == {"call_A": "refusal", "call_B": "refusal", "call_C": A}


def test_an_anthropic_block_that_only_stops_refuses_the_whole_response() -> None:
    """Its start was lost; it may have been a fallback, which refuses what was before it."""
    calls = call_of(ANTHROPIC, "call_A", 0, A), call_of(ANTHROPIC, "call_B", 3, A)
    found = said(ANTHROPIC, *calls[0], ANTHROPIC.stop(2), *calls[1])
    assert found == {"call_A": "missing_start", "call_B": "missing_start"}
    text = ANTHROPIC.text(2)[1:]
    assert said(ANTHROPIC, *calls[0], *text) == {"call_A": A}


@both
def test_unknown_events_are_skipped(wire: MessageWire) -> None:
    """Both vendors add events."""
    unknown: list[Chunk] = [{"type": "future_event"}, {"type": "ping"}]
    if wire is BEDROCK:
        unknown = [{"SDK_UNKNOWN_MEMBER": {"name": "x"}}, {"event": "future", "payload": {}}]
    chunks = [c for piece in call_of(wire, "call_A", 0, A) for c in (*unknown, piece)]
    assert said(wire, *chunks) == {"call_A": A}


@both
def test_an_end_mark_of_another_dialect_is_an_end_of_input(wire: MessageWire) -> None:
    """Some servers send it; it proves nothing."""
    of = stream(wire.dialect)
    for chunk in [wire.start(), *call_of(wire, "call_A", 0, A)]:
        of.observe(chunk)
    (told,) = of.observe_bytes(b"data: [DONE]\n\n")
    assert told.event.body == ResponseEnded("stream_ended")


def test_counters_that_come_again_replace_and_absent_ones_stay() -> None:
    """Totals, not increments; zero is kept."""
    of = stream("anthropic")
    for chunk in message(ANTHROPIC, ANTHROPIC.reason("tool_use")):
        of.observe(chunk)
    assert of.usage is not None
    assert of.usage.provider == {"input_tokens": 61, "output_tokens": 18}
    assert (of.usage.total_tokens, of.usage.model) == (None, "claude-test")


@pytest.mark.parametrize(
    ("dialect", "chunk", "word"),
    [
        ("anthropic", {"type": "message", "content": []}, "whole message"),
        ("anthropic", {"type": "error", "error": {}, "sequence_number": 0}, "numbered"),
        ("anthropic", {"type": []}, "no type"),
        ("anthropic", {"messageStart": {}}, "looks like bedrock-converse"),
        ("bedrock-converse", {"output": {}, "stopReason": "tool_use"}, "whole response"),
        ("bedrock-converse", {"chunk": {"bytes": "e30="}}, "another vendor's event"),
        ("bedrock-converse", {"event": "future", "payload": {}}, "none of a converse stream"),
        ("bedrock-converse", {"event": []}, "cannot be read"),
        ("bedrock-converse", {"type": "message_start"}, "looks like anthropic"),
    ],
)
def test_a_stream_of_another_kind_is_refused_by_its_first_event(
    dialect: str, chunk: Chunk, word: str
) -> None:
    """The text says what it is, and quotes nothing."""
    with pytest.raises(DialectError, match=word):
        stream(dialect).observe(chunk)


@both
def test_many_blocks_and_repeated_reasons_cost_one_look_each(wire: MessageWire) -> None:
    """A proven call is not looked at again, whatever the number of reasons."""
    of = stream(wire.dialect)
    of.observe(wire.start())
    for index in range(1_000):
        for chunk in call_of(wire, f"call_{index}", index, A):
            of.observe(chunk)
    counts = [len(of.observe(wire.reason("tool_use"))) for _ in range(1_000)]
    assert counts == [1_000] + [0] * 999
