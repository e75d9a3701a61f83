"""JSON values out of bytes: one a line, or the elements of one array that is sent piece by piece.

Rules:
    The text of a value is passed on as it is; only where it begins and ends is found here.
    A blank line is nothing. The last line needs no line end.
    A value that is read twice in two ways is refused: duplicate members, NaN and infinities.
    Numbers keep their digits: integers are exact, fractions are `LosslessFloat`.
"""

import json
import re
from typing import Final, Never

import jiter

from processor.dialects.fields import Malformed
from processor.dialects.lines import LINE_BYTES_MAX, Frame, LineSplitter

_SPACE: Final = b" \t\r\n"
_OUTSIDE: Final = re.compile(rb'["{}\[\],]')
_INSIDE: Final = re.compile(rb'["\\]')


def decode(data: bytes) -> object:
    """The value of one JSON text; halves of characters stay as they are (`surrogates` joins them).

    Raises: `Malformed` without the parser's text, which quotes content.
    """
    try:
        return jiter.from_json(
            data, allow_inf_nan=False, catch_duplicate_keys=True, float_mode="lossless-float"
        )
    except ValueError:
        pass
    # The strict parser refuses lone halves too; a lenient one, as strict in all else, decides.
    if b"\\u" not in data:
        raise Malformed
    try:
        return json.loads(
            data.decode(),
            object_pairs_hook=_unique_members,
            parse_constant=_refuse_constant,
            parse_float=_with_digits,
        )
    except (ValueError, RecursionError):
        raise Malformed from None


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def _with_digits(text: str) -> jiter.LosslessFloat:
    return jiter.LosslessFloat(text.encode())


def _refuse_constant(_: str) -> Never:
    raise ValueError


class JsonLinesReader:
    """Feed bytes in any cutting, take the lines. Cost: linear."""

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._lines = LineSplitter(bytes_max)

    def feed(self, data: bytes) -> list[Frame]:
        """The lines that end within `data`, blank ones left out."""
        return [line for line in self._lines.feed(data) if not _is_blank(line)]

    def close(self) -> list[Frame]:
        """The last line, if it has no end."""
        last = self._lines.close()
        return [] if last is None or _is_blank(last) else [last]


def _is_blank(line: Frame) -> bool:
    return line.data is not None and not line.data.strip(_SPACE)


class JsonArrayReader:
    """Feed the bytes after an array's opening bracket, take its elements. Cost: linear.

    What follows the array, and an array that never ends, is one frame that cannot be read.
    """

    def __init__(self, bytes_max: int = LINE_BYTES_MAX, first_line: int = 1) -> None:
        self._bytes_max = bytes_max
        self._depth = 1
        self._is_string = False
        self._escapes = False
        self._has_more = False
        self._begun = bytearray()
        self._size = 0
        self._line = self._first_line = first_line

    def feed(self, data: bytes) -> list[Frame]:
        """The elements that end within `data`."""
        frames: list[Frame] = []
        at = start = 0
        while self._depth and at < len(data):
            if self._escapes:
                self._escapes, at = False, at + 1
                continue
            found = (_INSIDE if self._is_string else _OUTSIDE).search(data, at)
            if found is None:
                break
            at = found.end()
            if self._ends_element(found.group()):
                self._keep(data[start : at - 1])
                self._cut(frames)
                start = at
        if self._depth:
            self._keep(data[start:])
        else:
            self._has_more = self._has_more or bool(data[start:].strip(_SPACE))
        return frames

    def close(self) -> list[Frame]:
        """What is left over, as something that cannot be read."""
        return [Frame(None, self._line)] if self._depth or self._has_more else []

    def _ends_element(self, token: bytes) -> bool:
        """Follow one token; True where an element of the array ends."""
        if self._is_string:
            self._escapes = token == b"\\"
            self._is_string = token != b'"'
        elif token == b'"':
            self._is_string = True
        elif token in b"[{":
            self._depth += 1
        elif token in b"]}":
            self._depth -= 1
            return self._depth == 0
        else:
            return self._depth == 1
        return False

    def _keep(self, piece: bytes) -> None:
        if not self._size:
            text = piece.lstrip(_SPACE)
            self._line += piece[: len(piece) - len(text)].count(b"\n")
            self._first_line, piece = self._line, text
        self._line += piece.count(b"\n")
        self._size += len(piece)
        if self._size > self._bytes_max:
            self._begun.clear()
        else:
            self._begun += piece

    def _cut(self, frames: list[Frame]) -> None:
        """An element is whole. Nothing at all is one too, but for what closes an empty array."""
        if self._size > self._bytes_max:
            frames.append(Frame(None, self._first_line))
        elif self._size or self._depth:
            frames.append(Frame(bytes(self._begun), self._first_line))
        self._size = 0
        self._begun.clear()
