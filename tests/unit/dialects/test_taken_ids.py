"""A call that learns an id which another one has: whether it has been seen before decides.

Rules:
    The owner of the id is refused. The other one never appears, if nothing of it has yet; if it has
    appeared under a name of ours, it keeps that name, and ends once like every call.
"""

from collections.abc import Callable

import pytest

from processor.core.events import CallAborted, ResponseEnded
from processor.core.outcomes import CallRejected
from processor.dialects.calls import Calls, CallSlot, Origin
from tests.golden.replay import fold
from tests.unit.dialects.cohere_events import BEGIN, delta, message_end, start
from tests.unit.dialects.messages import WIRES, MessageWire
from tests.unit.dialects.verdicts import events
from tests.unit.dialects.wires import Chunk, item, item_event, response

TAKEN = "call_A"


def two_calls() -> tuple[Calls, CallSlot, CallSlot]:
    """A call that has an id, and one that has only been traced."""
    calls = Calls(Origin("acme", "req_1", "openai-chat"), None)
    owner, other = calls.open("call:0"), calls.open("call:1")
    owner.bind(TAKEN, "lookup_order")
    return calls, owner, other


def refused_before(slot: CallSlot) -> None:
    """Something else has refused the call, so it has appeared."""
    slot.abort("malformed_event")


def traced_before(slot: CallSlot) -> None:
    """Only a fragment has come."""
    slot.append("{")


@pytest.mark.parametrize(
    ("before", "names"),
    [(traced_before, {TAKEN}), (refused_before, {TAKEN, "~call:1"})],
)
@pytest.mark.parametrize("tool", [None, "lookup_order"])
def test_a_taken_id_leaves_every_call_that_appeared_with_one_end(
    before: Callable[[CallSlot], None], names: set[str], tool: str | None
) -> None:
    """The one of two calls that was never seen stays unseen."""
    calls, owner, other = two_calls()
    before(other)
    other.bind(TAKEN, tool)
    assert not owner.is_alive
    assert not other.is_alive
    calls.end_all("completed")
    told = calls.take()
    ended = [key.call_id for key, event in told if isinstance(event.body, ResponseEnded)]
    assert sorted(ended) == sorted(names)
    assert all(isinstance(outcome, CallRejected) for outcome in fold(told))


def test_the_first_reason_of_a_call_that_appeared_stands() -> None:
    """A taken id adds nothing to what refused it."""
    calls, _, other = two_calls()
    refused_before(other)
    other.bind(TAKEN, "lookup_order")
    reasons = [
        event.body.reason
        for key, event in calls.take()
        if key.call_id == "~call:1" and isinstance(event.body, CallAborted)
    ]
    assert reasons == ["malformed_event"]


def unreadable(dialect: str) -> Chunk:
    """An event that cannot be read, so it refuses all that is open."""
    if dialect == "cohere-v2":
        return {"type": "tool-call-delta", "index": 0, "delta": {"message": "x"}}
    if dialect == "anthropic":
        return {"type": "content_block_delta", "index": "x"}
    return {"contentBlockDelta": {"contentBlockIndex": "x"}}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire.dialect))
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_block_whose_late_start_has_a_taken_id_leaves_one_end_each(
    wire: MessageWire, *, is_damaged: bool
) -> None:
    """A fragment came first; the start that follows repeats another block's id."""
    chunks = [wire.start(), wire.head(1, TAKEN), wire.fragment(0, "{")]
    chunks += [unreadable(wire.dialect)] if is_damaged else []
    chunks += [wire.head(0, TAKEN), wire.stop(0), wire.stop(1)]
    chunks += [wire.reason("tool_use"), wire.last()]
    outcomes = fold(events(wire.dialect, chunks))
    assert all(isinstance(outcome, CallRejected) for outcome in outcomes)
    assert len(outcomes) == 1 + is_damaged


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_cohere_call_whose_late_start_has_a_taken_id_leaves_one_end_each(
    *, is_damaged: bool
) -> None:
    """As for blocks."""
    chunks = [BEGIN, start(1, TAKEN), delta(0, "{")]
    chunks += [unreadable("cohere-v2")] if is_damaged else []
    outcomes = fold(events("cohere-v2", [*chunks, start(0, TAKEN), message_end()]))
    assert all(isinstance(outcome, CallRejected) for outcome in outcomes)
    assert len(outcomes) == 1 + is_damaged


def test_copies_of_refused_calls_take_no_room_of_the_calls_after_them() -> None:
    """Responses keeps copies until a call's own end; that end gives their room back, always."""
    long = "x" * 700_000
    chunks = list[Chunk]()
    for n in range(8):
        done: Chunk = {"type": "response.function_call_arguments.done", "output_index": n}
        chunks += [
            item_event("added", n, item(f"call_{n}", "", "in_progress")),
            {**done, "arguments": long},
            # The tool is another one than the start had, so the call is refused.
            item_event("done", n, item(f"call_{n}", long, "completed", "get_weather")),
        ]
    reasons = {
        outcome.reason
        for outcome in fold(events("openai-responses", response(chunks)))
        if isinstance(outcome, CallRejected)
    }
    assert reasons == {"tool_name_conflict"}
