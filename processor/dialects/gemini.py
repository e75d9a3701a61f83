"""Gemini `streamGenerateContent`, of the Developer API and of Vertex AI.

Rules (google-genai `types.py`; reports about both services):
    A part with a functionCall is a call. Its id names it; most often there is none, and then the
    place does: the candidate, and the ordinal among the calls of that candidate.
    Most calls come whole. Their arguments are an object, so their text is ours; without arguments
    it is `{}`. An id that comes again with the same tool and text is a repeat, else a conflict.
    On Vertex a call may come in parts: a first one with the name, then leaves without name and id,
    until one that does not announce more. Only the order ties them to the call, one after the
    other: a part out of that order refuses every call of its candidate, later ones too.
    Nothing ends one call: the candidate's finishReason ends them all. The first success stands, but
    a later failure revokes it. What follows the finishReason is too late.
    An absent candidate index is 0. There are no sequence numbers, so a chunk that cannot be read
    refuses the whole response. What the service itself executes has parts of other kinds.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, cast

from processor.core._record import record
from processor.core.events import ResponseOutcome
from processor.dialects.adapter import TooManyCalls
from processor.dialects.calls import CALLS_MAX, Calls, CallSlot
from processor.dialects.fields import (
    Chunk,
    Malformed,
    id_or_none,
    is_number,
    name_or_none,
    number_or_none,
    object_or_none,
    objects,
    text_or_none,
    vendor_word,
)
from processor.dialects.object_text import Unwritable
from processor.dialects.partial_args import PartialArguments
from processor.dialects.usage import CounterNames
from processor.dialects.whole_calls import WholeCalls, begin

_OUTCOME_OF_FINISH: Final[dict[str, ResponseOutcome]] = {
    "STOP": "completed",
    "MAX_TOKENS": "truncated",
    "CONTINUATION": "truncated",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "IMAGE_OTHER",
        ),
        "content_filter",
    ),
}
#: The service says that the model's calls were wrong: also those that look right.
_FLAGGED: Final = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
    }
)
#: The default values of the two enumerations: they say nothing.
_UNSPECIFIED: Final = frozenset({None, "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"})
_MARKS: Final = ("candidates", "promptFeedback", "usageMetadata")


def refusal(chunk: Chunk) -> str | None:
    """Why a first chunk is not of this dialect; None when it is."""
    if any(mark in chunk for mark in _MARKS):
        return None
    error = chunk.get("error")
    if isinstance(error, Mapping) and is_number(cast("Chunk", error).get("code")):
        return None
    return "the first event has no candidates"


@record
class _Piece:
    """What one part says of a call."""

    call_id: str | None
    name: str | None
    arguments: object
    leaves: Sequence[Chunk]
    goes_on: bool

    @property
    def names_nothing(self) -> bool:
        """True for what can only be the next part of a call that has begun."""
        return self.call_id is None and self.name is None and not self.arguments

    @property
    def is_end_only(self) -> bool:
        """True for a part that says no more than that its call has ended."""
        return self.name is None and not (self.arguments or self.leaves or self.goes_on)


class _Candidate:
    """The calls of one candidate."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.slots: list[CallSlot] = []
        #: The call whose parts are still to come, and what has come of it.
        self.current: CallSlot | None = None
        self.partial = PartialArguments()
        self.held_texts = self.held_characters = 0
        #: Reason by which every call that still begins is refused.
        self.doom: str | None = None
        #: How the candidate ended; None while it runs.
        self.outcome: ResponseOutcome | None = None

    def refuse_all(self, reason: str) -> None:
        """Refuse every call that is alive, and every one that still begins."""
        if self.doom is None:
            self.doom = reason
            for slot in self.slots:
                slot.abort(reason)


class GeminiAdapter:
    """The adapter of one response."""

    counter_names: ClassVar[CounterNames] = CounterNames(
        input_tokens=("promptTokenCount",),
        output_tokens=("candidatesTokenCount",),
        total_tokens=("totalTokenCount",),
        cached_input_tokens=("cachedContentTokenCount",),
        reasoning_tokens=("thoughtsTokenCount",),
    )

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._whole = WholeCalls()
        self._candidates: dict[int, _Candidate] = {}
        self._candidate_of: dict[CallSlot, _Candidate] = {}

    def observe(self, chunk: Chunk) -> None:
        """One chunk: an error first, then who it is, then what the candidates say."""
        calls = self._calls
        calls.see_model(chunk.get("modelVersion"))
        if chunk.get("error"):
            calls.abort_all("stream_error")
            calls.end_all("failed", _error_word(chunk))
            return
        calls.see_response_id(id_or_none(chunk, "responseId"))
        usage = object_or_none(chunk, "usageMetadata")
        if usage is not None:
            calls.see_usage(usage)
        blocked = text_or_none(object_or_none(chunk, "promptFeedback") or {}, "blockReason")
        if blocked not in _UNSPECIFIED:
            calls.end_all("content_filter", vendor_word(blocked))
            return
        for of in objects(chunk, "candidates"):
            self._observe_candidate(of)

    def damaged(self) -> None:
        """What was lost may have been part of any call, begun or not."""
        self._calls.refuse_all("malformed_event")

    def sentinel(self) -> None:
        """Not of this dialect, but some servers send it: an end of input."""
        self.end(cancelled=False)

    def end(self, *, cancelled: bool) -> None:
        """Every candidate ends by its own finishReason, or by not having one."""
        missing: ResponseOutcome = "cancelled" if cancelled else "stream_ended"
        for candidate in self._candidates.values():
            for slot in candidate.slots:
                slot.end(candidate.outcome or missing)
        self._calls.ended = True

    def _observe_candidate(self, of: Chunk) -> None:
        index = number_or_none(of, "index") or 0
        candidate = self._candidates.get(index)
        if candidate is None:
            if len(self._candidates) >= CALLS_MAX:
                raise TooManyCalls
            candidate = self._candidates[index] = _Candidate(index)
        content = object_or_none(of, "content") or {}
        for part in objects(content, "parts"):
            call = object_or_none(part, "functionCall")
            if call is not None:
                self._observe_piece(candidate, _piece(call))
        finish = text_or_none(of, "finishReason")
        if finish is not None and finish not in _UNSPECIFIED:
            _finish(candidate, finish)

    def _observe_piece(self, candidate: _Candidate, piece: _Piece) -> None:
        owner = None if piece.call_id is None else self._calls.owner(piece.call_id)
        current = candidate.current
        if current is not None and (owner is current or piece.names_nothing):
            self._continue(candidate, current, piece)
        elif owner is not None:
            self._observe_known(candidate, owner, piece)
        elif not piece.names_nothing:
            self._begin(candidate, piece)
        else:
            self._surface(candidate)

    # --- calls ---------------------------------------------------------------------------------

    def _begin(self, candidate: _Candidate, piece: _Piece) -> None:
        if candidate.current is not None:
            # Its end was lost, or this is a part of it after all; nothing says which.
            candidate.refuse_all("ambiguous_identity")
            self._close(candidate)
        slot = self._register(candidate)
        begin(slot, piece.call_id, piece.name)
        if not (piece.leaves or piece.goes_on):
            self._whole.fill(slot, piece.arguments)
            return
        candidate.current = slot
        self._continue(candidate, slot, piece)

    def _register(self, candidate: _Candidate) -> CallSlot:
        ordinal = len(candidate.slots)
        slot = self._calls.open(f"call:{candidate.index}:{ordinal}")
        slot.output_index = ordinal
        late = None if candidate.outcome is None else "fragment_after_end"
        slot.doom = candidate.doom or late
        candidate.slots.append(slot)
        self._candidate_of[slot] = candidate
        return slot

    def _continue(self, candidate: _Candidate, slot: CallSlot, piece: _Piece) -> None:
        """The next part of the one call that is open, the first one included."""
        if piece.name not in (None, slot.tool):
            slot.abort("tool_name_conflict")
        elif piece.arguments:
            slot.abort("malformed_event")
        elif candidate.outcome is not None:
            slot.abort("fragment_after_end")
        for leaf in piece.leaves:
            if not slot.is_alive:
                break
            self._add(candidate, slot, leaf)
        if not piece.goes_on:
            self._complete(candidate, slot)

    def _add(self, candidate: _Candidate, slot: CallSlot, leaf: Chunk) -> None:
        size = sum(len(value) for value in leaf.values() if isinstance(value, str))
        if not self._take_room(candidate, size, 1):
            slot.abort("too_large")
            return
        before = candidate.partial.nodes_count
        try:
            candidate.partial.add(leaf)
        except Unwritable as e:
            slot.abort(e.reason)
            return
        # A step of a path that is new costs as much as a text.
        if not self._take_room(candidate, 0, candidate.partial.nodes_count - before):
            slot.abort("too_large")

    def _take_room(self, candidate: _Candidate, characters: int, texts: int) -> bool:
        if not self._calls.hold(characters, texts):
            return False
        candidate.held_characters += characters
        candidate.held_texts += texts
        return True

    def _complete(self, candidate: _Candidate, slot: CallSlot) -> None:
        """No part is to follow: what has come is the whole object."""
        if slot.is_alive:
            try:
                value = candidate.partial.value()
            except Unwritable as e:
                slot.abort(e.reason)
            else:
                self._whole.fill(slot, value)
        self._close(candidate)

    def _close(self, candidate: _Candidate) -> None:
        self._calls.let_go(candidate.held_characters, candidate.held_texts)
        candidate.held_characters = candidate.held_texts = 0
        candidate.current, candidate.partial = None, PartialArguments()

    def _observe_known(self, candidate: _Candidate, owner: CallSlot, piece: _Piece) -> None:
        """The id of a call that is not the open one."""
        if piece.is_end_only:
            return
        if piece.leaves or piece.goes_on:
            owner.abort("identity_conflict")
            candidate.refuse_all("identity_conflict")
        elif self._candidate_of[owner] is not candidate:
            owner.abort("identity_conflict")
        else:
            self._whole.repeat(owner, piece.name, piece.arguments)

    def _surface(self, candidate: _Candidate) -> None:
        """A part of a call whose first one never came, or of one that had ended before."""
        if candidate.doom is None:
            candidate.refuse_all("ambiguous_identity")
            slot = self._register(candidate)
            slot.bind_made_up_id()
            slot.abort("missing_start")


def _finish(candidate: _Candidate, finish: str) -> None:
    outcome = _OUTCOME_OF_FINISH.get(finish, "unknown")
    if outcome != "completed":
        candidate.outcome = outcome
        for slot in candidate.slots:
            if finish in _FLAGGED:
                slot.abort("provider_flagged")
            slot.end(outcome, vendor_word(finish))
    elif candidate.outcome is None:
        candidate.outcome = outcome
        for slot in candidate.slots:
            # A call that announced more has no end.
            if slot is not candidate.current:
                slot.finish()


def _piece(of: Chunk) -> _Piece:
    goes_on = of.get("willContinue")
    if not (goes_on is None or isinstance(goes_on, bool)):
        raise Malformed
    return _Piece(
        call_id=id_or_none(of, "id"),
        name=name_or_none(of, "name"),
        arguments=of.get("args"),
        leaves=objects(of, "partialArgs"),
        goes_on=bool(goes_on),
    )


def _error_word(of: Chunk) -> str | None:
    """The status of an error, if it is a code."""
    error = of.get("error")
    status = cast("Chunk", error).get("status") if isinstance(error, Mapping) else None
    return vendor_word(status) if isinstance(status, str) else None
