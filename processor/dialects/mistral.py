"""Mistral's chat chunks: the Chat form, with arguments that may be an object.

Rules (mistralai `client/models/toolcall.py`, `functioncall.py`, `completionresponsestreamchoice.py`;
reports about relays):
    Whose an entry is, what ends a call and what refuses it: as in `openai_chat`. The index is
    optional and says little; an id that is the text `null` is absent.
    Mistral's own models send a call whole, in the chunk of the finish_reason; relays cut its text.
    An object is the whole arguments of its call: its text is our serialisation, and a second object
    or a text beside it, before or after, refuses the call.
    Nothing but the choice's finish_reason proves a call; `error` is one of its words.
    An error may also come flat, as a chunk with `object` error.
"""

import re
from collections.abc import Mapping
from typing import ClassVar, Final, cast

from processor.dialects import openai_chat
from processor.dialects.calls import Calls, CallSlot
from processor.dialects.fields import Chunk, Malformed, object_or_none, objects
from processor.dialects.object_text import Unwritable, object_text
from processor.dialects.usage import CounterNames

#: The ids that Mistral's models give to calls.
_CALL_ID: Final = re.compile(r"[A-Za-z0-9]{9}")

refusal = openai_chat.refusal


def is_told_apart(chunk: Chunk) -> bool:
    """True for a chunk that no other server of the Chat form sends: padded, with an id of nine.

    Either alone is also sent by others.
    """
    if not isinstance(chunk.get("p"), str) or openai_chat.is_told_apart(chunk):
        return False
    try:
        deltas = [object_or_none(choice, "delta") or {} for choice in objects(chunk, "choices")]
        ids = [entry.get("id") for delta in deltas for entry in objects(delta, "tool_calls")]
    except Malformed:
        return False
    return any(isinstance(found, str) and _CALL_ID.fullmatch(found) for found in ids)


class MistralAdapter(openai_chat.ChatAdapter):
    """The adapter of one response."""

    counter_names: ClassVar[CounterNames] = CounterNames(
        input_tokens=("prompt_tokens",),
        output_tokens=("completion_tokens",),
        total_tokens=("total_tokens",),
        cached_input_tokens=(),
        reasoning_tokens=(),
    )

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls)
        #: By call, whether its latest arguments were an object; absent before the first.
        self._had_object: dict[CallSlot, bool] = {}

    def observe(self, chunk: Chunk) -> None:
        """One chunk, or a flat error."""
        if chunk.get("object") == "error":
            self._calls.abort_all("stream_error")
            self._calls.end_all("failed")
        else:
            super().observe(chunk)

    def add_arguments(self, slot: CallSlot, arguments: object) -> None:
        """A fragment, or the one object that is the whole."""
        is_object = isinstance(arguments, Mapping)
        had_object = self._had_object.get(slot)
        self._had_object[slot] = is_object
        if is_object and had_object is None and slot.arguments_format != "text":
            self._add_object(slot, cast("Chunk", arguments))
        elif is_object or had_object:
            slot.abort("arguments_not_text")
        else:
            super().add_arguments(slot, arguments)

    def _add_object(self, slot: CallSlot, arguments: Chunk) -> None:
        try:
            text = object_text(arguments)
        except Unwritable as e:
            slot.abort(e.reason)
        else:
            slot.append(text)
