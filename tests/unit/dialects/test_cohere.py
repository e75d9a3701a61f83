"""Cohere v2: whose an event is, what ends a call, and what refuses it."""

import pytest

from processor.core.events import ArgumentsDone, CallStarted, ResponseEnded
from tests.golden.replay import stream
from tests.unit.dialects.cohere_events import (
    BEGIN,
    call_event,
    cohere_call,
    delta,
    end,
    message_end,
    start,
)
from tests.unit.dialects.verdicts import events, verdicts
from tests.unit.dialects.wires import Chunk, sse

A, B = '{"a":1}', '{"b":2}'
CALL = cohere_call("call_A", 0, A)


def of(*chunks: Chunk, finish: str = "TOOL_CALL") -> dict[str, str]:
    """The verdicts of a response with these events between its start and its end."""
    return verdicts("cohere-v2", [BEGIN, *chunks, message_end(finish)])


def test_the_index_leads_to_the_id_that_the_start_told() -> None:
    """Interleaved calls keep their own fragments, and their place on the wire."""
    chunks = [
        start(3, "call_A"),
        start(7, "call_B"),
        delta(7, B[:3]),
        delta(3, A[:2]),
        delta(7, B[3:]),
        end(7),
        delta(3, A[2:]),
        end(3),
    ]
    assert of(*chunks) == {"call_A": A, "call_B": B}
    bodies = [event.event.body for event in events("cohere-v2", [BEGIN, *chunks])]
    started = [body for body in bodies if isinstance(body, CallStarted)]
    assert [(body.call_id, body.output_index) for body in started] == [("call_A", 3), ("call_B", 7)]


def test_a_start_may_have_the_first_text() -> None:
    """It is the first fragment."""
    assert of(start(0, "call_A", "x", A[:3]), delta(0, A[3:]), end(0)) == {"call_A": A}


def test_a_repeated_start_without_text_is_nothing() -> None:
    """The same words once more; with a text it could be a fragment or a repeat of one."""
    assert of(*CALL[:-1], start(0, "call_A"), end(0)) == {"call_A": A}
    again = start(0, "call_A", "x", A)
    assert of(again, again, end(0)) == {"call_A": "identity_conflict"}


@pytest.mark.parametrize("at", [1, 2, 3])
def test_another_start_on_an_index_refuses_both(at: int) -> None:
    """Before, between and after the fragments: whose the others are is not known."""
    chunks = [*CALL[:at], start(0, "call_B"), *CALL[at:]]
    assert of(*chunks) == {"call_A": "identity_conflict", "call_B": "identity_conflict"}


def test_one_id_for_two_calls_refuses_it() -> None:
    """On another index it is not the same call."""
    assert of(*CALL, *cohere_call("call_A", 1, B)) == {"call_A": "identity_conflict"}


def test_another_tool_under_the_same_id_is_a_conflict() -> None:
    """A call is one tool's."""
    assert of(start(0, "call_A", "y"), *CALL) == {"call_A": "identity_conflict"}


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (start(0, None), "missing_call_id"),
        (start(0, "null"), "missing_call_id"),
        (start(0, "call_A", None), "tool_name_missing"),
        (start(0, "call_A", "x", {"a": 1}), "arguments_not_text"),
        (
            call_event("start", 0, {"id": "call_A", "type": "custom", "function": {"name": "x"}}),
            "unsupported_call_type",
        ),
    ],
)
def test_a_start_that_names_no_call_of_a_function_is_refused(head: Chunk, reason: str) -> None:
    """Nothing is made up, and the call is seen."""
    assert list(of(head, delta(0, A), end(0)).values()) == [reason]


def test_a_call_whose_start_was_lost_is_refused_and_seen() -> None:
    """Its fragments and its end are proof that there was one; the other call is not concerned."""
    assert of(*CALL, delta(1, B), end(1)) == {"call_A": A, "~call:1": "missing_call_id"}
    assert of(*CALL, end(1)) == {"call_A": A, "~call:1": "missing_call_id"}


def test_a_start_after_the_first_fragment_is_too_late() -> None:
    """What came before may have been more than is here."""
    assert of(delta(0, A), start(0, "call_A"), end(0)) == {"call_A": "missing_start"}


def test_without_its_start_a_response_completes_no_call() -> None:
    """Calls may have been lost with it."""
    assert verdicts("cohere-v2", [*CALL, message_end()]) == {"call_A": "missing_start"}
    assert verdicts("cohere-v2", [CALL[0], BEGIN, *CALL[1:], message_end()]) == {
        "call_A": "missing_start"
    }


@pytest.mark.parametrize("event", [start(None, "call_B"), delta(None, "x"), end(None)])
def test_an_event_without_an_index_may_be_of_any_call(event: Chunk) -> None:
    """All are refused, the one that only it named too."""
    assert set(of(CALL[0], event, *CALL[1:]).values()) == {"malformed_event"}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (call_event("delta", 0, {"id": "call_B", "function": {}}), "identity_conflict"),
        (delta(0, "", name="y"), "tool_name_conflict"),
        (delta(0, ["x"]), "arguments_not_text"),
        (call_event("delta", 0), "malformed_event"),
        (call_event("pause", 0), "malformed_event"),
    ],
)
def test_a_fragment_that_contradicts_its_start_refuses_the_call(more: Chunk, reason: str) -> None:
    """Of an id, a name, a type, a form."""
    assert of(*CALL[:-1], more, end(0)) == {"call_A": reason}


def test_a_fragment_with_anothers_id_refuses_both() -> None:
    """The index says one call, the id another."""
    wrong = call_event("delta", 0, {"id": "call_B", "function": {"arguments": "x"}})
    found = of(start(0, "call_A"), start(1, "call_B"), wrong, end(0), end(1))
    assert found == {"call_A": "identity_conflict", "call_B": "identity_conflict"}


def test_the_end_of_a_call_is_its_own() -> None:
    """It is told at once, so a tool without effects need not wait for the response."""
    bodies = [event.event.body for event in events("cohere-v2", [BEGIN, *CALL])]
    assert bodies[-2:] == [ArgumentsDone(), ResponseEnded("stream_ended")]


def test_a_call_without_its_end_is_not_proven() -> None:
    """Not even by a response that ends well."""
    assert of(*CALL[:-1]) == {"call_A": "stream_ended"}


def test_a_fragment_after_the_end_is_too_late() -> None:
    """The call was complete without it."""
    assert of(*CALL, delta(0, " ")) == {"call_A": "fragment_after_end"}


def test_a_call_without_any_text_has_no_arguments() -> None:
    """Nothing on the wire says an empty object."""
    assert of(start(0, "call_A"), end(0)) == {"call_A": "empty_arguments"}
    assert of(start(0, "call_A", "x", None), delta(0, None), end(0)) == {
        "call_A": "empty_arguments"
    }


@pytest.mark.parametrize("finish", ["TOOL_CALL", "COMPLETE", "STOP_SEQUENCE"])
def test_a_response_that_ends_well_releases_its_calls(finish: str) -> None:
    """Three words say so."""
    assert of(*CALL, finish=finish) == {"call_A": A}


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("MAX_TOKENS", "truncated"),
        ("ERROR", "response_failed"),
        ("TIMEOUT", "response_failed"),
        ("ERROR_TOXIC", "unexpected_finish_reason"),
        ("", "unexpected_finish_reason"),
    ],
)
def test_any_other_end_refuses_a_call_that_had_ended(finish: str, reason: str) -> None:
    """Whether a cut call gets its end is not known."""
    assert of(*CALL, finish=finish) == {"call_A": reason}


def test_an_error_beside_a_good_word_is_an_error() -> None:
    """The two contradict each other."""
    found = verdicts("cohere-v2", [BEGIN, *CALL, message_end(error="synthetic")])
    assert found == {"call_A": "response_failed"}


@pytest.mark.parametrize("error", [{"type": "error"}, {"error": "synthetic"}])
def test_an_error_event_ends_the_response(error: Chunk) -> None:
    """What follows is not believed."""
    assert of(*CALL, error) == {"call_A": "stream_error"}


def test_the_end_mark_and_the_end_of_input_prove_nothing() -> None:
    """Only `message-end` does."""
    response = stream("cohere-v2")
    told = response.observe_bytes(sse([BEGIN, *CALL]) + b"data: [DONE]\n\n")
    assert told[-1].event.body == ResponseEnded("stream_ended")
    assert response.ended


def test_a_cancelled_reader_is_told_so() -> None:
    """The calls end as cancelled, unless the response has ended."""
    response = stream("cohere-v2")
    for chunk in (BEGIN, *CALL):
        response.observe(chunk)
    assert response.end(cancelled=True)[-1].event.body == ResponseEnded("cancelled")


@pytest.mark.parametrize("event", [{"kind": "x"}, {"type": 1}])
def test_an_event_that_cannot_be_read_refuses_the_whole_response(event: Chunk) -> None:
    """Calls that begin later too: nobody knows what it held."""
    found = of(*CALL, event, *cohere_call("call_B", 1, B))
    assert found == {"call_A": "malformed_event", "call_B": "malformed_event"}


def test_unknown_events_of_other_kinds_mean_nothing() -> None:
    """Plans, contents, citations, and what is still to come."""
    others: list[Chunk] = [
        {"type": "tool-plan-delta", "delta": {}},
        {"type": "debug", "index": "x"},
    ]
    assert of(*others, *CALL, *others) == {"call_A": A}


def test_another_response_id_refuses_what_is_open() -> None:
    """Two responses in one stream are not separated by guessing."""
    other: Chunk = {**BEGIN, "id": "cohere-0002"}
    assert of(*CALL, other) == {"call_A": "response_id_changed"}
    assert of(*CALL, BEGIN) == {"call_A": A}


def test_counters_written_as_fractions_are_whole_numbers() -> None:
    """The vendor types them so; what is no whole number is no counter."""
    response = stream("cohere-v2")
    usage = '{"tokens":{"input_tokens":61.0,"output_tokens":18.5},"cached_tokens":0.0}'
    wire = sse([BEGIN, message_end("COMPLETE", usage="HERE")])
    response.observe_bytes(wire.replace(b'"HERE"', usage.encode()))
    found = response.usage
    assert found is not None
    assert found.provider == {"tokens.input_tokens": 61, "cached_tokens": 0}
    assert (found.input_tokens, found.output_tokens, found.cached_input_tokens) == (61, None, 0)


def test_billed_units_stand_in_for_tokens() -> None:
    """The first that is present wins."""
    response = stream("cohere-v2")
    usage = {"billed_units": {"input_tokens": 5, "search_units": float("inf")}}
    for chunk in (BEGIN, message_end("COMPLETE", usage=usage)):
        response.observe(chunk)
    found = response.usage
    assert found is not None
    assert (found.input_tokens, found.output_tokens) == (5, None)
