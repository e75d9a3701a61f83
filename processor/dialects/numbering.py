"""The vendor's own numbers on its events: what is new, what is repeated, what has been lost.

Rules (OpenAI Responses, `sequence_number`; a resumed stream may send events again):
    The first number is whatever the first event carries; each next one is higher by one.
    A number already seen is a repeat if the event says the same, else a conflict.
    A number from before the first one, or before a gap, is too late to be put in its place.
"""

from array import array
from typing import Final, Literal

Arrival = Literal["next", "repeat", "gap", "late", "conflict"]

#: Events whose content is remembered, at eight bytes each.
REMEMBERED_MAX: Final = 1_048_576


class Numbering:
    """Judges one number after the other. Cost: constant each."""

    def __init__(self) -> None:
        self._base = 0
        self._contents: array[int] | None = None

    def judge(self, number: int, content: int) -> Arrival:
        """What `number` is; `content` is a hash of what its event says."""
        seen = self._contents
        if seen is None or number > self._base + len(seen):
            self._base, self._contents = number, array("q", [content])
            return "next" if seen is None else "gap"
        at = number - self._base
        if at < 0:
            return "late"
        if at < len(seen):
            return "repeat" if seen[at] == content else "conflict"
        if len(seen) >= REMEMBERED_MAX:
            self._base, self._contents = number, array("q")
            seen = self._contents
        seen.append(content)
        return "next"
