"""What a process folds: the part of the exactly-once loop that differs between its two users.

Rules:
    The loop knows offsets, transactions and ownership; a `Folding` knows records. Whatever it puts
    into the outbox leaves in the same transaction as the positions that led to it.
    Below a task's `mute_below` nothing leaves.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from processor.core.terms import TermsMark
from processor.runtime.absorb import Message
from processor.runtime.outbox import Outbox
from processor.runtime.restore import StartAt, TopicFacts
from processor.runtime.task import Fold, Task

F = TypeVar("F", bound=Fold)


class Folding(Protocol[F]):
    """One kind of fold over one input topic, for all partitions of a process."""

    @property
    def version(self) -> int:
        """Version of the fold's rules."""
        ...

    @property
    def mark(self) -> TermsMark:
        """Today's terms, as a commit names them."""
        ...

    @property
    def events_count(self) -> int:
        """Records folded so far, re-folded ones included."""
        ...

    @property
    def output_bytes_count(self) -> int:
        """Bytes of the outputs written so far; the loop compares it between two commits."""
        ...

    def begin(self, partition: int, plan: StartAt, facts: TopicFacts) -> Task[F]:
        """The task of a partition that was just taken over.

        Raises: `RestoreRefused` when what it needs cannot be had.
        """
        ...

    def absorb(
        self, messages: Sequence[Message], tasks: Mapping[int, Task[F]], outbox: Outbox
    ) -> None:
        """Apply `messages` in order. Those of a partition that is not owned any more are dropped."""
        ...

    def append_due(self, tasks: Mapping[int, Task[F]], outbox: Outbox) -> int:
        """Append what time asks for; returns how many records. Called about once a second."""
        ...

    def held_bytes(self, tasks: Mapping[int, Task[F]]) -> int:
        """About what open calls hold in memory. Cost: linear in what is tracked."""
        ...

    def append_checkpoints(self, task: Task[F], outbox: Outbox) -> None:
        """Append what must leave together with the position of `task`, before it is asked for."""
        ...
