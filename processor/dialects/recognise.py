"""Whose stream an input is, told by its first events when nobody says it.

Rules:
    A dialect is named when it alone accepts the first event; of several that do, when an event has
    what only one of them sends. Otherwise nobody guesses: each reads ids and ends in its own way.
    An error says nothing, since many send it alike; nor does what cannot be read.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, cast

from processor.core._record import record
from processor.dialects.fields import Chunk, Malformed
from processor.dialects.json_lines import decode
from processor.dialects.registry import DIALECTS, dialects_like, narrowed
from processor.dialects.wire import WireReader

#: How much of an input is looked at. A first event may repeat a whole request, tools included.
HEAD_BYTES_MAX: Final = 1024 * 1024
#: Events that may tell look-alikes apart.
EVENTS_MAX: Final = 256


@record
class Unsure:
    """No dialect is certain. `like` has those that are possible; `why` is for people."""

    like: tuple[str, ...]
    why: str


def recognise(chunks: Iterable[Chunk]) -> str | Unsure:
    """The name of the dialect that the first events of a response are of, or why none is certain.

    Works for whatever is registered. Pure; at most `EVENTS_MAX` chunks are taken.
    """
    like: list[str] = []
    came = False
    for chunk in islice(chunks, EVENTS_MAX):
        came = True
        if _is_error(chunk):
            continue
        like = narrowed(like, chunk) if like else dialects_like(chunk)
        if len(like) == 1:
            return like[0]
        if not like:
            known = ", ".join(DIALECTS)
            return Unsure((), f"the first event is of none of the known dialects ({known})")
    if like:
        these = " or ".join(like)
        return Unsure(tuple(like), f"it could be {these}, and nothing in it tells these apart")
    if came:
        return Unsure((), "all that came is an error, which many dialects send alike")
    return Unsure((), "it holds no event of a model stream")


def recognise_bytes(head: bytes, *, is_whole: bool) -> str | Unsure:
    """As `recognise`, for the beginning of an input as it came; `is_whole` when nothing follows.

    `HEAD_BYTES_MAX` is enough to give.
    """
    return recognise(_chunks(head, is_whole=is_whole))


def _is_error(chunk: Chunk) -> bool:
    return bool(chunk.get("error")) or "error" in (chunk.get("type"), chunk.get("object"))


def _chunks(head: bytes, *, is_whole: bool) -> Iterator[Chunk]:
    reader = WireReader()
    frames = reader.feed(head)
    if is_whole:
        frames += reader.close()
    for frame in frames:
        try:
            chunk = None if frame.data is None else decode(frame.data)
        except Malformed:
            continue
        if isinstance(chunk, Mapping):
            yield cast("Chunk", chunk)
