"""The normaliser's fold: (responses of a partition, one chunk record) -> events of calls.

Rules:
    Chunk records of a response are contiguous from 0, as the events of a call are: an equal repeat
    is dropped, another text under a used number or a jump refuses the response, and with it every
    call that it has open. What is refused swallows what still comes.
    A response is OPEN from its first record on, and CLOSED by its end or by a refusal. A closed one
    is forgotten `LINGER_MS` of log time after its last record, an open one when it is silent for
    `IDLE_MS`; its calls then expire. One that lives longer than `LIFE_MS` is closed.
    A restart at the low-water mark reaches the same state: an open response needs its first record,
    a closed one its last, which closes it again because it is not the first. A first record that
    comes again is the exception, so `low` may not lie between what its response needs and it.
    The bounds are part of the fold: another value is another `VERSION`.
"""

import hashlib
from collections import OrderedDict
from typing import Final, Literal

from processor.core._record import field, record
from processor.core.chunks import ChunkBody, JsonChunk, RawChunk, ResponseChunk
from processor.core.errors import Misuse
from processor.core.lingering import Lingering
from processor.core.low_water import LowWater, Spans
from processor.core.terms import Terms
from processor.core.usage import ResponseUsage
from processor.dialects.stream import DialectError, KeyedEvent, ResponseStream

VERSION: Final = 1
LINGER_MS: Final = 10_000
IDLE_MS: Final = 10 * 60 * 1000
LIFE_MS: Final = 30 * 60 * 1000
#: Records of one response; each costs 8 bytes as long as it is open.
CHUNKS_MAX: Final = 262_144
#: Open responses of one partition.
RESPONSES_MAX: Final = 10_000

_DIGEST_BYTES: Final = 8
_NEVER_MS: Final = 1 << 62

RefusalCode = Literal[
    "chunk_gap",
    "chunk_conflict",
    "missing_first_chunk",
    "envelope_changed",
    "too_many_chunks",
    "too_many_responses",
    "unknown_dialect",
    "not_that_dialect",
]


@record
class Refusal:
    """Why a chunk record, and with it its response, was refused; never content."""

    code: RefusalCode
    detail: str


@record
class Normalised:
    """What one chunk record gave. `usage` comes once, with the response's end."""

    events: list[KeyedEvent] = field(default_factory=list[KeyedEvent])
    usage: ResponseUsage | None = None
    refusal: Refusal | None = None


_NOTHING: Final = Normalised()


class _Response:
    """One tracked response; `stream` None: it is closed. Offsets and times as in `core.call`."""

    __slots__ = ("dialect", "digests", "first_ms", "model", "need", "stream")

    def __init__(self, need: LowWater, first_ms: int) -> None:
        self.need = need
        self.first_ms = first_ms
        self.stream: ResponseStream | None = None
        self.dialect = ""
        self.model: str | None = None
        #: One digest a record, so that a repeat can be told from another text.
        self.digests = bytearray()


class ResponseFold:
    """The fold of one partition of the chunks topic. Not thread-safe.

    Cost: the dialect's, and about 2 µs a record.
    """

    def __init__(self, *, log_time_ms: int = -1, responses_max: int = RESPONSES_MAX) -> None:
        self.log_time_ms = log_time_ms
        self._responses_max = responses_max
        self._prior_ms = log_time_ms
        #: Tracked responses, in the order of the record that each needs.
        self._tracked: dict[bytes, _Response] = {}
        #: Open ones by the log time of their last record; the longest silent first.
        self._open: OrderedDict[bytes, int] = OrderedDict()
        self._closed = Lingering(LINGER_MS)
        self._look_at_ms = _NEVER_MS
        self._spans = Spans()
        self.repeats_count = 0
        self.swallowed_count = 0

    @property
    def version(self) -> int:
        """Version of the rules of this file."""
        return VERSION

    @property
    def open_count(self) -> int:
        """How many responses are open."""
        return len(self._open)

    def adopt(self, terms: Terms) -> None:
        """The fold has no terms that could change: its bounds belong to its version."""

    def low_water(self, next_offset: int) -> LowWater:
        """Where a restart after committing `next_offset` must begin to read."""
        return self._spans.settle(self._low_of_tracked(LowWater(next_offset, self.log_time_ms)))

    def advance(self, timestamp_ms: int) -> None:
        """Move log time to a record's timestamp if that is later, and forget what is due."""
        self._prior_ms = self.log_time_ms
        if timestamp_ms > self.log_time_ms:
            self.log_time_ms = timestamp_ms
            if timestamp_ms >= self._look_at_ms:
                self._forget()

    def apply(self, key: bytes, chunk: ResponseChunk, offset: int, timestamp_ms: int) -> Normalised:
        """Advance by one record. Never raises for bad data."""
        self.advance(timestamp_ms)
        here = LowWater(offset, self._prior_ms)
        response = self._tracked.get(key)
        if response is None:
            return self._begin(key, chunk, here)
        if chunk.number == 0:
            self._spans.add(response.need, offset)
        if response.stream is None:
            self.swallowed_count += 1
            self._swallow(key, response, here)
            return _NOTHING
        self._open[key] = self.log_time_ms
        self._open.move_to_end(key)
        return self._continue(key, response, response.stream, chunk, here)

    # --- a response's life ---------------------------------------------------------------------

    def _begin(self, key: bytes, chunk: ResponseChunk, here: LowWater) -> Normalised:
        response = self._tracked[key] = _Response(here, self.log_time_ms)
        self._open[key] = self.log_time_ms
        if chunk.number != 0:
            detail = f"the first record read has chunk {chunk.number}"
            return self._refuse(key, response, here, Refusal("missing_first_chunk", detail))
        if len(self._open) > self._responses_max:
            # Judged by responses that a restart above the first of them would not count.
            low = self._low_of_tracked(here)
            detail = f"{len(self._open) - 1} responses are open in the partition"
            refused = self._refuse(key, response, here, Refusal("too_many_responses", detail))
            self._spans.add(low, here.offset)
            return refused
        try:
            response.stream = ResponseStream(
                chunk.dialect,
                tenant=chunk.tenant,
                request_id=chunk.request_id,
                response_id=chunk.response_id,
                model=chunk.model,
            )
        except Misuse as e:
            return self._refuse(key, response, here, Refusal("unknown_dialect", str(e)))
        response.dialect, response.model = chunk.dialect, chunk.model
        self._plan_look()
        return self._feed(key, response, response.stream, chunk, here)

    def _continue(
        self,
        key: bytes,
        response: _Response,
        stream: ResponseStream,
        chunk: ResponseChunk,
        here: LowWater,
    ) -> Normalised:
        number, digests = chunk.number, response.digests
        expected = len(digests) // _DIGEST_BYTES
        if number > expected:
            detail = f"chunk {expected} expected, {number} read"
            return self._abort(key, here, "sequence_gap", Refusal("chunk_gap", detail))
        if number < expected:
            at = number * _DIGEST_BYTES
            if bytes(digests[at : at + _DIGEST_BYTES]) == _digest(chunk.body):
                self.repeats_count += 1
                return _NOTHING
            detail = f"chunk {number} was read before with other content"
            return self._abort(key, here, "sequence_conflict", Refusal("chunk_conflict", detail))
        if (chunk.dialect, chunk.model) != (response.dialect, response.model):
            detail = f"dialect or model of chunk {number} are not those of chunk 0"
            return self._abort(key, here, "identity_conflict", Refusal("envelope_changed", detail))
        if number >= CHUNKS_MAX:
            detail = f"more than {CHUNKS_MAX} records"
            return self._abort(key, here, "too_many_fragments", Refusal("too_many_chunks", detail))
        return self._feed(key, response, stream, chunk, here)

    def _feed(
        self,
        key: bytes,
        response: _Response,
        stream: ResponseStream,
        chunk: ResponseChunk,
        here: LowWater,
    ) -> Normalised:
        response.digests += _digest(chunk.body)
        try:
            events = _observe(stream, chunk.body)
        except DialectError as e:
            return self._refuse(key, response, here, Refusal("not_that_dialect", str(e)))
        if not stream.ended:
            return Normalised(events)
        self._close(key, here)
        return Normalised(events, stream.usage)

    def _abort(self, key: bytes, here: LowWater, reason: str, refusal: Refusal) -> Normalised:
        response = self._tracked[key]
        events = [] if response.stream is None else response.stream.abort(reason)
        self._close(key, here)
        return Normalised(events, refusal=refusal)

    def _refuse(
        self, key: bytes, response: _Response, here: LowWater, refusal: Refusal
    ) -> Normalised:
        """Refuse what has no call yet."""
        response.stream = None
        self._close(key, here)
        return Normalised(refusal=refusal)

    # --- what is closed, and what a restart can know of it -------------------------------------

    def _close(self, key: bytes, here: LowWater) -> None:
        """Keep of a response that it is closed: a restart at `here` closes it as well."""
        # Also when `here` is its first record: a restart then does just what was done now.
        response = self._tracked.pop(key)
        response.stream = None
        response.digests = bytearray()
        response.need = here
        self._tracked[key] = response
        self._open.pop(key, None)
        self._closed.touch(key, self.log_time_ms)
        self._plan_look()

    def _swallow(self, key: bytes, response: _Response, here: LowWater) -> None:
        del self._tracked[key]
        response.need = here
        self._tracked[key] = response
        self._closed.touch(key, self.log_time_ms)
        self._plan_look()

    def _plan_look(self) -> None:
        """When the next response may be due: a bound, never too late."""
        self._look_at_ms = self._closed.due_ms
        if self._open:
            idle_ms = next(iter(self._open.values())) + IDLE_MS
            self._look_at_ms = min(self._look_at_ms, idle_ms, self._oldest_open_ms() + LIFE_MS)

    def _oldest_open_ms(self) -> int:
        for response in self._tracked.values():
            if response.stream is not None:
                return response.first_ms
        return _NEVER_MS

    def _forget(self) -> None:
        now_ms = self.log_time_ms
        self._end_overdue(now_ms)
        while self._open:
            key, last_ms = next(iter(self._open.items()))
            if last_ms + IDLE_MS > now_ms:
                break
            del self._open[key]
            del self._tracked[key]
        for key in self._closed.take_due(now_ms):
            del self._tracked[key]
        self._plan_look()

    def _end_overdue(self, now_ms: int) -> None:
        """Close what has lived for too long; what it needs moves on with its next record."""
        overdue = [key for key in self._open if self._tracked[key].first_ms + LIFE_MS <= now_ms]
        for key in overdue:
            response = self._tracked[key]
            response.stream = None
            response.digests = bytearray()
        self._closed.merge({key: self._open.pop(key) for key in overdue})

    def _low_of_tracked(self, otherwise: LowWater) -> LowWater:
        for response in self._tracked.values():
            return response.need
        return otherwise


def _observe(stream: ResponseStream, body: ChunkBody) -> list[KeyedEvent]:
    if isinstance(body, JsonChunk):
        return stream.observe_json(body.json)
    if isinstance(body, RawChunk):
        return stream.observe_bytes(body.data)
    return stream.end(cancelled=body.cancelled)


def _digest(body: ChunkBody) -> bytes:
    digest = hashlib.blake2b(type(body).__name__.encode(), digest_size=_DIGEST_BYTES)
    if isinstance(body, JsonChunk):
        digest.update(b"\0" + body.json)
    elif isinstance(body, RawChunk):
        digest.update(b"\0" + body.data)
    else:
        digest.update(b"\1" if body.cancelled else b"\0")
    return digest.digest()
