"""What came back for the requests that somebody waits for; everything else is passed over.

Rules:
    A call ends once: the first final result counts, whatever is delivered after it.
    `held` and `in_doubt` are no results; they say why there is none yet.
    Memory is bounded: calls of one request, requests, and the bodies of all of them together.
"""

import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import Final

from processor.core._record import record
from processor.core.errors import Misuse, ProcessorError
from processor.core.outcomes import CallRejected
from processor.core.results import CallResult

_INTERIM: Final = frozenset({"held", "in_doubt"})
#: Publications of one call that are told apart; what comes beyond is not looked at for repeats.
_IDS_PER_CALL: Final = 4

#: The ids of the calls that are waited for, or how many they are.
Wanted = Collection[str] | int


@record
class CallAnswers:
    """What is known of a request's calls, by call id.

    `results` ended, by the executor. `rejected` ended before it: the assembler found the call unfit.
    `waiting` have no result yet, for the reason that their state says: `held` or `in_doubt`.
    `missing` were asked for, and nobody has said anything of them. `lacking` is how many of the
    calls asked for have no end yet; `complete` says that there are none. `dropped` counts answers
    that the bounds of the reader left out: ask the ledger for them.
    """

    results: dict[str, CallResult]
    rejected: dict[str, CallRejected]
    waiting: dict[str, CallResult]
    missing: tuple[str, ...]
    lacking: int
    dropped: int

    @property
    def complete(self) -> bool:
        """True when every call asked for has ended."""
        return self.lacking == 0


@record
class InboxBounds:
    """`requests` that may be waited for at once, `calls` kept of each, `body_bytes` of all."""

    requests: int
    calls: int
    body_bytes: int


class Expectation:
    """The answers for one request so far. Thread-safe; shares the lock of its inbox."""

    def __init__(self, lock: threading.RLock, calls_max: int) -> None:
        self.changed = threading.Condition(lock)
        self.failure: ProcessorError | None = None
        self.body_bytes = 0
        self._calls_max = calls_max
        self._ended: dict[str, CallResult] = {}
        self._interim: dict[str, CallResult] = {}
        self._rejected: dict[str, CallRejected] = {}
        self._seen: set[str] = set()
        self._dropped = 0
        self._listeners: list[Callable[[], None]] = []

    def take(self, result: CallResult, event_id: str, room_bytes: int) -> None:
        """Keep what is new. The lock is held."""
        call_id = result.key.call_id
        if call_id in self._ended or event_id in self._seen:
            return
        size = len(result.body or b"")
        if size > room_bytes or self._is_full(call_id):
            self._dropped += 1
            return
        if len(self._seen) < self._calls_max * _IDS_PER_CALL:
            self._seen.add(event_id)
        if result.state in _INTERIM:
            self._interim[call_id] = result
        else:
            self._interim.pop(call_id, None)
            self._ended[call_id] = result
        self.body_bytes += size
        self.tell()

    def take_rejected(self, rejected: CallRejected) -> None:
        """Keep the first rejection of a call. The lock is held."""
        call_id = rejected.key.call_id
        if self._is_full(call_id):
            self._dropped += 1
        elif call_id not in self._rejected:
            self._rejected[call_id] = rejected
            self.tell()

    def fail(self, failure: ProcessorError) -> None:
        """Nothing will come any more. The lock is held."""
        self.failure = failure
        self.tell()

    def tell(self) -> None:
        """Wake up who waits. The lock is held."""
        self.changed.notify_all()
        for listener in self._listeners:
            listener()

    def _is_full(self, call_id: str) -> bool:
        known = self._ended.keys() | self._interim.keys() | self._rejected.keys()
        return call_id not in known and len(known) >= self._calls_max

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Generator[None]:
        """Call `listener` at each change, from the reader's thread; it must not wait or raise."""
        with self.changed:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self.changed:
                self._listeners.remove(listener)

    def wait(self, wanted: Wanted, timeout_s: float) -> CallAnswers:
        """Until every call asked for has ended, at most `timeout_s`. Raises: the failure."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.failure is not None or self.answers(wanted).complete, timeout_s
            )
            return self.answers_or_failure(wanted)

    def answers_or_failure(self, wanted: Wanted) -> CallAnswers:
        """What is known now. Raises: why nothing will come any more, unless all is here."""
        with self.changed:
            answers = self.answers(wanted)
            if self.failure is not None and not answers.complete:
                raise self.failure
            return answers

    def answers(self, wanted: Wanted) -> CallAnswers:
        """What is known now."""
        with self.changed:
            ended = self._ended.keys() | self._rejected.keys()
            if isinstance(wanted, int):
                missing: tuple[str, ...] = ()
                lacking = max(0, wanted - len(ended))
            else:
                open_ids = [call_id for call_id in dict.fromkeys(wanted) if call_id not in ended]
                missing = tuple(c for c in open_ids if c not in self._interim)
                lacking = len(open_ids)
            return CallAnswers(
                results=dict(self._ended),
                rejected=dict(self._rejected),
                waiting=dict(self._interim),
                missing=missing,
                lacking=lacking,
                dropped=self._dropped,
            )


class ResultInbox:
    """All requests that are waited for in this process. Thread-safe."""

    def __init__(self, bounds: InboxBounds) -> None:
        self._bounds = bounds
        self._lock = threading.RLock()
        self._waiting: dict[tuple[str, str], list[Expectation]] = {}
        self._count = 0
        self._body_bytes = 0
        self._failure: ProcessorError | None = None

    def expects(self, tenant: str, request_id: str) -> bool:
        """True when somebody waits for this request."""
        return (tenant, request_id) in self._waiting

    @contextmanager
    def expecting(self, tenant: str, request_id: str) -> Generator[Expectation]:
        """Collect the answers of a request for as long as the block runs.

        Raises: `Misuse` above the bound of requests; the failure when the reader has ended.
        """
        expectation = Expectation(self._lock, self._bounds.calls)
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._count >= self._bounds.requests:
                raise Misuse(
                    f"{self._count} requests are waited for, which is waits_max: leave some, or"
                    " raise it"
                )
            self._count += 1
            self._waiting.setdefault((tenant, request_id), []).append(expectation)
        try:
            yield expectation
        finally:
            with self._lock:
                self._count -= 1
                self._body_bytes -= expectation.body_bytes
                others = self._waiting[tenant, request_id]
                others.remove(expectation)
                if not others:
                    del self._waiting[tenant, request_id]

    def take(self, result: CallResult, event_id: str) -> None:
        """A result was read."""
        with self._lock:
            for expectation in self._waiting.get((result.key.tenant, result.key.request_id), ()):
                before = expectation.body_bytes
                expectation.take(result, event_id, self._bounds.body_bytes - self._body_bytes)
                self._body_bytes += expectation.body_bytes - before

    def take_rejected(self, rejected: CallRejected) -> None:
        """A rejection was read."""
        with self._lock:
            key = rejected.key
            for expectation in self._waiting.get((key.tenant, key.request_id), ()):
                expectation.take_rejected(rejected)

    def fail(self, failure: ProcessorError) -> None:
        """Nothing will come any more: everybody is told, now and later. The first reason stays."""
        with self._lock:
            self._failure = self._failure or failure
            for expectations in self._waiting.values():
                for expectation in expectations:
                    expectation.fail(self._failure)
