"""Characters cut between their two UTF-16 halves: joined across the fragments of one call.

Rules (RFC 8259, section 8.2; the Unicode Standard, section 3.8):
    A high half at the very end of a fragment waits for the next fragment of the same call.
    Any other half without its partner cannot be UTF-8: `Unpaired`, nothing is replaced.
"""

from typing import Final

_HIGH_FIRST: Final = "\ud800"
_HIGH_LAST: Final = "\udbff"


class Unpaired(Exception):
    """Half of a character has no partner; carries no text."""


class SurrogateJoiner:
    """Turns the texts of one call's fragments into UTF-8. Cost: one encode for an ordinary text."""

    __slots__ = ("_high",)

    def __init__(self) -> None:
        self._high = ""

    @property
    def waits(self) -> bool:
        """True while a high half has no partner yet."""
        return bool(self._high)

    def join(self, text: str) -> bytes:
        """The bytes that are certain after `text`. Raises: `Unpaired`."""
        if not self._high:
            try:
                return text.encode()
            except UnicodeEncodeError:
                pass
        text = self._high + text
        self._high = ""
        if _HIGH_FIRST <= text[-1:] <= _HIGH_LAST:
            self._high = text[-1]
            text = text[:-1]
        return encode_whole(text)


def encode_whole(text: str) -> bytes:
    """UTF-8 of a text that is complete; pairs of halves become characters. Raises: `Unpaired`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le").encode()
    except UnicodeDecodeError:
        raise Unpaired from None
