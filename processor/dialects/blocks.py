"""A message made of indexed content blocks: which of them are calls, and what proves a call.

Rules:
    An index leads to one block of the message; a second start on it refuses the calls of both.
    The stop of a block proves nothing, for cut blocks are stopped too: a call is proven by its
    stop and, after that, a stop reason of success.
    The first success stands, a later failure revokes it, and the first failure stands.
    A proven call without one character of arguments has the arguments `{}`: the wire says so.
    Some servers put the whole input into the start: it is a copy, which the fragments, if there are
    any, must equal to the byte.
    A fragment of a block that never started belongs to a call whose head was lost: it is refused,
    and seen. A fragment for a block that can have none may be of any call.
    What belongs to a message that never started, or has its stop reason already, is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from processor.core.events import ResponseOutcome
from processor.core.limits import ARGUMENTS_BYTES_CEILING
from processor.dialects.adapter import TooManyCalls
from processor.dialects.calls import Calls, CallSlot
from processor.dialects.object_text import Unwritable, object_text

#: Blocks of one message, texts and results included; each costs some 200 bytes.
BLOCKS_MAX: Final = 10_000
_NO_ARGUMENTS: Final = "{}"


@dataclass(slots=True, eq=False)
class _Block:
    """One block. Without `slot` it is no call of ours."""

    slot: CallSlot | None
    #: True for what the provider itself executes: its input is streamed too, and is none of ours.
    is_providers: bool = False
    #: True while only fragments of the call have come.
    is_headless: bool = False
    is_stopped: bool = False
    has_text: bool = False
    #: The input that the start had, as a text.
    copy: str | None = None


class Blocks:
    """The blocks of one message. Cost: constant per event, but for what refuses or ends calls."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._by_index: dict[int, _Block] = {}
        self._headless: list[CallSlot] = []
        #: Calls that are stopped and not proven.
        self._unproven: list[_Block] = []
        self._has_started = False
        #: What the stop reason says; None before it.
        self._outcome: ResponseOutcome | None = None
        self._detail: str | None = None

    @property
    def has_stop_reason(self) -> bool:
        """True once the wire said why the message stops."""
        return self._outcome is not None

    def start_message(self) -> None:
        """The message starts. In the midst of its blocks that is another attempt: all is refused."""
        if self._by_index:
            self._calls.refuse_all("malformed_event")
        self._has_started = True

    def start_call(
        self,
        index: int,
        call_id: str | None,
        tool: str | None,
        given: object,
        *,
        refusal: str | None = None,
    ) -> None:
        """A block that is a call of ours, with the input that its start has.

        With `refusal`, one that is refused by that reason.
        """
        block = self._by_index.get(index)
        if block is not None and block.is_headless and block.slot is not None:
            slot, block.is_headless = block.slot, False
        else:
            slot = self._open(index)
            slot.doom = self._doom(block) or refusal
            self._refuse(block)
            block = _Block(slot)
            self._keep(index, block)
        slot.bind(call_id, tool)
        if call_id is None:
            slot.abort("missing_call_id")
        elif tool is None:
            slot.abort("tool_name_missing")
        elif given not in (None, {}, "") and slot.is_alive:
            self._keep_copy(block, slot, given)

    def start_other(self, index: int, *, is_providers: bool) -> None:
        """A block that is no call of ours: text, a result, or what the provider executes."""
        block = self._by_index.get(index)
        self._refuse(block)
        if block is None:
            self._keep(index, _Block(None, is_providers))

    def append(self, index: int, text: object) -> None:
        """A fragment of arguments."""
        block = self._by_index.get(index)
        if block is None:
            slot = self._open(index)
            slot.doom = "missing_start"
            self._headless.append(slot)
            self._keep(index, _Block(slot, is_headless=True))
        elif block.slot is None:
            if not block.is_providers:
                self._calls.abort_all("ambiguous_identity")
        elif block.is_headless:
            pass
        elif not isinstance(text, str):
            block.slot.abort("arguments_not_text")
        elif text and block.is_stopped:
            block.slot.abort("fragment_after_end")
        elif text:
            block.has_text = True
            block.slot.append(text)

    def append_other(self, index: int) -> None:
        """A fragment of anything else, which no call has. Its block may have had no start."""
        block = self._by_index.get(index)
        if block is None:
            self._keep(index, _Block(None))
        elif block.slot is not None and not block.is_headless:
            block.slot.abort("malformed_event")

    def stop(self, index: int) -> bool:
        """The block stops; False when there was none."""
        block = self._by_index.get(index)
        if block is None:
            self._keep(index, _Block(None))
            return False
        if block.slot is not None and not block.is_stopped:
            self._unproven.append(block)
        block.is_stopped = True
        return True

    def see_stop_reason(self, outcome: ResponseOutcome, word: str | None) -> None:
        """Why the message stops. A success proves the calls that are stopped by now."""
        if outcome != "completed":
            if self._outcome in (None, "completed"):
                self._outcome, self._detail = outcome, word
            return
        if self._outcome is None:
            self._outcome = outcome
        if self._outcome == "completed":
            stopped, self._unproven = self._unproven, []
            for block in stopped:
                self._finish(block)

    def end(self, missing: ResponseOutcome, *, is_clean: bool) -> None:
        """The message is over: by its stop reason, or by `missing` when nothing else is proven.

        A success counts only with `is_clean`, a failure always.
        """
        for slot in self._headless:
            slot.abort("missing_start")
        outcome = self._outcome
        if outcome is None or (outcome == "completed" and not is_clean):
            self._calls.end_all(missing)
        else:
            self._calls.end_all(outcome, self._detail)

    def _keep_copy(self, block: _Block, slot: CallSlot, given: object) -> None:
        """Keep the input of a start until the call is proven."""
        if not isinstance(given, Mapping):
            slot.abort("malformed_event")
            return
        try:
            text = object_text(cast("Mapping[str, object]", given))
        except Unwritable as refused:
            slot.abort(refused.reason)
            return
        if len(text) > ARGUMENTS_BYTES_CEILING or not self._calls.hold(len(text)):
            slot.abort("too_large")
            return
        block.copy = text

    def _finish(self, block: _Block) -> None:
        if block.slot is None:
            return
        copy = block.copy
        if copy is None and not block.has_text:
            copy = _NO_ARGUMENTS
        block.slot.finish(copy)

    def _open(self, index: int) -> CallSlot:
        slot = self._calls.open(f"block:{len(self._calls.slots)}")
        slot.output_index = index
        return slot

    def _doom(self, former: _Block | None) -> str | None:
        """Why a call that starts now is refused, if it is."""
        if former is not None:
            return "identity_conflict"
        if not self._has_started:
            return "missing_start"
        return None if self._outcome is None else "fragment_after_end"

    def _refuse(self, former: _Block | None) -> None:
        if former is not None and former.slot is not None:
            former.slot.abort("missing_start" if former.is_headless else "identity_conflict")

    def _keep(self, index: int, block: _Block) -> None:
        if len(self._by_index) >= BLOCKS_MAX:
            raise TooManyCalls
        self._by_index[index] = block
