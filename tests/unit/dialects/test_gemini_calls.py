"""Gemini: who a call is, what ends it, and what refuses it."""

from typing import cast

import pytest

from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    CallStarted,
    ResponseEnded,
    ResponseOutcome,
)
from processor.dialects.stream import DialectError
from tests.golden.replay import events_of, stream
from tests.unit.dialects.value_wires import (
    CLOSE,
    gemini,
    head,
    leaf,
    leaves,
    whole,
)
from tests.unit.dialects.verdicts import events, verdicts
from tests.unit.dialects.wires import Chunk, sse

NAME = "gemini"
A = '{"a":1}'
ARGS: Chunk = {"a": 1}
CALL = gemini(whole(args=ARGS))
STOP = gemini(finish="STOP")
CITY = leaves(leaf("$.city", "Oslo"))
OSLO = '{"city":"Oslo"}'


def of(*chunks: Chunk) -> dict[str, str]:
    """Verdicts of a stream of these chunks."""
    return verdicts(NAME, chunks)


# --- who a call is -------------------------------------------------------------------------------


def test_a_whole_call_starts_and_has_its_text_and_ends_only_with_its_candidate() -> None:
    """A part is no proof: the candidate may still end badly."""
    assert [type(e.event.body) for e in events(NAME, [CALL])] == [
        CallStarted,
        ArgumentsDelta,
        ResponseEnded,
    ]
    bodies = [e.event.body for e in events(NAME, [CALL, STOP])]
    assert bodies[1:] == [ArgumentsDelta(A.encode()), ArgumentsDone(), ResponseEnded("completed")]


def test_without_ids_a_call_is_named_by_candidate_and_ordinal() -> None:
    """Made up, the same each time, and beginning with a tilde."""
    part = whole(None, args=ARGS)
    chunks = [gemini(part, whole("call_B"), part), gemini(part, candidate=1)]
    ends = [STOP, gemini(finish="STOP", candidate=1)]
    assert of(*chunks, *ends) == {
        "~call:0:0": A,
        "call_B": "{}",
        "~call:0:2": A,
        "~call:1:0": A,
    }
    starts = [e.event.body for e in events(NAME, chunks) if isinstance(e.event.body, CallStarted)]
    assert [start.output_index for start in starts] == [0, 1, 2, 0]


@pytest.mark.parametrize("more", [{}, {"args": {}}, {"args": None}])
def test_no_arguments_are_an_empty_object(more: Chunk) -> None:
    """Absent, null or empty: the wire has no other way to say it."""
    assert of(gemini({**whole(), **more}), STOP) == {"call_A": "{}"}


@pytest.mark.parametrize("args", [[], [1], "x", "", 0, 1, True])
def test_arguments_of_another_type_are_no_object(args: object) -> None:
    """Not even a text that would parse as one."""
    assert of(gemini(whole(args=args)), STOP) == {"call_A": "not_an_object"}


def test_numbers_keep_the_digits_of_the_wire() -> None:
    """Nothing is rounded on the way through the adapter."""
    text = '{"n":1.10,"e":1E5,"big":123456789012345678901234567890}'
    wire = '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":%s}}]},'
    wire = wire % text + '"finishReason":"STOP"}]}\n'
    told = [e.event.body for e in events_of(NAME, wire.encode())]
    assert told[1] == ArgumentsDelta(text.encode())


@pytest.mark.parametrize(
    ("text", "reason"), [('"\\ud83d"', "invalid_utf8"), ('"\\u0000"', "nul_character")]
)
def test_characters_that_are_none_refuse_the_call(text: str, reason: str) -> None:
    """Half a character and NUL go through the same checks as a text of the wire."""
    value = "\ud83d" if reason == "invalid_utf8" else "\0"
    assert of(gemini(whole(args={"a": value})), STOP) == {"call_A": reason}
    wire = '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":%s}}}]}}]}'
    bodies = [e.event.body for e in events_of(NAME, (wire % text).encode())]
    assert isinstance(bodies[0], CallStarted)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"a": 10**5_000}, "number_out_of_range"),
        ({"a": "x" * 800_000}, "too_large"),
        ({"a": b""}, "malformed_event"),
    ],
)
def test_a_value_without_a_text_that_may_be_written_refuses_the_call(
    args: Chunk, reason: str
) -> None:
    """A program's own objects may hold anything; a record has a bound."""
    assert of(gemini(whole(args=args)), STOP) == {"call_A": reason}


def test_an_id_that_comes_again_with_the_same_call_is_a_repeat() -> None:
    """A relay that sends a chunk twice adds no call, also after the end."""
    assert of(CALL, CALL, STOP, CALL) == {"call_A": A}


@pytest.mark.parametrize(
    "other", [whole(args={"a": 2}), whole(name="g", args=ARGS), whole(), whole(None), head()]
)
def test_an_id_that_comes_again_with_anything_else_is_a_conflict(other: Chunk) -> None:
    """Nobody knows which of the two was meant. Without the id it is another call."""
    expected = "identity_conflict" if "id" in other else A
    assert of(CALL, gemini(other), STOP)["call_A"] == expected


def test_one_id_in_two_candidates_is_a_conflict() -> None:
    """The candidates are answers of their own."""
    chunks = [CALL, gemini(whole(args=ARGS), candidate=1), STOP]
    assert of(*chunks) == {"call_A": "identity_conflict"}


def test_a_call_without_a_tool_is_refused_and_seen() -> None:
    """It must not vanish."""
    assert of(gemini(whole(name=None, args=ARGS)), STOP) == {"call_A": "tool_name_missing"}
    assert of(gemini(whole(None, None, args=ARGS)), STOP) == {"~call:0:0": "tool_name_missing"}


def test_an_absent_candidate_index_is_zero() -> None:
    """The default value of a field is left out on this wire."""
    assert of(gemini(whole(args=ARGS), candidate=None), STOP) == {"call_A": A}


# --- what ends it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("MAX_TOKENS", "truncated"),
        ("CONTINUATION", "truncated"),
        ("SAFETY", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "provider_flagged"),
        ("UNEXPECTED_TOOL_CALL", "provider_flagged"),
        ("OTHER", "unexpected_finish_reason"),
        ("SOMETHING_NEW", "unexpected_finish_reason"),
        ("FINISH_REASON_UNSPECIFIED", "stream_ended"),
        ("", "stream_ended"),
    ],
)
def test_any_other_end_refuses_a_call_that_came_whole(finish: str, reason: str) -> None:
    """Only STOP is a clean end; the default value of the field is none at all."""
    assert of(CALL, gemini(finish=finish)) == {"call_A": reason}


def test_each_candidate_ends_by_itself() -> None:
    """A good end of one proves nothing for the other."""
    other = gemini(whole("call_B", args=ARGS), candidate=1)
    found = of(CALL, other, STOP, gemini(finish="SAFETY", candidate=1))
    assert found == {"call_A": A, "call_B": "content_filter"}
    assert of(CALL, other, STOP) == {"call_A": A, "call_B": "stream_ended"}


def test_a_later_failure_revokes_a_success_and_never_the_reverse() -> None:
    """Two different ends contradict each other: closed."""
    bad = gemini(finish="MAX_TOKENS")
    assert of(CALL, STOP, bad) == of(CALL, bad, STOP) == {"call_A": "truncated"}
    assert of(CALL, STOP, STOP) == {"call_A": A}


def test_a_call_after_the_end_is_too_late() -> None:
    """What had ended stands."""
    found = of(CALL, STOP, gemini(whole("call_B", args=ARGS)))
    assert found == {"call_A": A, "call_B": "fragment_after_end"}


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        ({"error": {"code": 503, "status": "UNAVAILABLE"}}, "stream_error"),
        ({"error": "down"}, "stream_error"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "content_filter"),
        ({"promptFeedback": {"blockReason": "BLOCKED_REASON_UNSPECIFIED"}}, A),
        ({"promptFeedback": {}}, A),
        ({"candidates": "none"}, "malformed_event"),
        (gemini({"willContinue": "yes"}), "malformed_event"),
        ({"candidates": [{"content": {"parts": [{"functionCall": "x"}]}}]}, "malformed_event"),
        ({"candidates": [], "responseId": "gemini-resp-0002"}, "response_id_changed"),
    ],
)
def test_what_else_refuses_also_after_a_clean_end(chunk: Chunk, reason: str) -> None:
    """Errors, blocks, another response, and what cannot be read."""
    assert of(CALL, STOP, chunk) == {"call_A": reason}


def test_a_response_id_that_comes_late_refuses_the_calls_before_it() -> None:
    """Their key was made without it."""
    first = gemini(whole(args=ARGS), response_id=None)
    assert of(first, gemini(finish="STOP", response_id=None)) == {"call_A": A}
    assert of(first, STOP) == {"call_A": "response_id_changed"}


def test_more_candidates_than_are_kept_track_of_end_the_response() -> None:
    """No input fills the memory with candidates that say nothing."""
    assert of(CALL, *(gemini(candidate=n) for n in range(1, 1_001))) == {"call_A": "too_many_calls"}


def test_an_end_mark_of_another_wire_is_an_end_of_input() -> None:
    """It proves nothing: only the candidate's own end does."""
    for chunks, outcome in (([CALL], "stream_ended"), ([CALL, STOP], "completed")):
        bodies = [e.event.body for e in events_of(NAME, sse(chunks) + b"data: [DONE]\n\n")]
        assert bodies[-1] == ResponseEnded(cast("ResponseOutcome", outcome))


def test_a_cancelled_reader_is_no_end() -> None:
    """The reader stopped before the candidate's end."""
    response = stream(NAME)
    response.observe(CALL)
    (told,) = response.end(cancelled=True)
    assert told.event.body == ResponseEnded("cancelled")


def test_what_the_service_executes_is_no_call_of_ours() -> None:
    """Parts of other kinds appear nowhere, and take no ordinal."""
    kinds = ("executableCode", "codeExecutionResult", "toolCall", "functionResponse", "text")
    parts: list[Chunk] = [{kind: {"name": "f", "id": kind}} for kind in kinds]
    chunk: Chunk = {"candidates": [{"content": {"parts": parts}}]}
    chunks = [chunk, gemini(whole(None, args=ARGS), response_id=None)]
    assert of(*chunks, gemini(finish="STOP", response_id=None)) == {"~call:0:0": A}


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": []},
        {"error": {"message": "x"}},
        {"message": {"role": "assistant"}, "done": False},
        {"response": {"candidates": []}},
    ],
)
def test_another_wire_is_not_taken_for_this_one(chunk: Chunk) -> None:
    """Wrapped responses of other services are not unwrapped by guessing."""
    with pytest.raises(DialectError):
        stream(NAME).observe(chunk)


# --- calls in parts ------------------------------------------------------------------------------


def test_the_parts_of_a_call_are_tied_to_it_by_order_alone() -> None:
    """A part that does not announce more ends it, empty or with its last leaves."""
    empty = [gemini(head()), gemini(CITY), gemini(CLOSE), STOP]
    last = [gemini(head()), gemini(leaves(leaf("$.city", "Oslo"), goes_on=False)), STOP]
    at_once = [gemini(whole(partialArgs=[leaf("$.city", "Oslo")])), STOP]
    in_one_chunk = [gemini(head(), CITY, CLOSE, finish="STOP")]
    for chunks in (empty, last, at_once, in_one_chunk):
        assert of(*chunks) == {"call_A": OSLO}
    assert of(gemini(head()), gemini(CLOSE), STOP) == {"call_A": "{}"}


def test_parts_that_repeat_name_and_id_are_of_their_call() -> None:
    """Equal ones repeat; another name is a conflict."""
    again = {**whole(), **CITY}
    assert of(gemini(head()), gemini(again), gemini(whole()), STOP) == {"call_A": OSLO}
    other = {**whole(name="g"), **CITY}
    found = of(gemini(head()), gemini(other), gemini(CLOSE), STOP)
    assert found == {"call_A": "tool_name_conflict"}


def test_an_end_under_the_id_of_an_ended_call_means_nothing() -> None:
    """It says whose end it is."""
    chunks = [gemini(head()), gemini(CITY), gemini(CLOSE), gemini(whole(name=None))]
    assert of(*chunks, STOP) == {"call_A": OSLO}


@pytest.mark.parametrize(
    "last", [gemini(CLOSE), gemini(leaves(leaf("$.city", "Oslo"), goes_on=False))]
)
def test_a_second_end_refuses_the_call(last: Chunk) -> None:
    """One of the two may have been another call's."""
    found = of(gemini(head()), last, gemini(CLOSE), STOP)
    assert found == {"call_A": "ambiguous_identity", "~call:0:1": "missing_start"}


@pytest.mark.parametrize("before", [[], [gemini(head()), gemini(CITY), gemini(CLOSE)]])
def test_an_end_without_a_call_refuses_all_of_the_candidate_and_is_seen(
    before: list[Chunk],
) -> None:
    """It may be the one of a call whose parts were lost, or the ended call ended too early."""
    found = of(*before, gemini(CLOSE), gemini(whole("call_B")), STOP)
    assert found.pop("call_B") == found.pop("call_A", "ambiguous_identity") == "ambiguous_identity"
    assert set(found.values()) == {"missing_start"}


def test_a_new_call_before_the_end_of_the_open_one_refuses_all_of_the_candidate() -> None:
    """The end was lost, or the new one is a part of it: leaves have no certain owner from there."""
    second = [gemini(head("call_B")), gemini(CITY), gemini(CLOSE)]
    third = gemini(whole("call_C", args=ARGS))
    found = of(gemini(head()), gemini(CITY), *second, third, STOP)
    assert found == dict.fromkeys(("call_A", "call_B", "call_C"), "ambiguous_identity")


def test_leaves_without_an_open_call_refuse_all_of_the_candidate_and_are_seen() -> None:
    """They may be the late ones of an ended call, or of one whose first part was lost."""
    ended = [gemini(head()), gemini(CLOSE)]
    found = of(*ended, gemini(CITY), gemini(CITY), gemini(whole("call_C")), STOP)
    assert found == {
        "call_A": "ambiguous_identity",
        "~call:0:1": "missing_start",
        "call_C": "ambiguous_identity",
    }


def test_another_candidate_is_not_touched() -> None:
    """Each has an order of its own."""
    other = [gemini(head("call_B"), candidate=1), gemini(CITY, candidate=1)]
    chunks = [gemini(head()), *other, gemini(CITY), gemini(CLOSE, candidate=1), gemini(CLOSE)]
    ends = [STOP, gemini(finish="STOP", candidate=1)]
    assert of(*chunks, *ends) == {"call_A": OSLO, "call_B": OSLO}
    assert of(gemini(CITY), *other, gemini(CLOSE, candidate=1), *ends)["call_B"] == OSLO


def test_leaves_under_the_id_of_an_ended_call_refuse_both() -> None:
    """They say that the order is not one after the other."""
    late = {**CITY, "id": "call_A"}
    chunks = [gemini(head()), gemini(CLOSE), gemini(head("call_B")), gemini(late), gemini(CLOSE)]
    assert set(of(*chunks, STOP).values()) == {"identity_conflict"}


def test_a_call_in_parts_that_comes_again_whole_must_be_the_same() -> None:
    """A copy is compared, whichever form it has."""
    chunks = [gemini(head()), gemini(CITY), gemini(CLOSE)]
    assert of(*chunks, gemini(whole(args={"city": "Oslo"})), STOP) == {"call_A": OSLO}
    found = of(*chunks, gemini(whole(args={"city": "Rome"})), STOP)
    assert found == {"call_A": "identity_conflict"}


def test_both_forms_of_arguments_at_once_are_refused() -> None:
    """Nothing says which of the two is meant."""
    both = {**head(), "args": ARGS}
    assert of(gemini(both), gemini(CLOSE), STOP) == {"call_A": "malformed_event"}
    found = of(gemini(head()), gemini({"args": ARGS}), STOP)
    assert found == {"call_A": "ambiguous_identity", "~call:0:1": "tool_name_missing"}


def test_a_part_after_the_candidates_end_is_too_late() -> None:
    """The call had announced more: it never ended."""
    assert of(gemini(head()), STOP, gemini(CLOSE)) == {"call_A": "fragment_after_end"}
    assert of(gemini(head()), STOP) == {"call_A": "stream_ended"}


def test_what_is_held_of_a_call_in_parts_is_bounded() -> None:
    """A call that never ends cannot fill the memory."""
    response = stream(NAME)
    response.observe(gemini(head()))
    told: list[object] = []
    for n in range(5):
        long = leaves(leaf(f"$.a{n}", "x" * 1_048_576))
        told += [type(e.event.body).__name__ for e in response.observe(gemini(long))]
    assert told == ["CallAborted"]
