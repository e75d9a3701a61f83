"""Checks of single fields: what a reader accepts, and so what a writer must keep to.

Rules:
    Texts that name something are short, not empty and free of control characters: they end up in
    logs, on pages and in a database that holds no NUL.
    The text of an error names the field and the bound, never the value.
"""

import re
from typing import Final

from processor.core.identity import IdentityError, checked_id

SEQ_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
TOOL_BYTES_MAX: Final = 256
MODEL_BYTES_MAX: Final = 256
DIALECT_BYTES_MAX: Final = 64
REASON_BYTES_MAX: Final = 64
DETAIL_BYTES_MAX: Final = 256
DIGEST_BYTES_MAX: Final = 128
ERROR_CLASS_BYTES_MAX: Final = 256
COUNTER_NAME_BYTES_MAX: Final = 256
COUNTERS_MAX: Final = 256

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class InvalidField(ValueError):
    """A field breaks its rule; the text names the field, not the value."""


def check_text(name: str, value: str, bytes_max: int) -> None:
    """Refuse a text that is empty, longer than `bytes_max` in UTF-8, or has control characters."""
    if not value:
        raise InvalidField(f"{name} is empty")
    # A character takes a byte at least and four at most.
    if len(value) * 4 > bytes_max:
        try:
            size = len(value.encode())
        except UnicodeEncodeError as e:
            raise InvalidField(f"{name} is not valid Unicode") from e
        if size > bytes_max:
            raise InvalidField(f"{name} has {size} bytes, the limit is {bytes_max}")
    if _CONTROL.search(value):
        raise InvalidField(f"{name} has a control character")


def check_id(name: str, value: str) -> None:
    """Refuse what may not be an id by the rules of the call key, and control characters."""
    try:
        checked_id(name, value)
    except IdentityError as e:
        raise InvalidField(str(e)) from e
    if _CONTROL.search(value):
        raise InvalidField(f"{name} has a control character")


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Refuse a number outside of `least` to `most`."""
    if not least <= value <= most:
        raise InvalidField(f"{name} is not within {least} to {most}")
