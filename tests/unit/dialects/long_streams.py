"""Long well-formed responses of every dialect, made piece by piece, with the vendors' own fields.

Every call has the arguments `{"a": text}`. Where the wire cuts arguments, a piece is a chunk; Ollama
never cuts them, so there a piece is a line of text beside the calls.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.unit.dialects.cohere_events import BEGIN, delta, end, message_end, start
from tests.unit.dialects.messages import ANTHROPIC, BEDROCK, MessageWire
from tests.unit.dialects.value_wires import CLOSE, gemini, head, leaf, leaves, ollama, ollama_call
from tests.unit.dialects.wires import (
    Chunk,
    chat,
    entry,
    item,
    item_event,
    lifecycle,
    text_event,
)

OPENING, CLOSING = '{"a":"', '"}'
#: What the servers of the Chat form put into every chunk.
_CHAT_FIELDS: Final[Chunk] = {"created": 1_700_000_000, "system_fingerprint": "fp_test"}


def long_response(dialect: str, calls: int, pieces: Sequence[str]) -> Iterator[Chunk]:
    """One response with `calls` calls that grow in turn, each by all of `pieces`."""
    return _RESPONSES[dialect](calls, pieces)


def text_of(pieces: Sequence[str]) -> str:
    """The arguments of each call but Ollama's, whose are `{}`."""
    return OPENING + "".join(pieces) + CLOSING


def _chat(calls: int, pieces: Sequence[str]) -> Iterator[Chunk]:
    for n in range(calls):
        yield {**chat(entry(n, f"call_{n}", "lookup_order", "", type="function")), **_CHAT_FIELDS}
    for piece in (OPENING, *pieces, CLOSING):
        for n in range(calls):
            yield {**chat(entry(n, arguments=piece)), "model": "gpt-test", **_CHAT_FIELDS}
    yield {**chat(finish="tool_calls"), **_CHAT_FIELDS}


def _responses(calls: int, pieces: Sequence[str]) -> Iterator[Chunk]:
    for number, chunk in enumerate(_unnumbered(calls, pieces)):
        yield {**chunk, "sequence_number": number}


def _unnumbered(calls: int, pieces: Sequence[str]) -> Iterator[Chunk]:
    whole = text_of(pieces)
    yield lifecycle("created", "in_progress")
    for n in range(calls):
        yield item_event("added", n, item(f"call_{n}", "", "in_progress"))
    for piece in (OPENING, *pieces, CLOSING):
        for n in range(calls):
            yield {**text_event("delta", n, f"call_{n}", piece), "obfuscation": "aB3x"}
    for n in range(calls):
        yield text_event("done", n, f"call_{n}", whole)
        yield item_event("done", n, item(f"call_{n}", whole, "completed"))
    yield lifecycle("completed", "completed")


def _blocks(wire: MessageWire) -> Callable[[int, Sequence[str]], Iterator[Chunk]]:
    def response(calls: int, pieces: Sequence[str]) -> Iterator[Chunk]:
        yield wire.start()
        for n in range(calls):
            yield wire.head(n, f"call_{n}")
        for piece in (OPENING, *pieces, CLOSING):
            for n in range(calls):
                yield wire.fragment(n, piece)
        for n in range(calls):
            yield wire.stop(n)
        yield wire.reason("tool_use")
        yield wire.last()

    return response


def _cohere(calls: int, pieces: Sequence[str]) -> Iterator[Chunk]:
    yield BEGIN
    for n in range(calls):
        yield start(n, f"call_{n}")
    for piece in (OPENING, *pieces, CLOSING):
        for n in range(calls):
            yield delta(n, piece)
    for n in range(calls):
        yield end(n)
    yield message_end()


def _gemini(calls: int, pieces: Sequence[str]) -> Iterator[Chunk]:
    """One call after the other, in parts, as the wire can tell them apart."""
    for n in range(calls):
        yield {**gemini(head(f"call_{n}")), "modelVersion": "gemini-test"}
        for piece in pieces:
            chunk = gemini(leaves(leaf("$.a", piece, goes_on=True)))
            yield {**chunk, "modelVersion": "gemini-test"}
        yield gemini(leaves(leaf("$.a", "")))
        yield gemini(CLOSE)
    yield gemini(finish="STOP")


def _ollama(calls: int, pieces: Sequence[str]) -> Iterator[Chunk]:
    for n in range(calls):
        yield ollama(ollama_call(f"call_{n}"))
    for piece in pieces:
        message = {"role": "assistant", "content": piece}
        yield {"model": "test", "created_at": "2024-01-01", "message": message, "done": False}
    yield ollama(done=True)


_RESPONSES: Final[dict[str, Callable[[int, Sequence[str]], Iterator[Chunk]]]] = {
    "anthropic": _blocks(ANTHROPIC),
    "bedrock-converse": _blocks(BEDROCK),
    "cohere-v2": _cohere,
    "gemini": _gemini,
    "mistral": _chat,
    "ollama": _ollama,
    "openai-chat": _chat,
    "openai-responses": _responses,
}


def one_piece(dialect: str, text: str) -> list[Chunk]:
    """A response with one call whose text comes in one piece, as a whole where the wire has that."""
    if dialect == "ollama":
        return [ollama(ollama_call("call_0", arguments={"a": text})), ollama(done=True)]
    if dialect == "gemini":
        whole: Chunk = {"id": "call_0", "name": "f", "args": {"a": text}}
        return [gemini(whole), gemini(finish="STOP")]
    return list(long_response(dialect, 1, [text]))


def lines(chunks: Iterator[Chunk] | Sequence[Chunk]) -> Iterator[bytes]:
    """Each chunk as one server-sent event, or as one line for Ollama's."""
    for chunk in chunks:
        is_line = "done" in chunk and "message" in chunk
        yield (f"{json.dumps(chunk)}\n" if is_line else f"data: {json.dumps(chunk)}\n\n").encode()
