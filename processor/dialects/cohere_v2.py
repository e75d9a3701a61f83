"""Cohere v2 chat events.

Rules (cohere `v2/types/v2chat_stream_response.py`, `types/chat_*_event*.py`,
`types/chat_finish_reason.py`; Cohere's guide to streaming tool use):
    A call's id and tool are told once, by `tool-call-start`; its other events carry its index only.
    A second, different start on an index is a conflict; a start after the first fragment is late.
    An event of an index that has had no start belongs to a call whose start was lost: refused, as
    is every call of a response whose `message-start` was lost, since calls may be lost with it.
    `tool-call-end` ends a call, `message-end` the response. Whether a cut call gets an end too is
    not known, so a call whose effect cannot be undone waits for a `message-end` of success.
    There are no copies and no numbers, so an event that cannot be read refuses the whole response;
    so does an event about calls that is not known. Other unknown events mean nothing.
    A call without any text has no arguments: nothing says that this means an empty object.
    `[DONE]` proves nothing. Counters may be written as fractions; whole ones count.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, cast

from jiter import LosslessFloat

from processor.core._record import record
from processor.core.events import ResponseOutcome
from processor.dialects.calls import Calls, CallSlot
from processor.dialects.fields import (
    Chunk,
    Malformed,
    id_or_none,
    name_or_none,
    number_or_none,
    object_or_none,
    text_or_none,
    vendor_word,
)
from processor.dialects.usage import DEPTH_MAX, CounterNames

_OUTCOME_OF_FINISH: Final[dict[str, ResponseOutcome]] = {
    "TOOL_CALL": "completed",
    "COMPLETE": "completed",
    "STOP_SEQUENCE": "completed",
    "MAX_TOKENS": "truncated",
    "ERROR": "failed",
    "TIMEOUT": "failed",
}
#: Events that may be the first one that is read; each dialect of events spells its own.
_FAMILIES: Final = ("message-", "tool-call-", "tool-plan-", "content-", "citation-")


def refusal(chunk: Chunk) -> str | None:
    """Why a first event is not of this dialect; None when it is."""
    kind = chunk.get("type")
    if isinstance(kind, str) and kind.startswith(_FAMILIES):
        return None
    return "the first event has no type of a Cohere v2 event"


class CohereAdapter:
    """The adapter of one response."""

    counter_names: ClassVar[CounterNames] = CounterNames(
        input_tokens=("tokens.input_tokens", "billed_units.input_tokens"),
        output_tokens=("tokens.output_tokens", "billed_units.output_tokens"),
        total_tokens=(),
        cached_input_tokens=("cached_tokens",),
        reasoning_tokens=(),
    )

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._by_index: dict[int, CallSlot] = {}
        self._has_begun = False

    def observe(self, chunk: Chunk) -> None:
        """One event."""
        kind = text_or_none(chunk, "type")
        if kind == "error" or chunk.get("error"):
            self._fail()
            return
        if kind is None:
            raise Malformed
        is_of_a_call = kind.startswith("tool-call-")
        if is_of_a_call and not self._has_begun:
            self._calls.refuse_all("missing_start")
        handle = self._HANDLERS.get(kind)
        if handle is not None:
            handle(self, chunk)
        elif is_of_a_call:
            raise Malformed

    def damaged(self) -> None:
        """What was lost may have been part of any call, begun or not."""
        self._calls.refuse_all("malformed_event")

    def sentinel(self) -> None:
        """`[DONE]` without a `message-end` is an end of input."""
        self.end(cancelled=False)

    def end(self, *, cancelled: bool) -> None:
        """No event has ended the response."""
        self._calls.end_all("cancelled" if cancelled else "stream_ended")

    def _fail(self) -> None:
        self._calls.abort_all("stream_error")
        self._calls.end_all("failed")

    # --- the calls -----------------------------------------------------------------------------

    def _start(self, chunk: Chunk) -> None:
        head = _head(chunk)
        if head.index is None:
            # Refused with all others, but not unseen.
            self._open(None).bind(head.call_id, head.tool)
            raise Malformed
        known = self._by_index.get(head.index)
        if known is None:
            self._begin(self._open(head.index), head)
        elif known.call_id is None:
            known.bind(head.call_id, head.tool)
            known.abort("missing_start")
        elif not head.repeats(known):
            known.abort("identity_conflict")
            if head.call_id != known.call_id:
                slot = self._open(head.index)
                slot.bind(head.call_id, head.tool)
                slot.abort("identity_conflict")

    def _begin(self, slot: CallSlot, head: "_Head") -> None:
        slot.bind(head.call_id, head.tool)
        if head.call_id is None:
            slot.abort("missing_call_id")
        elif head.tool is None:
            slot.abort("tool_name_missing")
        elif not head.is_supported:
            slot.abort("unsupported_call_type")
        else:
            _add(slot, head.arguments)

    def _delta(self, chunk: Chunk) -> None:
        slot, of = self._slot(chunk), _call_of(chunk)
        call_id = id_or_none(of, "id")
        function = object_or_none(of, "function") or {}
        if slot.call_id is None:
            return
        if call_id not in (None, slot.call_id):
            slot.abort("identity_conflict")
            owner = self._calls.owner(call_id)
            if owner is not None:
                owner.abort("identity_conflict")
        elif name_or_none(function, "name") not in (None, slot.tool):
            slot.abort("tool_name_conflict")
        else:
            _add(slot, function.get("arguments"))

    def _end_call(self, chunk: Chunk) -> None:
        self._slot(chunk).finish()

    def _slot(self, chunk: Chunk) -> CallSlot:
        """The call of an event's index; one whose start never came stays without an id."""
        index = number_or_none(chunk, "index")
        if index is None:
            raise Malformed
        slot = self._by_index.get(index)
        return self._open(index) if slot is None else slot

    def _open(self, index: int | None) -> CallSlot:
        slot = self._calls.open(f"call:{len(self._calls.slots)}")
        slot.output_index = index
        if index is not None:
            self._by_index[index] = slot
        return slot

    # --- the response --------------------------------------------------------------------------

    def _message_start(self, chunk: Chunk) -> None:
        self._has_begun = True
        self._calls.see_response_id(id_or_none(chunk, "id"))

    def _message_end(self, chunk: Chunk) -> None:
        self._calls.see_response_id(id_or_none(chunk, "id"))
        delta = object_or_none(chunk, "delta") or {}
        usage = object_or_none(delta, "usage")
        if usage is not None:
            self._calls.see_usage(_with_whole_numbers(usage, DEPTH_MAX))
        finish = text_or_none(delta, "finish_reason")
        outcome = _OUTCOME_OF_FINISH.get(finish or "", "unknown")
        if delta.get("error"):
            outcome = "failed"
        self._calls.end_all(outcome, None if outcome == "completed" else vendor_word(finish))

    _HANDLERS: ClassVar[dict[str, Callable[["CohereAdapter", Chunk], None]]] = {
        "message-start": _message_start,
        "tool-call-start": _start,
        "tool-call-delta": _delta,
        "tool-call-end": _end_call,
        "message-end": _message_end,
    }


@record
class _Head:
    """What a `tool-call-start` says."""

    index: int | None
    call_id: str | None
    tool: str | None
    arguments: object
    is_supported: bool

    def repeats(self, slot: CallSlot) -> bool:
        """True when it says once more what the call's own start said, and adds no text."""
        is_same = (self.call_id, self.tool) == (slot.call_id, slot.tool)
        return is_same and self.is_supported and self.arguments in (None, "")


def _head(chunk: Chunk) -> _Head:
    of = _call_of(chunk)
    function = object_or_none(of, "function") or {}
    return _Head(
        index=number_or_none(chunk, "index"),
        call_id=id_or_none(of, "id"),
        tool=name_or_none(function, "name"),
        arguments=function.get("arguments"),
        is_supported=text_or_none(of, "type") in (None, "function"),
    )


def _call_of(chunk: Chunk) -> Chunk:
    """The call inside of an event: one object, where a whole response has a list."""
    delta = object_or_none(chunk, "delta") or {}
    of = object_or_none(object_or_none(delta, "message") or {}, "tool_calls")
    if of is None:
        raise Malformed
    return of


def _add(slot: CallSlot, arguments: object) -> None:
    if isinstance(arguments, str):
        slot.append(arguments)
    elif arguments is not None:
        slot.abort("arguments_not_text")


def _with_whole_numbers(of: Chunk, depth: int) -> dict[str, object]:
    """The counters with `61.0` as 61; a real fraction stays one and is no counter."""
    return {name: _whole(value, depth - 1) for name, value in of.items()}


def _whole(value: object, depth: int) -> object:
    if isinstance(value, Mapping):
        return _with_whole_numbers(cast("Chunk", value), depth) if depth else None
    if isinstance(value, float | LosslessFloat):
        number = float(value)
        return int(number) if number.is_integer() else None
    return value
