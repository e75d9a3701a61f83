"""A captured stream through the adapters and the fold, and how its verdicts are compared.

Rules:
    Only the public interface is used: a `ResponseStream`, its events, the core's `Assembly`.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from processor.core.events import ResponseEnded
from processor.core.limits import Limits
from processor.core.outcomes import CallCompleted, Outcome
from processor.dialects.stream import KeyedEvent, ResponseStream
from tests.builders import assembly

FIXTURES = Path(__file__).parents[1] / "fixtures"
#: Words of the fixtures and cases for a reason -> our own reasons that mean the same.
ACCEPTED: dict[str, list[str]] = json.loads((FIXTURES / "reasons.json").read_text())["accepted_for"]

# `Any`: parsed JSON of the fixtures, whose shape the comparison itself checks.
Expected = dict[str, Any]


def stream(dialect: str, request_id: str = "req_1") -> ResponseStream:
    """The response to one synthetic request."""
    return ResponseStream(dialect, tenant="acme", request_id=request_id)


def events_of(dialect: str, data: bytes, sizes: Iterable[int] = ()) -> list[KeyedEvent]:
    """Every event of a whole input, cut into pieces of `sizes` and then the rest."""
    response, events, at = stream(dialect), list[KeyedEvent](), 0
    for size in sizes:
        events += response.observe_bytes(data[at : at + size])
        at += size
    return events + response.observe_bytes(data[at:]) + response.end()


def fold(events: Iterable[KeyedEvent], limits: Limits | None = None) -> list[Outcome]:
    """What the assembler says, in the order of its verdicts; every key ends up closed.

    Every seq must be contiguous from 0 and every call must have exactly one end.
    """
    assembled, outcomes = assembly(limits), list[Outcome]()
    seqs: dict[bytes, int] = {}
    ends: dict[bytes, int] = {}
    for offset, (key, event) in enumerate(events):
        encoded = key.encode()
        assert event.seq == seqs.get(encoded, 0)
        seqs[encoded] = event.seq + 1
        ends[encoded] = ends.get(encoded, 0) + isinstance(event.body, ResponseEnded)
        outcome = assembled.apply(encoded, event, offset, 1_000)
        if outcome is not None:
            outcomes.append(outcome)
    assert all(count == 1 for count in ends.values())
    assert assembled.open_count == 0
    return outcomes


def matches(outcomes: Sequence[Outcome], calls: Sequence[Expected]) -> bool:
    """True when verdict, reason, exact text and identity of every call are as expected."""
    client = [call for call in calls if call.get("kind") != "server"]
    if len(client) != len(outcomes):
        return False
    left = list(outcomes)
    for call in client:
        found = next((one for one in left if _is(one, call)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _is(outcome: Outcome, call: Expected) -> bool:
    call_id = call["call_id"]
    same_id = outcome.key.call_id == call_id
    if call_id is None:
        # The wire has none: ours begins with a tilde, unless the case leaves open whose it is.
        same_id = outcome.key.call_id.startswith("~") or call["outcome"] == "rejected"
    return same_id and _same_verdict(outcome, call) and _same_data(outcome, call)


def _same_verdict(outcome: Outcome, call: Expected) -> bool:
    if isinstance(outcome, CallCompleted):
        text = call["arguments_text"]
        return call["outcome"] == "completed" and (text is None or outcome.arguments == _utf8(text))
    reason = call.get("reason", "")
    return call["outcome"] == "rejected" and outcome.reason in ACCEPTED.get(reason, [reason])


def _same_data(outcome: Outcome, call: Expected) -> bool:
    if call.get("response_id") not in (None, outcome.key.response_id):
        return False
    if call.get("name") not in (None, outcome.tool):
        return False
    if outcome.tool is None:
        return True  # refused before its head: a rejection of the key alone
    return all(
        name not in call or call[name] == value
        for name, value in (("output_index", outcome.output_index), ("item_id", outcome.item_id))
    )


def _utf8(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le").encode()
