"""Server-sent events out of bytes (WHATWG HTML, section 9.2).

Rules:
    Several `data` lines of one event join with LF; one space after the colon is not part of it.
    Comments keep a connection alive and mean nothing; `event`, `id` and `retry` are not used, since
    every dialect repeats in the data what it needs.
    An event is complete at its blank line; what has none at the end of the input is dropped.
"""

from processor.dialects.lines import LINE_BYTES_MAX, Frame, LineSplitter


class SseReader:
    """Feed bytes in any cutting, take the data of the events. Cost: linear."""

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._lines = LineSplitter(bytes_max)
        self._bytes_max = bytes_max
        self._data = bytearray()
        self._size = 0
        self._first_line = 0
        self._is_overlong = False

    def feed(self, data: bytes) -> list[Frame]:
        """The data of the events that end within `data`."""
        frames: list[Frame] = []
        for line in self._lines.feed(data):
            if line.data == b"":
                self._dispatch(frames)
            else:
                self._field(line)
        return frames

    def close(self) -> list[Frame]:
        """The input is over; an event without its blank line is none."""
        return []

    def _field(self, line: Frame) -> None:
        if line.data is None:
            # Only data can be that long.
            self._begin(line.line)
            self._is_overlong = True
            return
        name, _, value = line.data.partition(b":")
        if name != b"data":
            return
        self._begin(line.line)
        value = value.removeprefix(b" ")
        self._size += len(value) + 1
        if self._size > self._bytes_max:
            self._is_overlong = True
            self._data.clear()
        else:
            self._data += value
            self._data += b"\n"

    def _begin(self, line: int) -> None:
        if not self._first_line:
            self._first_line = line

    def _dispatch(self, frames: list[Frame]) -> None:
        if not self._first_line:
            return
        if self._is_overlong:
            frames.append(Frame(None, self._first_line))
        elif self._data.strip(b"\n"):
            frames.append(Frame(bytes(self._data[:-1]), self._first_line))
        self._size, self._first_line, self._is_overlong = 0, 0, False
        self._data.clear()
