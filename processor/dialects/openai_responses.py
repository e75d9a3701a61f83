"""OpenAI Responses events.

Rules (openai-python `types/responses/`; reports about gateways):
    A call's id is told once, by `output_item.added`; its other events are led to it by the output
    index and the item id, which both have to agree wherever they are present.
    A call ends by `output_item.done` with status `completed` (items of custom tools have none).
    `arguments.done` is sent for cut calls too: its copy waits for that end, and ends nothing.
    Every copy of the text becomes an `ArgumentsDone` of its own and must equal the fragments.
    Numbers: a repeat is dropped, a gap refuses every call that is open then, and no numbers at all,
    or one number for two different events, refuse every call.
    Items that the provider itself executes are none of our calls.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, cast

from processor.core.events import ArgumentsFormat, ResponseOutcome
from processor.core.limits import ARGUMENTS_BYTES_CEILING
from processor.dialects.calls import Calls, CallSlot
from processor.dialects.fields import (
    Chunk,
    Malformed,
    handle_or_none,
    has_control,
    id_or_none,
    is_id,
    is_number,
    name_or_none,
    number_or_none,
    object_or_none,
    objects,
    text_or_none,
    vendor_word,
)
from processor.dialects.numbering import Numbering
from processor.dialects.usage import CounterNames

#: Items that the application answers, and where their text is.
_FORMAT_OF_ITEM: Final[dict[str, ArgumentsFormat]] = {
    "function_call": "json",
    "custom_tool_call": "text",
}
_TEXT_FIELD: Final[dict[ArgumentsFormat, str]] = {"json": "arguments", "text": "input"}
#: Copies of one call that may wait: the one in its head, and the one of `arguments.done`.
_WAITING_MAX: Final = 2


def refusal(chunk: Chunk) -> str | None:
    """Why a first chunk is not of this dialect; None when it is."""
    if chunk.get("object") == "response":
        return "it is a whole response, not a stream of events"
    kind = chunk.get("type")
    if isinstance(kind, str) and kind.startswith("response."):
        return None
    if kind in ("error", "keepalive") and is_number(chunk.get("sequence_number")):
        return None
    return "the first event has no type of a response event"


@dataclass(slots=True, eq=False)
class _Item:
    """What is known of a call's item beside the call."""

    slot: CallSlot
    arguments_format: ArgumentsFormat
    index: int | None
    item_id: str | None
    has_ended: bool = False
    waiting: list[str] = field(default_factory=list[str])


class ResponsesAdapter:
    """The adapter of one response."""

    counter_names: ClassVar[CounterNames] = CounterNames(
        input_tokens=("input_tokens",),
        output_tokens=("output_tokens",),
        total_tokens=("total_tokens",),
        cached_input_tokens=("input_tokens_details.cached_tokens",),
        reasoning_tokens=("output_tokens_details.reasoning_tokens",),
    )

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        #: None once the numbers have proved useless.
        self._numbering: Numbering | None = Numbering()
        self._has_gap = False
        self._by_index: dict[int, _Item] = {}
        self._by_item_id: dict[str, _Item] = {}
        self._items: dict[CallSlot, _Item] = {}

    def observe(self, chunk: Chunk) -> None:
        """One event."""
        kind = text_or_none(chunk, "type")
        if kind == "error" or (kind is None and chunk.get("error")):
            self._calls.abort_all("stream_error")
            self._calls.end_all("failed", _error_word(chunk))
            return
        if kind is None:
            raise Malformed
        if not self._is_new(chunk, kind):
            return
        response = object_or_none(chunk, "response") if kind.startswith("response.") else None
        if response is not None:
            self._calls.see_model(response.get("model"))
            self._calls.see_response_id(id_or_none(response, "id"))
        handle = self._HANDLERS.get(kind)
        if handle is not None:
            handle(self, chunk)

    def damaged(self) -> None:
        """The numbers show what was lost; until then it may have been part of any open call."""
        self._calls.abort_all("malformed_event")

    def sentinel(self) -> None:
        """Not of this dialect, but some servers send it: an end of input."""
        self.end(cancelled=False)

    def end(self, *, cancelled: bool) -> None:
        """No event has ended the response."""
        self._calls.end_all("cancelled" if cancelled else "stream_ended")

    # --- numbers -------------------------------------------------------------------------------

    def _is_new(self, chunk: Chunk, kind: str) -> bool:
        if self._numbering is None:
            return True
        number = chunk.get("sequence_number")
        if not is_number(number) or number < 0:
            self._distrust("malformed_event")
            return True
        arrival = self._numbering.judge(number, _content(chunk, kind))
        if arrival == "conflict":
            self._distrust("sequence_conflict")
        elif arrival == "gap" or (arrival == "late" and not self._has_gap):
            self._has_gap = True
            self._calls.abort_all("provider_sequence_gap")
        return arrival not in ("repeat", "late")

    def _distrust(self, reason: str) -> None:
        self._numbering = None
        self._calls.refuse_all(reason)

    # --- items ---------------------------------------------------------------------------------

    def _item_added(self, chunk: Chunk) -> None:
        of, index = _item_of(chunk)
        item_id = handle_or_none(of, "id")
        arguments_format = _FORMAT_OF_ITEM.get(str(of.get("type")))
        known = self._known(index, item_id)
        if known and self._is_repeated_head(known, of):
            return
        for item in known:
            item.slot.abort("identity_conflict")
        if arguments_format is None:
            return
        item = self._open(of, arguments_format, index, item_id)
        if known:
            item.slot.abort("identity_conflict")
        elif item.slot.call_id is None:
            item.slot.abort("missing_call_id")
        elif item.slot.tool is None:
            item.slot.abort("tool_name_missing")
        elif of.get(_TEXT_FIELD[arguments_format]) != "":
            # A head that has a text already: it must be the whole one, or the call is refused.
            self._wait_for_end(item, of)

    def _is_repeated_head(self, known: list[_Item], of: Chunk) -> bool:
        slot = known[0].slot
        told = (id_or_none(of, "call_id"), name_or_none(of, "name"))
        return len(known) == 1 and told == (slot.call_id, slot.tool)

    def _open(
        self, of: Chunk, arguments_format: ArgumentsFormat, index: int | None, item_id: str | None
    ) -> _Item:
        slot = self._calls.open(f"item:{len(self._calls.slots)}")
        slot.arguments_format = arguments_format
        slot.output_index = index
        if item_id is not None and is_id(item_id) and not has_control(item_id):
            slot.item_id = item_id
        item = self._items[slot] = _Item(slot, arguments_format, index, item_id)
        if index is not None:
            self._by_index[index] = item
        if item_id is not None:
            self._by_item_id[item_id] = item
        slot.bind(id_or_none(of, "call_id"), name_or_none(of, "name"))
        return item

    def _item_done(self, chunk: Chunk) -> None:
        of, index = _item_of(chunk)
        arguments_format = _FORMAT_OF_ITEM.get(str(of.get("type")))
        item_id = handle_or_none(of, "id")
        item = self._owner(index, item_id)
        if item is None:
            if arguments_format is not None and not self._known(index, item_id):
                self._surface(of, arguments_format, index, item_id)
            return
        if arguments_format != item.arguments_format:
            item.slot.abort("identity_conflict")
        elif _agrees(item, of):
            status = text_or_none(of, "status")
            if status == "completed" or (status is None and arguments_format == "text"):
                self._end_item(item, of)
        # Also of a call that is refused: what it waited with is no more another one's loss.
        self._calls.let_go(sum(map(len, item.waiting)), len(item.waiting))
        item.waiting = []

    def _end_item(self, item: _Item, of: Chunk) -> None:
        text, is_text = _copy(of, _TEXT_FIELD[item.arguments_format])
        if not is_text:
            item.slot.abort("arguments_not_text")
            return
        item.has_ended = True
        for waiting in item.waiting:
            item.slot.finish(waiting)
        item.slot.finish(text)

    def _surface(
        self, of: Chunk, arguments_format: ArgumentsFormat, index: int | None, item_id: str | None
    ) -> None:
        """A call whose head never came must not vanish: it is refused."""
        item = self._open(of, arguments_format, index, item_id)
        item.slot.abort("provider_sequence_gap" if self._has_gap else "missing_start")

    # --- text ----------------------------------------------------------------------------------

    def _delta(self, chunk: Chunk) -> None:
        item = self._text_owner(chunk)
        if item is None:
            return
        text, is_text = _copy(chunk, "delta")
        if not is_text:
            item.slot.abort("arguments_not_text")
        elif text:
            item.slot.append(text)

    def _text_done(self, chunk: Chunk) -> None:
        item = self._text_owner(chunk)
        if item is None:
            return
        if name_or_none(chunk, "name") not in (None, item.slot.tool):
            item.slot.abort("tool_name_conflict")
        else:
            self._wait_for_end(item, chunk)

    def _wait_for_end(self, item: _Item, of: Chunk) -> None:
        """Keep a copy until the call's own end proves that it is one."""
        text, is_text = _copy(of, _TEXT_FIELD[item.arguments_format])
        if not is_text:
            item.slot.abort("arguments_not_text")
        elif text is None:
            return
        elif item.has_ended:
            item.slot.finish(text)
        elif len(text) > ARGUMENTS_BYTES_CEILING or not self._calls.hold(len(text)):
            item.slot.abort("too_large")
        elif len(item.waiting) >= _WAITING_MAX:
            item.slot.abort("malformed_event")
        else:
            item.waiting.append(text)

    def _text_owner(self, chunk: Chunk) -> _Item | None:
        index, item_id = number_or_none(chunk, "output_index"), handle_or_none(chunk, "item_id")
        item = self._owner(index, item_id)
        if item is None:
            return None
        is_custom = str(chunk.get("type")).startswith("response.custom_tool_call_input.")
        if is_custom != (item.arguments_format == "text"):
            item.slot.abort("identity_conflict")
            return None
        return item

    def _known(self, index: int | None, item_id: str | None) -> list[_Item]:
        """The calls that an index and an item id lead to: none, one, or two that contradict."""
        found = [
            None if index is None else self._by_index.get(index),
            None if item_id is None else self._by_item_id.get(item_id),
        ]
        return list(dict.fromkeys(item for item in found if item is not None))

    def _owner(self, index: int | None, item_id: str | None) -> _Item | None:
        """The one call that both lead to. A contradiction refuses all that it concerns."""
        known = self._known(index, item_id)
        if not known:
            self._refuse_possible_owners(index, item_id)
            return None
        item = known[0]
        index_agrees = index is None or item.index in (None, index)
        id_agrees = item_id is None or item.item_id in (None, item_id)
        if len(known) > 1 or not index_agrees or not id_agrees:
            for one in known:
                one.slot.abort("identity_conflict")
            return None
        if item.index is None and index is not None:
            item.index = index
            self._by_index[index] = item
        if item.item_id is None and item_id is not None:
            item.item_id = item_id
            self._by_item_id[item_id] = item
        return item

    def _refuse_possible_owners(self, index: int | None, item_id: str | None) -> None:
        for slot in list(self._calls.alive):
            item = self._items[slot]
            may_be_index = index is None or item.index is None
            may_be_id = item_id is None or item.item_id is None
            if may_be_index and may_be_id:
                slot.abort("ambiguous_identity")

    # --- the response --------------------------------------------------------------------------

    def _completed(self, chunk: Chunk) -> None:
        response = object_or_none(chunk, "response") or {}
        self._see_usage(response)
        for of in objects(response, "output"):
            self._compare_output(of)
        status = text_or_none(response, "status")
        if status in (None, "completed"):
            self._calls.end_all("completed")
        else:
            self._calls.end_all("unknown", vendor_word(status))

    def _compare_output(self, of: Chunk) -> None:
        """The response's own list repeats every call once more."""
        arguments_format = _FORMAT_OF_ITEM.get(str(of.get("type")))
        if arguments_format is None:
            return
        call_id = id_or_none(of, "call_id")
        slot = None if call_id is None else self._calls.owner(call_id)
        if slot is None:
            self._surface(of, arguments_format, None, None)
            return
        item = self._items[slot]
        if not _agrees(item, of) or not item.has_ended:
            return
        text, is_text = _copy(of, _TEXT_FIELD[item.arguments_format])
        if arguments_format != item.arguments_format:
            slot.abort("identity_conflict")
        elif not is_text:
            slot.abort("arguments_not_text")
        elif text_or_none(of, "status") not in (None, "completed"):
            slot.abort("truncated")
        elif text is not None:
            slot.finish(text)

    def _incomplete(self, chunk: Chunk) -> None:
        response = object_or_none(chunk, "response") or {}
        self._see_usage(response)
        reason = text_or_none(object_or_none(response, "incomplete_details") or {}, "reason")
        filtered = reason == "content_filter"
        outcome: ResponseOutcome = "content_filter" if filtered else "truncated"
        self._calls.end_all(outcome, vendor_word(reason))

    def _failed(self, chunk: Chunk) -> None:
        response = object_or_none(chunk, "response") or {}
        self._see_usage(response)
        self._calls.end_all("failed", _error_word(response))

    def _cancelled(self, chunk: Chunk) -> None:
        self._see_usage(object_or_none(chunk, "response") or {})
        self._calls.end_all("cancelled")

    def _see_usage(self, response: Chunk) -> None:
        usage = object_or_none(response, "usage")
        if usage is not None:
            self._calls.see_usage(usage)

    _HANDLERS: ClassVar[dict[str, Callable[["ResponsesAdapter", Chunk], None]]] = {
        "response.output_item.added": _item_added,
        "response.function_call_arguments.delta": _delta,
        "response.custom_tool_call_input.delta": _delta,
        "response.function_call_arguments.done": _text_done,
        "response.custom_tool_call_input.done": _text_done,
        "response.output_item.done": _item_done,
        "response.completed": _completed,
        "response.incomplete": _incomplete,
        "response.failed": _failed,
        "response.cancelled": _cancelled,
    }


def _item_of(chunk: Chunk) -> tuple[Chunk, int | None]:
    of = object_or_none(chunk, "item")
    if of is None:
        raise Malformed
    return of, number_or_none(chunk, "output_index")


def _agrees(item: _Item, of: Chunk) -> bool:
    """True when an item names the same call and tool as its head did, as far as it says."""
    slot = item.slot
    if id_or_none(of, "call_id") not in (None, slot.call_id):
        slot.abort("identity_conflict")
    elif name_or_none(of, "name") not in (None, slot.tool):
        slot.abort("tool_name_conflict")
    return slot.is_alive


def _copy(of: Chunk, name: str) -> tuple[str | None, bool]:
    """The text under `name` or None, and False when there is something else than a text."""
    value = of.get(name)
    if value is None:
        return None, True
    return (value, True) if isinstance(value, str) else (None, False)


def _error_word(of: Chunk) -> str | None:
    """The code of an error, flat or nested, if it is a code."""
    error = of.get("error")
    code = (cast("Chunk", error) if isinstance(error, Mapping) else of).get("code")
    return vendor_word(code) if isinstance(code, str) else None


def _content(chunk: Chunk, kind: str) -> int:
    """A hash of what an event says of our calls; padding and times are left out."""
    item, response = chunk.get("item"), chunk.get("response")
    of: Chunk = chunk
    names: tuple[str, ...] = ("delta", "arguments", "input")
    if isinstance(item, Mapping):
        of, names = cast("Chunk", item), ("call_id", "arguments", "input", "status")
    elif isinstance(response, Mapping):
        of, names = cast("Chunk", response), ("id",)
    said = [kind, chunk.get("output_index"), *(of.get(name) for name in names)]
    # Only texts and numbers are compared: nothing else is read from such a field.
    return hash(tuple(value if isinstance(value, str | int) else None for value in said))
