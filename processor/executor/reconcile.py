"""Calls in doubt whose other side can be asked: ask it, and settle what it knows.

Rules:
    Only calls of the class `reconcilable` whose tool names a lookup. The lookup gets the ids of the call
    and no arguments; it may be asked any number of times, so it must only read.
    `Happened` settles the call as succeeded. `NotHappened` settles it as failed (`not_happened`) only when
    the answer has stood for `absent_after_s`: a request may still be under way. Everything else, an
    exception and a time-out included, leaves the doubt, and the question is asked again later.
    The call is settled under the fence of the lost owner: if that one settles first, its answer stays.
    Waiting is measured by this process alone, so a restart only makes it longer.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from processor.core.errors import Indeterminate, Transient
from processor.core.identity import CallKey
from processor.executor.backoff import Backoff
from processor.executor.context import ToolContext
from processor.executor.invoke import Ending, EventLoop, Returned, call_in_thread
from processor.executor.ports import Clock, Observer
from processor.executor.results import outcome_of
from processor.executor.runner import Ran
from processor.executor.served import Lookup, ServedTool
from processor.executor.signals import Happened, NotHappened
from processor.ledger.port import Answer, CallLine, CallState, Outcome, Owned

#: Waiting calls that are looked through at once, newest first.
_LISTED_MAX: Final = 1000
_FIRST_S: Final = 2.0
_MOST_S: Final = 300.0


class DoubtLedger(Protocol):
    """What of a ledger is needed here."""

    def list_calls(
        self, *, state: CallState | None = None, tenant: str | None = None, limit: int = 100
    ) -> list[CallLine]:
        """See `Reading.list_calls`."""
        ...

    def finish(self, owned: Owned, outcome: Outcome) -> Answer:
        """See `Ledger.finish`."""
        ...


class Reconciler:
    """Finds the doubts that may be asked about, and asks. Safe to use from several threads."""

    def __init__(
        self,
        ledger: DoubtLedger,
        tools: Mapping[str, ServedTool],
        *,
        clock: Clock,
        observer: Observer,
        first_s: float = _FIRST_S,
        most_s: float = _MOST_S,
    ) -> None:
        self._ledger = ledger
        self._tools = {name: t for name, t in tools.items() if t.lookup is not None}
        self._clock = clock
        self._observer = observer
        self._backoff = Backoff(first_s=first_s, most_s=most_s)
        self._lock = threading.Lock()
        self._next_s: dict[str, float] = {}
        self._absent_since_s: dict[str, float] = {}
        lookups = [t.lookup for t in self._tools.values() if t.lookup is not None]
        self._loop = EventLoop() if any(k.is_async and k.loop is None for k in lookups) else None

    def close(self) -> None:
        """Stop the loop of async lookups."""
        if self._loop is not None:
            self._loop.close()

    def due(self) -> Sequence[CallLine]:
        """The calls to ask about now; each is given out once until it has been asked.

        Raises: `Transient`, `Indeterminate`.
        """
        if not self._tools:
            return ()
        listed = {
            _name(line): line
            for line in self._ledger.list_calls(state="in_doubt", limit=_LISTED_MAX)
            if line.tool in self._tools and line.effect_class == "reconcilable"
        }
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._forget_all_but(listed)
            found = [
                line for name, line in listed.items() if self._next_s.get(name, now_s) <= now_s
            ]
            for line in found:
                self._next_s[_name(line)] = float("inf")
        return found

    def _forget_all_but(self, listed: Mapping[str, CallLine]) -> None:
        for name in [n for n in self._next_s if n not in listed]:
            del self._next_s[name]
            self._absent_since_s.pop(name, None)
            self._backoff.forget(name)

    def ask(self, line: CallLine) -> Ran:
        """Ask about one call and settle it when the answer allows that. Raises nothing of the lookup."""
        name = _name(line)
        served = self._tools[line.tool]
        try:
            outcome = self._judge(name, served, self._asked(served, line))
            if outcome is not None and self._settled(line, outcome):
                return Ran("settled", outcome.state)
        except (Transient, Indeterminate) as e:
            self._observer.delayed(_key(line), line.tool, e.code)
        finally:
            with self._lock:
                self._next_s[name] = self._clock.monotonic_s() + self._backoff.next_s(name)
        return Ran("parked", "in_doubt")

    def _asked(self, served: ServedTool, line: CallLine) -> Ending:
        lookup = served.lookup
        assert lookup is not None  # noqa: S101 - only tools with one are kept
        key = _key(line)
        context = ToolContext(
            tenant=key.tenant,
            request_id=key.request_id,
            response_id=key.response_id,
            call_id=key.call_id,
            tool=line.tool,
            idempotency_key=line.idempotency_key,
            fence=line.fence,
            attempt_deadline_s=served.timeout_s,
        )
        return _called(lookup, context, self._loop)

    def _judge(self, name: str, served: ServedTool, ending: Ending) -> Outcome | None:
        answer = ending.value if isinstance(ending, Returned) else None
        now_s = self._clock.monotonic_s()
        with self._lock:
            if not isinstance(answer, NotHappened):
                self._absent_since_s.pop(name, None)
            else:
                since_s = self._absent_since_s.setdefault(name, now_s)
                wait_s = served.lookup.absent_after_s if served.lookup else float("inf")
                if now_s - since_s >= wait_s:
                    return Outcome("failed", error_class="not_happened")
        return outcome_of("succeeded", answer.result) if isinstance(answer, Happened) else None

    def _settled(self, line: CallLine, outcome: Outcome) -> bool:
        owned = Owned(line.tenant, line.idempotency_key, line.fence)
        answer = self._ledger.finish(owned, outcome)
        if answer.ok:
            self._observer.ended(_key(line), line.tool, outcome.state, "reconciled", 0.0)
        return answer.ok


def _called(lookup: Lookup, context: ToolContext, loop: EventLoop | None) -> Ending:
    keywords = {"context": context}
    limit_s = context.attempt_deadline_s
    on = lookup.loop or loop
    if lookup.is_async and on is not None:
        return on.call(lookup.function, keywords, timeout_s=limit_s)
    return call_in_thread(lookup.function, keywords, timeout_s=limit_s, late=lambda ending: None)


def _name(line: CallLine) -> str:
    return f"{line.tenant}/{line.idempotency_key}/{line.fence}"


def _key(line: CallLine) -> CallKey:
    # A request id holds no colon.
    request_id, _, call_id = line.idempotency_key.partition(":")
    return CallKey(line.tenant, request_id, line.response_id, call_id)
