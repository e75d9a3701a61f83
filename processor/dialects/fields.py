"""Reading the fields of a decoded chunk: what is absent, what is there, what cannot be read.

Rules:
    Absent is a missing field, null, or an empty text. For an id also the words that stand for
    nothing in one language or another (`null`, `None`, `undefined`).
    What is longer than an id or a name may be is not kept: a digest stands for it, which is the
    same for the same text, and may be no id and no name either.
    A field of another type than its dialect says is not guessed at: the whole chunk is `Malformed`.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard, cast

from processor.core.identity import IdentityError, checked_id
from processor.core.limits import ID_BYTES_MAX

#: Largest number that a position or a counter of the wire may have (a 32-bit integer).
NUMBER_MAX: Final = 2**31 - 1
#: Longest name of a tool or a model, in UTF-8.
NAME_BYTES_MAX: Final = 256

_WORDS_FOR_NOTHING: Final = frozenset({"None", "null", "undefined"})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_VENDOR_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")

Chunk = Mapping[str, object]


class Malformed(Exception):
    """A chunk cannot be read as its dialect; carries no text, since that could quote content."""


def text_or_none(of: Chunk, name: str) -> str | None:
    """The text under `name`, None when absent. Raises: `Malformed` for another type."""
    value = of.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise Malformed
    return value


def id_or_none(of: Chunk, name: str) -> str | None:
    """As `text_or_none`; the words for nothing are absent too."""
    value = text_or_none(of, name)
    if value is None or value in _WORDS_FOR_NOTHING:
        return None
    return value if len(value) <= ID_BYTES_MAX else _stand_in(value)


def handle_or_none(of: Chunk, name: str) -> str | None:
    """As `text_or_none`, for a text that leads to something and may be anything."""
    value = text_or_none(of, name)
    return value if value is None or len(value) <= ID_BYTES_MAX else _stand_in(value)


def name_or_none(of: Chunk, name: str) -> str | None:
    """As `text_or_none`, for the name of a tool."""
    value = text_or_none(of, name)
    return value if value is None or len(value) <= NAME_BYTES_MAX else _stand_in(value)


def _stand_in(value: str) -> str:
    # A NUL makes it what no id and no name may be.
    return "\0" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def number_or_none(of: Chunk, name: str) -> int | None:
    """The position under `name`, 0 to `NUMBER_MAX`. Raises: `Malformed` for anything else."""
    value = of.get(name)
    if value is None:
        return None
    if not is_number(value) or not 0 <= value <= NUMBER_MAX:
        raise Malformed
    return value


def object_or_none(of: Chunk, name: str) -> Chunk | None:
    """The object under `name`. Raises: `Malformed` for anything but an object or null."""
    value = of.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise Malformed
    return cast("Chunk", value)


def objects(of: Chunk, name: str) -> Sequence[Chunk]:
    """The list of objects under `name`, empty when absent. Raises: `Malformed` for another type."""
    value = of.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise Malformed
    entries = cast("Sequence[object]", value)
    if not all(isinstance(entry, Mapping) for entry in entries):
        raise Malformed
    return cast("Sequence[Chunk]", entries)


def is_number(value: object) -> TypeGuard[int]:
    """True for an integer that is not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_id(value: str) -> bool:
    """True for what an id may be by the rules of the call key."""
    try:
        checked_id("id", value)
    except IdentityError:
        return False
    return True


def is_name(value: str) -> bool:
    """True for what may name a tool or a model: short, valid Unicode, no control characters."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return False
    return 0 < size <= NAME_BYTES_MAX and _CONTROL.search(value) is None


def has_control(value: str) -> bool:
    """True when a text has control characters."""
    return _CONTROL.search(value) is not None


def vendor_word(value: str | None) -> str | None:
    """A short code of the vendor that may be passed on; None for what could be a sentence."""
    return value if value is not None and _VENDOR_WORD.fullmatch(value) else None
