"""OpenAI Chat Completions chunks, and the servers that follow them more or less.

Rules (openai-python `types/chat/chat_completion_chunk.py`; reports about compatible servers):
    A call is named by its id. An index only leads to an id, inside one choice, and is no position.
    The first id and name that are present bind; equal ones repeat; absent ones say nothing.
    A new id with a name opens a call, also on a used index; from then on a fragment without an id
    on that index has no certain owner. A fragment without certain owner refuses all it may concern.
    Nothing ends one call: the choice's finish_reason ends them all. The first success stands, but a
    later failure revokes it. What follows the finish_reason is too late.
    `[DONE]` proves nothing: without a finish_reason, or after an error, no call completes.
    There are no sequence numbers, so a chunk that cannot be read refuses the whole response.
"""

from typing import ClassVar, Final

from processor.core._record import record
from processor.core.events import ArgumentsFormat, ResponseOutcome
from processor.dialects.adapter import TooManyCalls
from processor.dialects.calls import CALLS_MAX, Calls, CallSlot
from processor.dialects.fields import (
    Chunk,
    Malformed,
    id_or_none,
    name_or_none,
    number_or_none,
    object_or_none,
    objects,
    text_or_none,
    vendor_word,
)
from processor.dialects.usage import CounterNames

_OUTCOME_OF_FINISH: Final[dict[str, ResponseOutcome]] = {
    "tool_calls": "completed",
    "stop": "completed",
    "function_call": "completed",
    "length": "truncated",
    "content_filter": "content_filter",
    "error": "failed",
}
#: What no server of the Chat form sends that has a dialect of its own here.
_OWN_FIELDS: Final = (
    "obfuscation",
    "prompt_filter_results",
    "provider",
    "system_fingerprint",
    "x_groq",
)
_OWN_ID: Final = "chatcmpl-"


def refusal(chunk: Chunk) -> str | None:
    """Why a first chunk is not of this dialect; None when it is."""
    if chunk.get("object") == "chat.completion":
        return "it is a whole completion, not a stream of chunks"
    if "choices" in chunk or chunk.get("object") == "chat.completion.chunk":
        return None
    if chunk.get("error") is not None and chunk.get("type") is None:
        return None
    return "the first event has no choices"


def is_told_apart(chunk: Chunk) -> bool:
    """True for a chunk with what Mistral, whose chunks look alike, never sends."""
    response_id = chunk.get("id")
    is_own_id = isinstance(response_id, str) and response_id.startswith(_OWN_ID)
    return is_own_id or any(name in chunk for name in _OWN_FIELDS)


@record
class _Piece:
    """One entry of `tool_calls`, as far as it says something."""

    index: int | None
    call_id: str | None
    name: str | None
    arguments_format: ArgumentsFormat | None
    #: None when there are none; a text, or whatever else stands in its place.
    arguments: object
    is_supported: bool

    @property
    def says_nothing(self) -> bool:
        """True for an entry that neither names a call nor adds to one."""
        parts = (self.call_id, self.name, self.arguments)
        return self.is_supported and parts == (None, None, None)


class _Choice:
    """The calls of one choice."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.slots: list[CallSlot] = []
        #: Whose a piece without id and index may be; of those refused together two are kept.
        self.owners: list[CallSlot] = []
        #: The calls that an index has led to, the latest last.
        self.by_index: dict[int, list[CallSlot]] = {}
        self.without_index: list[CallSlot] = []
        self.legacy: CallSlot | None = None
        #: How the choice ended; None while it runs.
        self.outcome: ResponseOutcome | None = None


class ChatAdapter:
    """The adapter of one response."""

    counter_names: ClassVar[CounterNames] = CounterNames(
        input_tokens=("prompt_tokens",),
        output_tokens=("completion_tokens",),
        total_tokens=("total_tokens",),
        cached_input_tokens=("prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens"),
        reasoning_tokens=("completion_tokens_details.reasoning_tokens",),
    )

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._choices: dict[int, _Choice] = {}
        self._choice_of: dict[CallSlot, _Choice] = {}

    def observe(self, chunk: Chunk) -> None:
        """One chunk: an error first, then who it is, then what the choices say."""
        calls = self._calls
        calls.see_model(chunk.get("model"))
        choices = objects(chunk, "choices")
        vendor = object_or_none(chunk, "x_groq") or {}
        if any(_has_error(part) for part in (chunk, vendor, *choices)):
            calls.abort_all("stream_error")
            calls.end_all("failed")
            return
        calls.see_response_id(id_or_none(chunk, "id"))
        usage = object_or_none(chunk, "usage") or object_or_none(vendor, "usage")
        if usage is not None:
            calls.see_usage(usage)
        for choice in choices:
            self._observe_choice(choice)

    def damaged(self) -> None:
        """What was lost may have been part of any call, begun or not."""
        self._calls.refuse_all("malformed_event")

    def sentinel(self) -> None:
        """`[DONE]` ends the response as the end of input does."""
        self.end(cancelled=False)

    def end(self, *, cancelled: bool) -> None:
        """Every choice ends by its own finish_reason, or by not having one."""
        missing: ResponseOutcome = "cancelled" if cancelled else "stream_ended"
        for choice in self._choices.values():
            for slot in choice.slots:
                slot.end(choice.outcome or missing)
        self._calls.ended = True

    def _observe_choice(self, of: Chunk) -> None:
        choice = self._choice(number_or_none(of, "index"))
        delta = object_or_none(of, "delta") or {}
        for entry in objects(delta, "tool_calls"):
            self._observe_piece(choice, _piece(entry))
        legacy = object_or_none(delta, "function_call")
        if legacy is not None:
            self._observe_legacy(choice, legacy)
        finish = text_or_none(of, "finish_reason")
        if finish is not None:
            _finish(choice, finish)

    def _choice(self, index: int | None) -> _Choice:
        if index is None:
            if self._choices.keys() - {0}:
                raise Malformed
            index = 0
        choice = self._choices.get(index)
        if choice is None:
            if len(self._choices) >= CALLS_MAX:
                raise TooManyCalls
            choice = self._choices[index] = _Choice(index)
        return choice

    def _observe_piece(self, choice: _Choice, piece: _Piece) -> None:
        if piece.says_nothing:
            return
        if choice.legacy is not None:
            # Both forms at once: the same call twice, or two; nothing says which.
            choice.owners = _refuse(choice.owners, "ambiguous_identity")
            return
        slot = self._owner(choice, piece)
        if slot is None:
            return
        if slot.arguments_format is None:
            slot.arguments_format = piece.arguments_format
        slot.bind(piece.call_id, piece.name)
        if not piece.is_supported:
            slot.abort("unsupported_call_type")
        elif piece.name not in (None, slot.tool):
            slot.abort("tool_name_conflict")
        elif piece.arguments_format not in (None, slot.arguments_format):
            slot.abort("malformed_event")
        elif piece.arguments is not None:
            self.add_arguments(slot, piece.arguments)

    def add_arguments(self, slot: CallSlot, arguments: object) -> None:
        """What an entry adds to its call: here only a text is a fragment."""
        if isinstance(arguments, str):
            slot.append(arguments)
        else:
            slot.abort("arguments_not_text")

    # --- whose piece it is ---------------------------------------------------------------------

    def _owner(self, choice: _Choice, piece: _Piece) -> CallSlot | None:
        """The call that a piece belongs to; None when it has been refused with all it may be of."""
        if piece.call_id is not None:
            owner = self._calls.owner(piece.call_id)
            if owner is not None:
                return self._known_id(choice, piece.index, owner)
            return self._new_id(choice, piece)
        if piece.index is not None:
            return self._at_index(choice, piece.index, piece.name)
        slot = _only_owner(choice.owners, piece.name)
        if slot is None and choice.owners:
            choice.owners = _refuse(choice.owners, "ambiguous_identity")
            return None
        return slot or self._open(choice, None)

    def _at_index(self, choice: _Choice, index: int, name: str | None) -> CallSlot | None:
        bound = choice.by_index.get(index)
        if bound is not None:
            slot = _only_owner(bound, name)
            if slot is None:
                choice.by_index[index] = _refuse(bound, "ambiguous_identity")
            return slot
        if choice.without_index:
            # It may be of one of those that had no index, or a new call without an id.
            choice.owners = _refuse(choice.owners, "ambiguous_identity")
            return None
        return self._open(choice, index)

    def _known_id(self, choice: _Choice, index: int | None, owner: CallSlot) -> CallSlot | None:
        is_here = self._choice_of.get(owner) is choice
        if is_here and index in (None, owner.output_index):
            return owner
        bound = [] if index is None else choice.by_index.get(index, [])
        if is_here and index is not None and owner.output_index is None and not bound:
            choice.without_index.remove(owner)
            owner.output_index = index
            choice.by_index[index] = [owner]
            return owner
        _refuse([owner, *bound], "identity_conflict")
        return None

    def _new_id(self, choice: _Choice, piece: _Piece) -> CallSlot | None:
        index = piece.index
        bound = choice.without_index if index is None else choice.by_index.get(index, [])
        last = bound[-1] if bound else None
        if (
            last is not None
            and last.call_id is None
            and (last.tool is None or piece.name in (None, last.tool))
        ):
            return last
        slot = self._open(choice, index)
        if last is not None and index is not None and piece.name is None:
            slot.bind(piece.call_id, None)
            _refuse(bound, "identity_conflict")
            return None
        return slot

    def _open(self, choice: _Choice, index: int | None) -> CallSlot:
        slot = self._register(choice, f"call:{choice.index}:{len(choice.slots)}")
        slot.output_index = index
        if index is None:
            choice.without_index.append(slot)
        else:
            choice.by_index.setdefault(index, []).append(slot)
        return slot

    def _register(self, choice: _Choice, fallback_id: str) -> CallSlot:
        slot = self._calls.open(fallback_id)
        if choice.outcome is not None:
            slot.doom = "fragment_after_end"
        choice.slots.append(slot)
        choice.owners.append(slot)
        self._choice_of[slot] = choice
        return slot

    def _observe_legacy(self, choice: _Choice, of: Chunk) -> None:
        """The form before tool calls: one call per choice, without any id."""
        name, arguments = name_or_none(of, "name"), _arguments(of, "arguments")
        if name is None and arguments is None:
            return
        slot = choice.legacy
        if slot is None:
            slot = choice.legacy = self._register(choice, f"function_call:{choice.index}")
            slot.bind_made_up_id()
        if len(choice.slots) > 1:
            choice.owners = _refuse(choice.owners, "ambiguous_identity")
            return
        slot.bind(None, name)
        if name not in (None, slot.tool):
            slot.abort("tool_name_conflict")
        elif arguments is not None:
            self.add_arguments(slot, arguments)


def _only_owner(candidates: list[CallSlot], name: str | None) -> CallSlot | None:
    """The one call that a piece without id can belong to; a differing name makes it unsure."""
    if len(candidates) != 1:
        return None
    (slot,) = candidates
    return slot if name is None or slot.tool in (None, name) else None


def _finish(choice: _Choice, finish: str) -> None:
    outcome = _OUTCOME_OF_FINISH.get(finish, "unknown")
    if outcome != "completed":
        choice.outcome = outcome
        for slot in choice.slots:
            slot.end(outcome, vendor_word(finish))
    elif choice.outcome is None:
        choice.outcome = outcome
        for slot in choice.slots:
            slot.finish()


def _refuse(slots: list[CallSlot], reason: str) -> list[CallSlot]:
    """Refuse all; what is returned stands for them, so that a repetition costs nothing."""
    for slot in slots:
        slot.abort(reason)
    return slots[-2:]


def _has_error(of: Chunk) -> bool:
    """An error object or text; servers also send null and empty ones beside good chunks."""
    return bool(of.get("error"))


def _arguments(of: Chunk, name: str) -> object:
    """What stands under `name`; None when that is nothing or an empty text."""
    value = of.get(name)
    return None if value == "" else value


def _piece(entry: Chunk) -> _Piece:
    kind = text_or_none(entry, "type")
    function = object_or_none(entry, "function")
    custom = object_or_none(entry, "custom")
    if function is not None and custom is not None:
        raise Malformed
    arguments_format: ArgumentsFormat | None = None
    if function is not None:
        arguments_format = "json"
    elif custom is not None:
        arguments_format = "text"
    body = function or custom or {}
    return _Piece(
        index=number_or_none(entry, "index"),
        call_id=id_or_none(entry, "id"),
        name=name_or_none(body, "name"),
        arguments_format=arguments_format,
        arguments=_arguments(body, "input" if custom is not None else "arguments"),
        is_supported=kind in (None, "function", "custom"),
    )
