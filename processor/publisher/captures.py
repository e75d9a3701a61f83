"""Captured streams in files: server-sent events, JSON lines, or one JSON array of chunks.

Rules:
    Bytes go to the dialect as they are. Only an array is cut into its elements, one a line: their
    text is kept, so that no number is rounded on the way.
    A file is read in bounded pieces; an array has to fit `ARRAY_BYTES_MAX`.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from processor.core.errors import Misuse

ARRAY_BYTES_MAX: Final = 64 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = " \t\r\n"
#: Numbers stay text: here only the places where elements end are of interest.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


def read_capture(path: Path, progress: Callable[[int], object] = lambda _: None) -> Iterator[bytes]:
    """The file's stream in pieces for `observe`; `progress` gets the bytes of each piece.

    Raises: `Misuse` naming the file and, for an array, the place where it is not JSON.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_PIECE_BYTES)
            if not head:
                raise Misuse(f"{path} is empty, so it is no captured stream")
            if head.removeprefix(_BOM).lstrip()[:1] == b"[":
                yield from _elements(path, head, file, progress)
                return
            while head:
                progress(len(head))
                yield head
                head = file.read(_PIECE_BYTES)
    except OSError as e:
        raise Misuse(f"{path} cannot be read: {e.strerror}") from None


def _elements(
    path: Path, head: bytes, file: BinaryIO, progress: Callable[[int], object]
) -> Iterator[bytes]:
    data = head + file.read(ARRAY_BYTES_MAX - len(head) + 1)
    if len(data) > ARRAY_BYTES_MAX:
        raise Misuse(f"{path} is a JSON array of more than {ARRAY_BYTES_MAX} bytes; use JSON lines")
    try:
        text = data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as e:
        raise Misuse(f"{path} is not UTF-8 at byte {e.start}") from None
    at = _skip(text, 0) + 1
    while True:
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            break
        start, at = at, _element_end(path, text, at)
        # Line ends can only be space between tokens: strict JSON has none inside a string.
        piece = text[start:at].replace("\n", " ").replace("\r", " ").encode() + b"\n"
        progress(len(piece))
        yield piece
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "]":
            raise Misuse(f"{path} is no JSON array: no comma at character {at}")
    if text[at + 1 :].strip(_SPACE):
        raise Misuse(f"{path} goes on after its JSON array, at character {at + 1}")


def _element_end(path: Path, text: str, at: int) -> int:
    try:
        return _DECODER.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        raise Misuse(f"{path} is no JSON array: no element at character {at}") from None


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in _SPACE and at < len(text):
        at += 1
    return at
