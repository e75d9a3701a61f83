"""Strict JSON: the whole text is one JSON object, or it is refused by name.

Rules (RFC 8259, narrowed to what every reader understands alike, RFC 7493):
    Nothing is repaired, closed, split, stripped or guessed; white space around the object is legal.
    Duplicate members, NaN, infinities, lone surrogates and NUL characters are refused.
    Integers stay exact; a number beyond the range of a double is refused, never turned into one.
    The parser's own message quotes member names, so only its kind and position leave this file.
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Final, cast

import jiter

from processor.core._record import record

#: What a parsed JSON text is made of.
JsonValue = None | bool | int | float | Decimal | str | list["JsonValue"] | dict[str, "JsonValue"]

#: The widest integer that every reader of JSON carries exactly (RFC 7493, section 2.2).
INTEGER_EXACT_MAX: Final = 2**53 - 1
#: Digits of the largest double; a longer integer has no approximate value in most readers.
INTEGER_DIGITS_MAX: Final = 309

_INTEGER_BOUND: Final = 10**INTEGER_DIGITS_MAX
_INFINITY: Final = float("inf")
#: Between these, Python and ECMAScript both write the shortest digits without an exponent.
_PLAIN_MIN: Final = 1e-4
_PLAIN_MAX: Final = 1e16
_POSITION: Final = re.compile(r"at (line \d+ column \d+)$")
#: First words of the parser's message -> our reason. What is not listed is plain bad JSON.
_REASON_OF_MESSAGE: Final[tuple[tuple[str, str], ...]] = (
    ("Detected duplicate key", "duplicate_member"),
    ("number out of range", "number_out_of_range"),
    ("recursion limit exceeded", "too_deep"),
)


@record
class Fault:
    """Why a text was refused: a reason of the stage `validation` or `buffer`, and where."""

    reason: str
    detail: str


@record
class Parsed:
    """An accepted text. `exact` is False when a number would change in a reader of doubles.

    `plain` is True when names are ASCII and every fraction is written alike by Python and by
    ECMAScript, so that the standard library's encoder already gives the RFC 8785 form.
    """

    value: dict[str, JsonValue]
    exact: bool
    plain: bool


class _Refused(Exception):
    """Leaves the walk over a parsed value; never leaves this file."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.fault = Fault(reason, detail)


def parse_strict(text: bytes, *, depth_max: int, decimals: bool = False) -> Parsed | Fault:
    """Parse `text` as exactly one JSON object of at most `depth_max` nested containers.

    With `decimals`, numbers that are not integers become `Decimal` with every digit kept; otherwise
    the nearest float. Cost: linear in the text, about 2 µs for a small object.

    Returns: `Parsed`, or `Fault` with a reason of the closed list.
    """
    try:
        value = _from_json(text, nan_allowed=False)
    except ValueError as e:
        return _fault(text, str(e))
    if not isinstance(value, dict):
        return Fault("not_an_object", f"the text is a JSON {_kind(value)}")
    walk = _Walk(depth_max, decimals=decimals)
    try:
        walked = walk.container(cast("dict[str, object]", value), 1)
    except _Refused as refused:
        return refused.fault
    return Parsed(cast("dict[str, JsonValue]", walked), walk.exact, walk.plain)


def _from_json(text: bytes, *, nan_allowed: bool) -> object:
    return jiter.from_json(
        text, allow_inf_nan=nan_allowed, catch_duplicate_keys=True, float_mode="lossless-float"
    )


def _fault(text: bytes, message: str) -> Fault:
    if not text.strip(b" \t\r\n"):
        return Fault("empty_arguments", f"{len(text)} bytes, no JSON value")
    found = _POSITION.search(message)
    where = found.group(1) if found else f"in {len(text)} bytes"
    try:
        text.decode()
    except UnicodeDecodeError as e:
        return Fault("invalid_utf8", f"byte {e.start} of {len(text)}")
    for start, reason in _REASON_OF_MESSAGE:
        if message.startswith(start):
            return Fault(reason, where)
    try:
        _from_json(text, nan_allowed=True)
    except ValueError:
        return Fault("invalid_json", where)
    return Fault("non_finite_number", where)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "number"


class _Walk:
    """One pass over a parsed value: depth, NUL characters, and numbers in their final type."""

    __slots__ = ("decimals", "depth_max", "exact", "plain")

    def __init__(self, depth_max: int, *, decimals: bool) -> None:
        self.depth_max = depth_max
        self.decimals = decimals
        self.exact = True
        self.plain = True

    def container(self, value: dict[str, object] | list[object], depth: int) -> object:
        """Check the members of `value` in place and return it."""
        if depth > self.depth_max:
            raise _Refused("too_deep", f"more than {self.depth_max} nested containers")
        if isinstance(value, dict):
            for name, member in value.items():
                if "\0" in name:
                    raise _Refused("nul_character", "in a member name")
                if not name.isascii():
                    self.plain = False
                if type(member) is not str or "\0" in member:
                    value[name] = self._member(member, depth)
        else:
            for index, member in enumerate(value):
                if type(member) is not str or "\0" in member:
                    value[index] = self._member(member, depth)
        return value

    def _member(self, member: object, depth: int) -> object:
        if isinstance(member, dict | list):
            return self.container(cast("dict[str, object] | list[object]", member), depth + 1)
        if isinstance(member, str):
            raise _Refused("nul_character", "in a string")
        if isinstance(member, jiter.LosslessFloat):
            return self._fraction(member)
        if isinstance(member, int) and not -INTEGER_EXACT_MAX <= member <= INTEGER_EXACT_MAX:
            if not -_INTEGER_BOUND < member < _INTEGER_BOUND:
                raise _Refused("number_out_of_range", f"over {INTEGER_DIGITS_MAX} digits")
            self.exact = False
        return member

    def _fraction(self, member: jiter.LosslessFloat) -> object:
        nearest = float(member)
        if nearest in (_INFINITY, -_INFINITY):
            raise _Refused("number_out_of_range", "beyond the range of a double")
        try:
            written = Decimal(str(member))
        except InvalidOperation as e:
            raise _Refused("number_out_of_range", "an exponent beyond 18 digits") from e
        if written != Decimal(repr(nearest)):
            self.exact = False
        if self.decimals or nearest.is_integer() or not _PLAIN_MIN <= abs(nearest) < _PLAIN_MAX:
            self.plain = False
        return written if self.decimals else nearest
