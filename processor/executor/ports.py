"""What the executor asks of others: permission, time, and somebody to tell.

Rules:
    No implementation of a port receives arguments, except the authoriser, which must judge them.
"""

import threading
import time
from collections.abc import Sequence
from typing import Final, Literal, Protocol

from processor.core._record import field, record
from processor.core.identity import CallKey
from processor.core.outcomes import EffectClass


@record
class AuthoriseRequest:
    """The question: may this call run now? `arguments` are those that will run."""

    key: CallKey
    tool: str
    effect_class: EffectClass
    arguments: object
    headers: dict[str, str] = field(default_factory=dict[str, str])


@record
class Decision:
    """The answer. `decision_id` and `policy_rev` are written into the ledger with the start."""

    effect: Literal["allow", "deny", "hold"]
    decision_id: str | None = None
    policy_rev: str | None = None


class Authoriser(Protocol):
    """Decides just before execution; anything it raises keeps the call from starting."""

    def decide(self, request: AuthoriseRequest) -> Decision:
        """Allow, deny, or hold for a person."""
        ...


class AllowAll:
    """The default: every valid call of a served tool may run.

    Whoever may write the completed topic may then run every tool; restrict that topic by ACLs.
    """

    def decide(self, request: AuthoriseRequest) -> Decision:
        """Always allow."""
        del request
        return Decision("allow", "allow_all")


class Clock(Protocol):
    """Time for limits and waits; never for what is stored, which is the database's time."""

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        ...

    def wait(self, seconds: float) -> None:
        """Let `seconds` pass, or return early when the process is to stop."""
        ...


class SystemClock:
    """The machine's clock; `stop` ends every wait."""

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """See `Clock.wait`."""
        self._stopping.wait(seconds)

    def stop(self) -> None:
        """End the waits of now and of later."""
        self._stopping.set()


Disposition = Literal["settled", "parked", "again", "skipped"]
DISPOSITIONS: Final[frozenset[Disposition]] = frozenset({"settled", "parked", "again", "skipped"})


class Observer(Protocol):
    """Is told what happened, with ids and words only."""

    def started(self, group: str, slot: str | None, tools: Sequence[str]) -> None:
        """The ledger answers, and reading begins."""
        ...

    def verdict(self, key: CallKey, tool: str, kind: str) -> None:
        """The ledger answered a claim."""
        ...

    def ended(self, key: CallKey, tool: str, state: str, why: str | None, seconds: float) -> None:
        """A claimed call left our hands in this state of the ledger, so long after its delivery."""
        ...

    def delayed(self, key: CallKey, tool: str, code: str) -> None:
        """The ledger could not be asked; the delivery is tried again."""
        ...

    def bad_record(self, topic: str, partition: int, offset: int, code: str) -> None:
        """A record of the completed topic cannot be read and is passed over."""
        ...

    def client_error(self, name: str) -> None:
        """The Kafka client reported an error from which it recovers by itself."""
        ...

    def skipped(self, key: CallKey, tool: str) -> None:
        """A call of a tool that this group does not serve was passed over."""
        ...

    def left_running(self, calls: int) -> None:
        """The drain time is over, and so many calls are left to their leases."""
        ...


class Silent:
    """Tells nobody."""

    def started(self, group: str, slot: str | None, tools: Sequence[str]) -> None:
        """See `Observer.started`."""

    def verdict(self, key: CallKey, tool: str, kind: str) -> None:
        """See `Observer.verdict`."""

    def ended(self, key: CallKey, tool: str, state: str, why: str | None, seconds: float) -> None:
        """See `Observer.ended`."""

    def delayed(self, key: CallKey, tool: str, code: str) -> None:
        """See `Observer.delayed`."""

    def bad_record(self, topic: str, partition: int, offset: int, code: str) -> None:
        """See `Observer.bad_record`."""

    def client_error(self, name: str) -> None:
        """See `Observer.client_error`."""

    def skipped(self, key: CallKey, tool: str) -> None:
        """See `Observer.skipped`."""

    def left_running(self, calls: int) -> None:
        """See `Observer.left_running`."""
