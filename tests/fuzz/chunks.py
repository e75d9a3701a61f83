"""Streams as lists of chunks and back, read and written without the code under test."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, Literal, cast

from tests.unit.dialects.wires import Chunk

Framing = Literal["sse", "crlf", "lines", "array"]
FRAMINGS: Final[tuple[Framing, ...]] = ("sse", "crlf", "lines", "array")


def chunks_of(data: bytes) -> list[Chunk]:
    """The decoded events of a stream, all that are JSON objects; `[DONE]` and comments left out."""
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return [value for piece in _pieces(text) if isinstance(value := _value(piece), dict)]


def framed(chunks: Iterable[object], framing: Framing) -> bytes:
    """The chunks as bytes; what is left of characters stays an escape."""
    texts = [json.dumps(chunk) for chunk in chunks]
    if framing == "array":
        return f"[{','.join(texts)}]".encode()
    if framing == "lines":
        return "".join(text + "\n" for text in texts).encode()
    end = "\r\n" if framing == "crlf" else "\n"
    return "".join(f"data: {text}{end}{end}" for text in texts).encode()


def _pieces(text: str) -> Iterator[str]:
    start = text.lstrip()
    if start.startswith("["):
        whole = _value(start)
        elements = cast("list[object]", whole) if isinstance(whole, list) else []
        yield from map(json.dumps, elements)
    elif start.startswith("{"):
        yield from text.splitlines()
    else:
        for block in text.split("\n\n"):
            lines = [line[5:].removeprefix(" ") for line in block.split("\n") if _is_data(line)]
            yield "\n".join(lines)


def _is_data(line: str) -> bool:
    return line.startswith("data:")


def _value(text: str) -> object:
    with suppress(ValueError, RecursionError):
        return cast("object", json.loads(text))
    return None
