"""What the ledger has to tell others: its outbox, taken in batches and marked when it was published.

Rules:
    An event is written by the transaction that changes the call, so nothing is told that did not
    happen, and nothing that happened is forgotten.
    It is told at least once, under an id that is the same each time; a reader drops repeats by it.
    The events of one call are handed out one after the other, however many relays there are.
"""

from contextlib import AbstractContextManager
from typing import Final, Protocol

from processor.core._record import record
from processor.core.identity import CallKey
from processor.core.results import ResultState, Retry

#: States that are told to those who wait for a call; of the others (`ready`) nobody needs to know.
TOLD_STATES: Final[frozenset[str]] = frozenset(
    {"succeeded", "failed", "denied", "cancelled", "expired", "in_doubt", "held"}
)


@record
class OutboxEvent:
    """One row of the outbox.

    `key` and `tool` are None when the ledger does not know the call any more. `repeat_of` is the place
    of a later delivery of the same call (`topic/partition/offset`), which got this stored answer.
    """

    id: int
    tenant: str
    idempotency_key: str
    key: CallKey | None
    tool: str | None
    state: str
    retry: Retry
    fence: int
    repeat_of: str | None
    body: bytes | None
    error_class: str | None

    @property
    def told_state(self) -> ResultState | None:
        """The state as results carry it; None when there is nothing to tell."""
        if self.key is None or self.state not in TOLD_STATES:
            return None
        return self.state  # type: ignore[return-value]  # checked against the closed list

    @property
    def event_id(self) -> str:
        """The same for each publication of this event, and of no other: key, state, fence."""
        name = self.idempotency_key if self.key is None else self.key.encode().decode()
        own = f"{name}/{self.state}/{self.fence}"
        return own if self.repeat_of is None else f"{own}/repeat/{self.repeat_of}"


class OutboxBatch(Protocol):
    """Events that this batch alone may publish, until it ends."""

    @property
    def events(self) -> list[OutboxEvent]:
        """In the order in which they were written; at most one of each call."""
        ...

    def done(self, ids: list[int]) -> None:
        """These need not be told again. It counts when the batch is left without an exception."""
        ...


@record
class Waiting:
    """What waits to be published, and for how long the oldest has."""

    events: int
    oldest_s: float


class Outbox(Protocol):
    """Raises, from every method: `Transient`, `Indeterminate`, `Misuse`, as the ledger does."""

    def batch(self, events_max: int, body_bytes_max: int) -> AbstractContextManager[OutboxBatch]:
        """The next events that nobody else has; an exception inside gives all of them back.

        `body_bytes_max` bounds the bodies together, one event is always given.
        """
        ...

    def waiting(self) -> Waiting:
        """For gauges and alerts."""
        ...
