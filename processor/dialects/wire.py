"""The bytes of a captured or running stream as messages, whatever their framing.

Rules:
    The first character decides, after a byte order mark and white space: `{` begins JSON lines,
    `[` a JSON array of chunks, anything else server-sent events, and so does too much white space.
"""

from typing import Final, Protocol

from processor.dialects.json_lines import JsonArrayReader, JsonLinesReader
from processor.dialects.lines import LINE_BYTES_MAX, Frame
from processor.dialects.sse import SseReader

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
#: White space in front of the first character; with more, that character decides nothing.
_HEAD_BYTES_MAX: Final = 64 * 1024


class _Reader(Protocol):
    def feed(self, data: bytes) -> list[Frame]: ...

    def close(self) -> list[Frame]: ...


class WireReader:
    """Feed bytes in any cutting, take the messages. `bytes_max` bounds one message."""

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._head = bytearray()
        self._reader: _Reader | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """The messages that end within `data`."""
        if self._reader is None:
            self._head += data
            if not self._is_decided(data):
                return []
            self._reader, data = self._choose(bytes(self._head.removeprefix(_BOM)))
            self._head.clear()
        return self._reader.feed(data)

    def close(self) -> list[Frame]:
        """The input is over: what an end of input completes."""
        return [] if self._reader is None else self._reader.close()

    def _is_decided(self, data: bytes) -> bool:
        """Cost: linear over all of the head; the whole of it is looked at for no more than a mark."""
        if data.strip(_SPACE):
            head = bytes(self._head)
            if not _BOM.startswith(head) and head.removeprefix(_BOM).strip(_SPACE):
                return True
        return len(self._head) > _HEAD_BYTES_MAX + len(_BOM)

    def _choose(self, data: bytes) -> tuple[_Reader, bytes]:
        text = data.lstrip(_SPACE)
        blank = len(data) - len(text)
        if blank > _HEAD_BYTES_MAX:
            return SseReader(self._bytes_max), data
        if text.startswith(b"["):
            first_line = 1 + data[:blank].count(b"\n")
            return JsonArrayReader(self._bytes_max, first_line), text[1:]
        if text.startswith(b"{"):
            return JsonLinesReader(self._bytes_max), data
        return SseReader(self._bytes_max), data
