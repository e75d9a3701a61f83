"""The assembler's folding: events of calls into completed and rejected ones."""

from collections.abc import Mapping, Sequence
from typing import Final

from processor.core.assembly import FOLD_VERSION, Assembly, Place
from processor.core.terms import TermsMark
from processor.runtime.absorb import Absorber, Message
from processor.runtime.checkpoints import Checkpoints
from processor.runtime.expirer import Expirer
from processor.runtime.known_terms import KnownTerms
from processor.runtime.outbox import Outbox
from processor.runtime.restore import StartAt, TopicFacts
from processor.runtime.task import Task

#: What a fragment costs in memory beside its bytes: the object's head and its place in a list.
ITEM_BYTES: Final = 41


class Assembling:
    """The `Folding` of the events topic."""

    def __init__(
        self,
        topic: str,
        absorber: Absorber,
        terms: KnownTerms,
        expirer: Expirer,
        checkpoints: Checkpoints,
    ) -> None:
        self._topic = topic
        self._absorber = absorber
        self._terms = terms
        self._expirer = expirer
        self._checkpoints = checkpoints

    @property
    def version(self) -> int:
        """Version of the fold's rules."""
        return FOLD_VERSION

    @property
    def mark(self) -> TermsMark:
        """Today's terms, as a commit names them."""
        return self._terms.today.mark

    @property
    def events_count(self) -> int:
        """Records folded so far, re-folded ones included."""
        return self._absorber.events_count

    @property
    def output_bytes_count(self) -> int:
        """Bytes of the outputs written so far."""
        return self._absorber.output_bytes_count

    def begin(self, partition: int, plan: StartAt, facts: TopicFacts) -> Task[Assembly]:
        """The task of a partition that was just taken over. Raises: `RestoreRefused`."""
        former = None if plan.former is None else self._terms.known(plan.former)
        at_first = former or self._terms.today
        is_restored = plan.origin == "restored"
        checkpoints = self._checkpoints.read(partition, plan)
        fold = Assembly(
            Place(self._topic, partition),
            at_first.limits,
            at_first.rules,
            wait_for_response=at_first.wait_for_response,
            log_time_ms=plan.log_time_ms,
            checkpoints=checkpoints if is_restored else (),
        )
        if not is_restored:
            # Nobody can go on from them any more; the first commit removes them.
            fold.checkpoints.gone.update((item.key, plan.offset) for item in checkpoints)
        fold.resume(plan.offset)
        return Task(
            partition,
            fold,
            start_offset=plan.offset,
            mute_below=plan.mute_below,
            committed_offset=plan.mute_below if is_restored else None,
            topic_id=facts.topic_id,
            partitions=facts.partitions,
            terms=self._terms.today,
            since=plan.since,
            former=former,
        )

    def absorb(
        self, messages: Sequence[Message], tasks: Mapping[int, Task[Assembly]], outbox: Outbox
    ) -> None:
        """Apply `messages` in order."""
        self._absorber.absorb(messages, tasks, outbox)
        for task in tasks.values():
            if task.fold.checkpoints.pending:
                task.fold.resume(task.next_offset)

    def append_due(self, tasks: Mapping[int, Task[Assembly]], outbox: Outbox) -> int:
        """Append the expiries that are due."""
        return self._expirer.append_due(tasks, outbox)

    def held_bytes(self, tasks: Mapping[int, Task[Assembly]]) -> int:
        """About what open calls hold: their buffers, and what each fragment costs beside them."""
        held_bytes = 0
        for task in tasks.values():
            limit = task.fold.limits.arguments_bytes_max
            for call in task.fold.calls.values():
                if call.items:
                    held_bytes += max(0, limit - call.room_bytes) + ITEM_BYTES * len(call.items)
        return held_bytes

    def append_checkpoints(self, task: Task[Assembly], outbox: Outbox) -> None:
        """Append the checkpoints that belong to the position of `task`."""
        self._checkpoints.append(task, outbox)
