"""Calls that come whole, with their arguments as a value: how they begin, and come again.

Rules:
    With an id, the id names the call. Without one, the name that its dialect makes up does.
    Absent arguments are `{}`: a dialect that sends values has no other way to say that.
    A call without a tool is refused, and seen.
    An id that comes again with the same tool and text is a repeat, with anything else a conflict.
"""

from collections.abc import Mapping
from typing import cast

from processor.core.limits import ARGUMENTS_BYTES_CEILING
from processor.dialects.calls import CallSlot
from processor.dialects.object_text import Unwritable, object_text


class WholeCalls:
    """Remembers of each call that came whole what it said, at eight bytes each."""

    def __init__(self) -> None:
        self._said: dict[CallSlot, int] = {}

    def fill(self, slot: CallSlot, arguments: object) -> None:
        """Give a call that has just begun its arguments, or refuse it."""
        text = _text_or_refusal(slot, arguments)
        if text is not None:
            self._said[slot] = hash((slot.tool, text))
            slot.append(text)

    def repeat(self, owner: CallSlot, tool: str | None, arguments: object) -> None:
        """The id of `owner` came again."""
        text = _text_or_refusal(owner, arguments)
        if text is not None and self._said.get(owner) != hash((tool, text)):
            owner.abort("identity_conflict")


def begin(slot: CallSlot, call_id: str | None, tool: str | None) -> None:
    """Bind what names a call, made up where the wire has no id."""
    if call_id is None:
        slot.bind_made_up_id()
    slot.bind(call_id, tool)
    if tool is None:
        slot.abort("tool_name_missing")


def _text_or_refusal(slot: CallSlot, arguments: object) -> str | None:
    """The text of a whole value; None when the call had to be refused for it."""
    value: object = {} if arguments is None else arguments
    if not isinstance(value, Mapping):
        slot.abort("not_an_object")
        return None
    try:
        text = object_text(cast("Mapping[str, object]", value))
    except Unwritable as e:
        slot.abort(e.reason)
        return None
    if len(text) > ARGUMENTS_BYTES_CEILING:
        slot.abort("too_large")
        return None
    return text
