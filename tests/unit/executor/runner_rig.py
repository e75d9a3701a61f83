"""A runner on the memory ledger and a clock that only tests move."""

from collections import deque
from collections.abc import Callable

from processor.core.outcomes import CallCompleted, EffectClass
from processor.executor import ToolContext, ToolSet
from processor.executor.ports import AllowAll, Authoriser, Silent
from processor.executor.runner import CallRunner, Ran, RunnerSettings
from processor.executor.served import Lookup, serve
from processor.ledger.memory import MemoryLedger
from processor.ledger.port import (
    Answer,
    Begin,
    CallView,
    Claim,
    Outcome,
    Owned,
    Source,
    StoredResult,
    Verdict,
)
from processor.policy.catalogue import Catalogue
from tests.unit.executor.calls import completed_call

NOW_MS = 1_800_000_000_000
SOURCE = Source("toolcalls.completed.v1", 0, 7)
CLASSES: tuple[EffectClass, ...] = (
    "read_only",
    "idempotent",
    "reconcilable",
    "transactional",
    "at_most_once",
)


class ManualClock:
    """Moves by waits and by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return self.now_s

    def wait(self, seconds: float) -> None:
        """See `Clock`."""
        self.now_s += seconds


class FlakyLedger(MemoryLedger):
    """Raises what the test has put in line for a method; `after` acts first and then raises."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        super().__init__(now_ms)
        self.before: dict[str, deque[Exception]] = {}
        self.after: dict[str, deque[Exception]] = {}

    def _trip(self, line: dict[str, deque[Exception]], method: str) -> None:
        waiting = line.get(method)
        if waiting:
            raise waiting.popleft()

    def claim(self, claim: Claim) -> Verdict:
        """See `Ledger`."""
        self._trip(self.before, "claim")
        return super().claim(claim)

    def begin_effect(self, owned: Owned, begin: Begin) -> Answer:
        """See `Ledger`."""
        self._trip(self.before, "begin_effect")
        answer = super().begin_effect(owned, begin)
        self._trip(self.after, "begin_effect")
        return answer

    def finish(self, owned: Owned, outcome: Outcome) -> Answer:
        """See `Ledger`."""
        self._trip(self.before, "finish")
        return super().finish(owned, outcome)


class Rig:
    """A runner and everything around it."""

    def __init__(
        self,
        tools: ToolSet,
        *,
        catalogue: Catalogue | None = None,
        authoriser: Authoriser | None = None,
        settings: RunnerSettings | None = None,
        lookups: dict[str, Lookup] | None = None,
    ) -> None:
        self.tools = serve(tools, catalogue, lookups)
        self.clock = ManualClock()
        self.now_ms = NOW_MS
        self.ledger = FlakyLedger(lambda: self.now_ms)
        self.passed: list[str] = []
        self.runner = CallRunner(
            self.ledger,
            self.tools,
            owner="slot-0/a",
            settings=settings or RunnerSettings(),
            clock=self.clock,
            authoriser=authoriser or AllowAll(),
            observer=Silent(),
            crash_point=self.passed.append,
            starts_of=self._starts_of,
        )

    def _starts_of(self, tenant: str, key: str) -> int:
        view = self.ledger.show(tenant, key)
        assert view is not None
        return view.begun

    def run(self, call: CallCompleted) -> Ran:
        """One delivery."""
        return self.runner.run(call, SOURCE, {"traceparent": "00-1-2-01"})

    def view(self, call: CallCompleted) -> CallView:
        """What the ledger shows."""
        view = self.ledger.show(call.key.tenant, call.key.idempotency_key)
        assert view is not None
        return view

    def result(self, call: CallCompleted) -> StoredResult:
        """What the ledger stores."""
        stored = self.ledger.fetch_result(call.key.tenant, call.key.idempotency_key)
        assert stored is not None
        return stored


def call_of(arguments: bytes = b'{"order":"ORDER-1001"}', **other: object) -> CallCompleted:
    """A call that ended a second ago."""
    return completed_call(arguments, ended_at_ms=NOW_MS - 1000, **other)  # type: ignore[arg-type]  # one builder's keywords


def refunds(ran: list[object], effect_class: EffectClass = "at_most_once") -> ToolSet:
    """A tool that notes what it was given."""
    tools = ToolSet()

    @tools.tool(name="refund", effect_class=effect_class)
    def refund(order: str, context: ToolContext) -> dict[str, str]:
        ran.append((order, context))
        return {"order": order}

    return tools


def raising(error: Exception, effect_class: EffectClass) -> ToolSet:
    """A tool that only raises."""
    tools = ToolSet()

    @tools.tool(name="refund", effect_class=effect_class)
    def refund(order: str, context: ToolContext) -> None:
        raise error

    return tools
