"""Lines of a byte stream, however it is cut: the ground of server-sent events and of JSON lines.

Rules:
    LF, CRLF and CR end a line; a CRLF cut between its two bytes is one end.
    A line longer than its bound is dropped as a whole, and said so, before its memory is spent.
"""

import re
from typing import Final, NamedTuple

#: Longest line, and longest event or array element. A response's end repeats its whole output.
LINE_BYTES_MAX: Final = 16 * 1024 * 1024

_END: Final = re.compile(rb"\r\n|\r|\n")


class Frame(NamedTuple):
    """One message of the wire. `data` is None when it was longer than the bound."""

    data: bytes | None
    #: Where it begins, counted from 1.
    line: int


class LineSplitter:
    """Cost: linear in the bytes, in time and in memory, whatever the cuts."""

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._begun = bytearray()
        self._size = 0
        self._line = 0
        self._after_cr = False

    def feed(self, data: bytes) -> list[Frame]:
        """The lines that end within `data`, without their ends."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        *ended, rest = _END.split(data)
        lines = [self._end_line(tail) for tail in ended]
        self._keep(rest)
        return lines

    def close(self) -> Frame | None:
        """The last line, which nothing ended; None when there is none."""
        return self._end_line(b"") if self._size else None

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size > self._bytes_max:
            self._begun.clear()
        else:
            self._begun += piece

    def _end_line(self, tail: bytes) -> Frame:
        self._line += 1
        if not self._size:
            return Frame(tail if len(tail) <= self._bytes_max else None, self._line)
        self._keep(tail)
        whole = bytes(self._begun) if self._size <= self._bytes_max else None
        self._size = 0
        self._begun.clear()
        return Frame(whole, self._line)
