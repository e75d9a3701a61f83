"""Responses: the vendor's numbers, heads and ends."""

import pytest

from processor.core.events import ArgumentsDone, CallAborted
from tests.unit.dialects.verdicts import events, verdicts
from tests.unit.dialects.wires import (
    Chunk,
    item,
    item_event,
    lifecycle,
    numbered,
    response,
    responses_call,
    text_event,
)

A = '{"a":1}'
NAME = "openai-responses"
GAP = "provider_sequence_gap"
WHOLE = response(responses_call("call_A", 0, '{"a"', ":1}"))
COMPLETED = lifecycle("completed", "completed")


def of(*inner: Chunk, end: Chunk = COMPLETED) -> dict[str, str]:
    """Verdicts of a numbered response with these events."""
    return verdicts(NAME, numbered([lifecycle("created", "in_progress"), *inner, end]))


def test_each_copy_is_an_event_of_its_own_and_the_first_waits_for_the_items_end() -> None:
    """`arguments.done` alone ends nothing; all copies come with the item's end."""
    chunks = response(responses_call("call_A", 0, A), output=[item("call_A", A, "completed")])
    copies = [e.event.body for e in events(NAME, chunks) if isinstance(e.event.body, ArgumentsDone)]
    assert copies == [ArgumentsDone(A.encode())] * 3
    cut = [*numbered([lifecycle("created", "in_progress"), *responses_call("call_A", 0, A)[:-1]])]
    assert not any(isinstance(e.event.body, ArgumentsDone) for e in events(NAME, cut))


@pytest.mark.parametrize("status", ["incomplete", "in_progress", None])
def test_an_item_that_is_not_completed_is_no_end(status: str | None) -> None:
    """The response may even complete: such a call had no end of its own."""
    call = responses_call("call_A", 0, A)
    call[-1] = item_event("done", 0, item("call_A", A, status))
    assert of(*call) == {"call_A": "stream_ended"}


def test_a_repeated_number_is_dropped_and_a_different_event_under_it_is_a_conflict() -> None:
    """Resumed streams send events again; other content under a number is no repeat."""
    assert verdicts(NAME, [*WHOLE[:4], *WHOLE[:5], *WHOLE[4:]]) == {"call_A": A}
    forged = {**WHOLE[4], "delta": "x"}
    found = verdicts(NAME, [*WHOLE[:5], forged, *WHOLE[5:]])
    assert found == {"call_A": "sequence_conflict"}


def test_a_gap_refuses_what_is_open_and_spares_what_begins_later() -> None:
    """The numbers say where the loss was."""
    chunks = response(responses_call("call_A", 0, A), responses_call("call_B", 1, A))
    lost = [c for c in chunks if c["sequence_number"] != 3]
    assert verdicts(NAME, lost) == {"call_A": GAP, "call_B": A}


def test_a_call_whose_head_was_lost_is_refused_and_seen() -> None:
    """Its end names it; nothing of it is believed."""
    assert verdicts(NAME, [c for c in WHOLE if c["sequence_number"] != 2]) == {"call_A": GAP}
    assert of(*responses_call("call_A", 0, A)[1:]) == {"call_A": "missing_start"}


def test_a_call_that_only_the_response_names_is_refused_and_seen() -> None:
    """A list at the end is a copy, not a stream."""
    end = lifecycle("completed", "completed", [item("call_A", A, "completed")])
    assert of(end=end) == {"call_A": "missing_start"}


@pytest.mark.parametrize("number", [None, "7", -1, True])
def test_without_numbers_nothing_completes(number: object) -> None:
    """A loss could not be seen."""
    chunks = [{**chunk, "sequence_number": number} for chunk in WHOLE]
    assert verdicts(NAME, chunks) == {"call_A": "malformed_event"}


def test_one_number_for_all_events_completes_nothing_and_hides_nothing() -> None:
    """A gateway that stamps zeros everywhere must not make calls vanish."""
    chunks = [{**chunk, "sequence_number": 0} for chunk in WHOLE]
    assert verdicts(NAME, chunks) == {"call_A": "sequence_conflict"}


def test_index_and_item_id_must_lead_to_the_same_call() -> None:
    """A fragment that names two calls refuses both."""
    calls = [responses_call("call_A", 0, A), responses_call("call_B", 1, A)]
    crossed = text_event("delta", 0, "call_B", "x")
    found = of(calls[0][0], calls[1][0], crossed, *calls[0][1:], *calls[1][1:])
    assert found == {"call_A": "identity_conflict", "call_B": "identity_conflict"}


def test_a_fragment_that_names_no_call_refuses_every_open_one() -> None:
    """It may be of any of them."""
    call = responses_call("call_A", 0, A)
    stray: Chunk = {"type": "response.function_call_arguments.delta", "delta": "x"}
    assert of(call[0], stray, *call[1:]) == {"call_A": "ambiguous_identity"}


def test_an_item_that_ends_as_another_call_is_a_conflict() -> None:
    """Call id and tool are set once."""
    call = responses_call("call_A", 0, A)
    other_id = item_event("done", 0, {**item("call_Z", A, "completed"), "id": "fc_call_A"})
    assert of(*call[:-1], other_id) == {"call_A": "identity_conflict"}
    other_tool = item_event("done", 0, item("call_A", A, "completed", name="other"))
    assert of(*call[:-1], other_tool) == {"call_A": "tool_name_conflict"}


def test_a_text_in_the_head_must_be_the_whole_one() -> None:
    """It is a copy: never appended to, never believed as a part."""
    call = responses_call("call_A", 0, A)
    for text, verdict in ((A, A), ('{"a"', "final_copy_mismatch")):
        head = item_event("added", 0, item("call_A", text, "in_progress"))
        assert of(head, *call[1:]) == {"call_A": verdict}


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lifecycle("failed", "failed"), "response_failed"),
        (lifecycle("cancelled", "cancelled"), "response_cancelled"),
        (lifecycle("incomplete", "incomplete"), "truncated"),
        (lifecycle("completed", "incomplete"), "unexpected_finish_reason"),
        ({"type": "error", "code": "server_error"}, "stream_error"),
        ({"type": "error", "error": {"code": "server_error"}}, "stream_error"),
    ],
)
def test_any_other_end_refuses_calls_that_had_ended(end: Chunk, reason: str) -> None:
    """The response's end counts for every tool that waits for it."""
    assert of(*responses_call("call_A", 0, A), end=end) == {"call_A": reason}


def test_what_the_provider_executes_is_no_call_of_ours() -> None:
    """Items of other types appear nowhere, also when they have ids."""
    for kind in ("mcp_call", "web_search_call", "shell_call", "message"):
        of_kind = {**item("call_A", A, "completed"), "type": kind}
        assert of(item_event("added", 0, of_kind), item_event("done", 0, of_kind)) == {}


def test_an_event_that_cannot_be_read_refuses_what_is_open() -> None:
    """Its number was seen, its content was not."""
    call = responses_call("call_A", 0, A)
    bad: Chunk = {"type": "response.output_item.added", "item": "none"}
    found = of(call[0], bad, *call[1:], *responses_call("call_B", 1, A))
    assert found == {"call_A": "malformed_event", "call_B": A}


def test_another_response_in_the_stream_refuses_the_first_ones_calls() -> None:
    """A retry belongs into a stream of its own."""
    call = responses_call("call_A", 0, A)
    other: Chunk = {"type": "response.created", "response": {"id": "resp_0002"}}
    assert of(*call, other) == {"call_A": "response_id_changed"}


def test_late_events_before_the_first_number_refuse_what_is_open() -> None:
    """The first event was not the first: order cannot be trusted there."""
    chunks = [WHOLE[2], WHOLE[1], *WHOLE[3:]]
    bodies = [e.event.body for e in events(NAME, chunks)]
    assert CallAborted(GAP) in bodies


def test_two_items_with_one_call_id_refuse_it() -> None:
    """Its result would answer the wrong call."""
    second = [
        item_event(kind, 1, {**item("call_A", text, status), "id": "fc_other"})
        for kind, text, status in (("added", "", "in_progress"), ("done", A, "completed"))
    ]
    assert of(*responses_call("call_A", 0, A), *second) == {"call_A": "identity_conflict"}
