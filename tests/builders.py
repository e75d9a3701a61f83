"""Builders of records with sane defaults: a test names only what it is about.

Rules:
    Synthetic data only. Nothing here asserts anything.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from processor.core.assembly import Assembly, Place
from processor.core.call import Call, State
from processor.core.checkpoint import Checkpoint
from processor.core.events import (
    SEQ_NONE,
    ArgumentsDelta,
    ArgumentsDone,
    ArgumentsFormat,
    Body,
    CallAborted,
    CallExpired,
    CallStarted,
    ExpiryCause,
    ResponseEnded,
    ResponseOutcome,
    StreamEvent,
)
from processor.core.gate import UNLISTED, NoCatalogue, Rules, ToolRule
from processor.core.identity import CallKey
from processor.core.limits import Limits
from processor.core.low_water import LowWater
from processor.core.outcomes import CallCompleted, CallRejected, EffectClass, Outcome

PLACE = Place("toolcalls.events.v1", 0)
TOOL = "issue_refund"


class Record(NamedTuple):
    """One record of the events topic, decoded."""

    key: bytes
    event: StreamEvent
    offset: int
    timestamp_ms: int


def key(
    call_id: str = "call_A",
    *,
    tenant: str = "acme",
    request_id: str = "req_1",
    response_id: str = "resp_1",
) -> CallKey:
    """A call key; by default call A of the only response."""
    return CallKey(tenant, request_id, response_id, call_id)


def started(
    of: CallKey | None = None,
    *,
    tool: str = TOOL,
    dialect: str = "openai-chat",
    arguments_format: ArgumentsFormat = "json",
    item_id: str | None = None,
    output_index: int | None = None,
    model: str | None = None,
) -> CallStarted:
    """The start of a call."""
    return CallStarted(
        *(of or key()),
        tool=tool,
        dialect=dialect,
        item_id=item_id,
        output_index=output_index,
        model=model,
        arguments_format=arguments_format,
    )


def delta(fragment: bytes | str) -> ArgumentsDelta:
    """A fragment; text is taken as UTF-8."""
    return ArgumentsDelta(fragment.encode() if isinstance(fragment, str) else fragment)


def done(arguments: bytes | str | None = None) -> ArgumentsDone:
    """The call's own end, with or without a final copy."""
    return ArgumentsDone(arguments.encode() if isinstance(arguments, str) else arguments)


def ended(outcome: ResponseOutcome = "completed") -> ResponseEnded:
    """The response's end."""
    return ResponseEnded(outcome)


def aborted(reason: str = "provider_sequence_gap") -> CallAborted:
    """The publisher's report."""
    return CallAborted(reason)


def expired(last_seq: int = 0, *, cause: ExpiryCause = "idle") -> CallExpired:
    """The assembler's clock ran out."""
    return CallExpired(cause, last_seq)


def numbered(bodies: Iterable[Body], *, first_seq: int = 0) -> list[StreamEvent]:
    """Events with contiguous seqs, as a publisher sends them; expiries stand outside the count."""
    events: list[StreamEvent] = []
    seq = first_seq
    for body in bodies:
        if isinstance(body, CallExpired):
            events.append(StreamEvent(SEQ_NONE, body))
            continue
        events.append(StreamEvent(seq, body))
        seq += 1
    return events


def call_events(
    fragments: Sequence[bytes | str] = ('{"order_id":', '"ORDER-1001"}'),
    *,
    of: CallKey | None = None,
    tool: str = TOOL,
    copies: Sequence[bytes | str | None] = (None,),
    outcome: ResponseOutcome | None = "completed",
    arguments_format: ArgumentsFormat = "json",
) -> list[StreamEvent]:
    """A whole call: start, fragments, one `ArgumentsDone` per copy, the response's end."""
    bodies: list[Body] = [started(of, tool=tool, arguments_format=arguments_format)]
    bodies += [delta(fragment) for fragment in fragments]
    bodies += [done(copy) for copy in copies]
    if outcome is not None:
        bodies.append(ended(outcome))
    return numbered(bodies)


def log(
    events: Iterable[StreamEvent], *, of: CallKey | None = None, first_offset: int = 0
) -> list[Record]:
    """Events of one call as records, one offset and one millisecond apart."""
    encoded = (of or key()).encode()
    return [
        Record(encoded, event, offset, 1_000 + offset)
        for offset, event in enumerate(events, first_offset)
    ]


class Catalogue:
    """Rules that give every tool of `rules` its own, and every other the default."""

    def __init__(self, rules: dict[str, ToolRule] | None = None, digest: str | None = None) -> None:
        self._rules = rules or {}
        self.digest = digest

    def rule(self, tool: str) -> ToolRule:
        """The rule of `tool`."""
        return self._rules.get(tool, UNLISTED)


def one_rule(
    effect_class: EffectClass = "at_most_once",
    *,
    empty_arguments_allowed: bool = False,
    validate: Callable[[object], str | None] | None = None,
) -> Catalogue:
    """A catalogue with the default tool alone."""
    rule = ToolRule(effect_class, empty_arguments_allowed, validate)
    return Catalogue({TOOL: rule}, digest="sha256:0001")


def assembly(
    limits: Limits | None = None,
    rules: Rules | None = None,
    *,
    wait_for_response: bool = False,
    log_time_ms: int = -1,
    checkpoints: Iterable[Checkpoint] = (),
) -> Assembly:
    """A fold of one partition that has read nothing yet."""
    return Assembly(
        PLACE,
        limits or Limits(),
        rules or NoCatalogue(),
        wait_for_response=wait_for_response,
        log_time_ms=log_time_ms,
        checkpoints=checkpoints,
    )


def feed(fold: Assembly, records: Iterable[Record]) -> list[Outcome]:
    """Apply `records` in order and return what the fold said."""
    outcomes = (fold.apply(r.key, r.event, r.offset, r.timestamp_ms) for r in records)
    return [outcome for outcome in outcomes if outcome is not None]


def run(
    events: Iterable[StreamEvent],
    *,
    limits: Limits | None = None,
    rules: Rules | None = None,
    wait_for_response: bool = False,
) -> list[Outcome]:
    """Fold the events of one call from nothing."""
    return feed(assembly(limits, rules, wait_for_response=wait_for_response), log(events))


def only_completed(outcomes: Sequence[Outcome]) -> CallCompleted:
    """The one outcome, which must be a completed call."""
    (outcome,) = outcomes
    if not isinstance(outcome, CallCompleted):
        raise AssertionError(f"rejected: {outcome.reason}")
    return outcome


def only_rejected(outcomes: Sequence[Outcome]) -> CallRejected:
    """The one outcome, which must be a rejection."""
    (outcome,) = outcomes
    if not isinstance(outcome, CallRejected):
        raise AssertionError("completed")
    return outcome


def call_state(call: Call) -> dict[str, object]:
    """Every slot of a tracked call."""
    return {slot: getattr(call, slot) for slot in Call.__slots__}


def tracked_state(fold: Assembly) -> dict[str, object]:
    """All that decides about later records: calls in order with every slot, count, log time."""
    return {
        "calls": [(name, call_state(call)) for name, call in fold.calls.items()],
        "open_count": fold.open_count,
        "log_time_ms": fold.log_time_ms,
        "forget_at_ms": fold.forget_at_ms,
        "reopenable": sorted(fold._reopenable),
        "checkpointed": sorted(fold.checkpoints.held),
    }


def deciding_state(fold: Assembly) -> dict[str, object]:
    """All that decides, apart from where a restart would begin: that depends on the commits."""
    needs = ("need_offset", "need_time_ms")
    of_closed = ("state", "last_ms", "repeat_offset", "repeat_ms")
    calls = {
        name: {
            slot: value
            for slot, value in call_state(call).items()
            if slot not in needs and (call.state is not State.CLOSED or slot in of_closed)
        }
        for name, call in fold.calls.items()
    }
    return {"calls": calls, "open_count": fold.open_count, "log_time_ms": fold.log_time_ms}


class CheckpointStore:
    """What the checkpoint topic of one partition holds, and where the group stands."""

    def __init__(self) -> None:
        self._latest: dict[bytes, Checkpoint] = {}
        self.low = LowWater(0, -1)

    def commit(self, fold: Assembly, position: int, after_ms: int) -> None:
        """As a transaction does: checkpoints, low-water, then what is not needed any more."""
        for item in fold.take_checkpoints(position, after_ms=after_ms):
            # Written anew, so it stands behind the others.
            self._latest.pop(item.key, None)
            self._latest[item.key] = item._replace(call=copy.deepcopy(item.call))
        self.low = fold.low_water(position)
        for name in fold.checkpoints.take_unneeded(self.low.offset):
            self._latest.pop(name, None)

    def checkpoints(self) -> list[Checkpoint]:
        """As a restart reads them."""
        return copy.deepcopy(list(self._latest.values()))
