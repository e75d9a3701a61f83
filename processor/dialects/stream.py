"""One model response on its way in: chunks or bytes to the events of its calls.

Rules:
    One stream is one response of one request; what comes after its end is ignored, and counted.
    The first chunk must be of the dialect, else `DialectError`; from then on nothing raises: what
    cannot be read refuses the calls that it could concern.
    No text of an error quotes the input.
"""

from collections.abc import Mapping
from typing import Final, cast

from processor.core.errors import Misuse, ProcessorError
from processor.core.events import ResponseOutcome
from processor.core.identity import IdentityError, checked_id, checked_request_id
from processor.core.reasons import REASONS
from processor.core.usage import ResponseUsage
from processor.dialects.adapter import TooManyCalls
from processor.dialects.calls import CALLS_MAX, NO_ID, Calls, KeyedEvent, Origin
from processor.dialects.fields import Chunk, Malformed, is_name
from processor.dialects.json_lines import decode
from processor.dialects.lines import Frame
from processor.dialects.registry import dialect_named, dialects_like
from processor.dialects.usage import response_usage
from processor.dialects.wire import WireReader

__all__ = ["DialectError", "KeyedEvent", "ResponseStream"]

_DONE: Final = b"[DONE]"
#: A whole capture given at once is read in pieces, so that its lines are not all in memory at once.
_READ_BYTES: Final = 64 * 1024


class DialectError(ProcessorError):
    """The input is not that dialect; the text names the line and never quotes content."""

    code = "not_that_dialect"


class ResponseStream:
    """The model's response to one application request. Pure, not thread-safe.

    `response_id` names the response when its wire does not.

    Raises: `Misuse` on an unknown dialect, an id that may be none, or a model that is no name.
    """

    def __init__(
        self,
        dialect: str,
        *,
        tenant: str,
        request_id: str,
        response_id: str = NO_ID,
        model: str | None = None,
    ) -> None:
        found = dialect_named(dialect)
        try:
            checked_id("tenant", tenant)
            checked_request_id(request_id)
            checked_id("response_id", response_id)
        except IdentityError as e:
            raise Misuse(str(e)) from None
        if model is not None and not is_name(model):
            raise Misuse("model is empty, too long or has control characters")
        self._name = dialect
        self._refusal = found.refusal
        self._calls = Calls(Origin(tenant, request_id, dialect, response_id), model)
        self._adapter = found.adapter(self._calls)
        self._wire = WireReader()
        self._is_recognised = False
        self._ignored_count = 0

    @property
    def response_id(self) -> str | None:
        """The response's id as the wire told it first; None before, or when it never does."""
        return self._calls.response_id

    @property
    def ended(self) -> bool:
        """True when every call of the response has been given its end."""
        return self._calls.ended

    @property
    def outcome(self) -> ResponseOutcome | None:
        """How the response ended; None before, and when it was aborted."""
        return self._calls.outcome

    @property
    def is_recognised(self) -> bool:
        """True from the first chunk of the dialect on."""
        return self._is_recognised

    @property
    def ignored_count(self) -> int:
        """How many chunks came after the response's end."""
        return self._ignored_count

    @property
    def usage(self) -> ResponseUsage | None:
        """What the wire has reported so far; None without a single counter."""
        calls = self._calls
        if not calls.counters:
            return None
        origin = calls.origin
        identity = (
            origin.tenant,
            origin.request_id,
            calls.response_id or origin.response_id,
            origin.dialect,
        )
        names = self._adapter.counter_names
        return response_usage(identity, calls.model, names, calls.counters)

    def observe(self, chunk: Mapping[str, object]) -> list[KeyedEvent]:
        """One decoded chunk. Raises: `DialectError` when the first one is not of the dialect."""
        self._observe(chunk, "")
        return self._calls.take()

    def observe_json(self, text: bytes) -> list[KeyedEvent]:
        """One chunk as the text of a JSON object. Raises: `DialectError` as `observe`."""
        self._observe_frame(Frame(text, 1))
        return self._calls.take()

    def observe_bytes(self, data: bytes) -> list[KeyedEvent]:
        """Bytes as they came: server-sent events, JSON lines or a JSON array, cut anywhere.

        Raises: `DialectError` as `observe`, naming the line.
        """
        for start in range(0, len(data), _READ_BYTES):
            for frame in self._wire.feed(data[start : start + _READ_BYTES]):
                self._observe_frame(frame)
        return self._calls.take()

    def end(self, *, cancelled: bool = False) -> list[KeyedEvent]:
        """The input is over; `cancelled` when its reader stopped it. Idempotent.

        Raises: `DialectError` when a last line without an end is the first, and not of the dialect.
        """
        if not self._calls.ended:
            for frame in self._wire.close():
                self._observe_frame(frame)
        if not self._calls.ended:
            self._adapter.end(cancelled=cancelled)
            self._calls.ended = True
        return self._calls.take()

    def abort(self, reason: str) -> list[KeyedEvent]:
        """Refuse every call that has not ended, and take nothing more.

        Raises: `Misuse` for a reason outside of the closed list.
        """
        if reason not in REASONS:
            raise Misuse("a call is aborted by a reason of the closed list only")
        if not self._calls.ended:
            self._calls.abort_all(reason)
            self._calls.ended = True
        return self._calls.take()

    def _observe_frame(self, frame: Frame) -> None:
        data = frame.data
        where = f"line {frame.line}: "
        if data is not None and data.strip() in (_DONE, b'"[DONE]"'):
            self._end_by_sentinel(where)
            return
        try:
            chunk = decode(data) if data is not None else None
        except Malformed:
            chunk = None
        if isinstance(chunk, Mapping):
            self._observe(cast("Chunk", chunk), where)
        elif not self._is_recognised:
            what = "too long" if data is None else "no JSON object"
            raise DialectError(f"{where}the first event is {what}, so this is no {self._name}")
        elif self._calls.ended:
            self._ignored_count += 1
        else:
            self._adapter.damaged()

    def _end_by_sentinel(self, where: str) -> None:
        if not self._is_recognised:
            raise DialectError(f"{where}[DONE] comes before any event of {self._name}")
        if not self._calls.ended:
            self._adapter.sentinel()

    def _observe(self, chunk: Chunk, where: str) -> None:
        if self._calls.ended:
            self._ignored_count += 1
            return
        if not self._is_recognised:
            self._recognise(chunk, where)
        try:
            self._adapter.observe(chunk)
        except Malformed:
            self._adapter.damaged()
        except TooManyCalls:
            self._calls.abort_all("too_many_calls")
            self._calls.end_all("unknown", f"more than {CALLS_MAX} calls")

    def _recognise(self, chunk: Chunk, where: str) -> None:
        refusal = self._refusal(chunk)
        if refusal is not None:
            others = dialects_like(chunk)
            hint = f"; it looks like {' or '.join(others)}" if others else ""
            raise DialectError(f"{where}not {self._name}: {refusal}{hint}")
        self._is_recognised = True
