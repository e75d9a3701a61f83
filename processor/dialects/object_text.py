"""Arguments that the wire carries as a value and not as a text: the one text that we make of them.

Rules:
    Members in the order of the wire, no white space, characters as they are, numbers with the
    digits of the wire (the decoder keeps those of fractions; only an integer -0 becomes 0).
    Nothing is rounded, left out or put right; what is no JSON object is refused.
    A float was read by another decoder, which may have rounded it: its value is the nearest double.
    From 2^53 on a double no longer holds every integer, so there a float is refused.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

import jiter

from processor.dialects.fields import is_number

#: Nested containers; twice what the assembler takes by default, and far from the end of the stack.
DEPTH_MAX: Final = 128
#: The first double from which on neighbouring integers are lost.
FLOAT_INTEGER_MAX: Final = 2.0**53

_CONSTANTS: Final = {None: "null", True: "true", False: "false"}


class Unwritable(Exception):
    """A value has no text that may be written; carries a reason of the closed list, no content."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def object_text(value: Mapping[str, object]) -> str:
    """The compact text of an object. Cost: linear. Raises: `Unwritable`."""
    pieces: list[str] = []
    _write(value, pieces, 1)
    return "".join(pieces)


def number_text(value: float | jiter.LosslessFloat) -> str:
    """The digits of a number; what is not finite stays so. Raises: `Unwritable`."""
    if isinstance(value, jiter.LosslessFloat):
        return str(value)
    if isinstance(value, float) and FLOAT_INTEGER_MAX <= abs(value) < math.inf:
        raise Unwritable("number_out_of_range")
    try:
        return json.dumps(value)
    except ValueError:
        # An integer with more digits than Python writes.
        raise Unwritable("number_out_of_range") from None


def _write(value: object, pieces: list[str], depth: int) -> None:
    if isinstance(value, str):
        pieces.append(json.dumps(value, ensure_ascii=False))
    elif value is None or isinstance(value, bool):
        pieces.append(_CONSTANTS[value])
    elif is_number(value) or isinstance(value, float | jiter.LosslessFloat):
        pieces.append(number_text(value))
    elif depth > DEPTH_MAX:
        raise Unwritable("too_deep")
    elif isinstance(value, Mapping):
        _write_members(cast("Mapping[object, object]", value), pieces, depth)
    elif isinstance(value, list | tuple):
        _write_elements(cast("Sequence[object]", value), pieces, depth)
    else:
        raise Unwritable("malformed_event")


def _write_members(of: Mapping[object, object], pieces: list[str], depth: int) -> None:
    before = "{"
    for name, member in of.items():
        if not isinstance(name, str):
            raise Unwritable("malformed_event")
        pieces += (before, json.dumps(name, ensure_ascii=False), ":")
        _write(member, pieces, depth + 1)
        before = ","
    pieces.append("}" if of else "{}")


def _write_elements(of: Sequence[object], pieces: list[str], depth: int) -> None:
    before = "["
    for element in of:
        pieces.append(before)
        _write(element, pieces, depth + 1)
        before = ","
    pieces.append("]" if of else "[]")
