"""Deliberate bugs of the loop, the commit and the restore, each a small change of one part.

They are here to be caught: a simulation that passes them all would prove nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from processor.core.assembly import Assembly
from processor.core.errors import ProcessorError
from processor.core.terms import TermsMark
from processor.runtime.absorb import Message
from processor.runtime.assembling import Assembling
from processor.runtime.committer import Committer, Transaction
from processor.runtime.errors import CommitUnknown
from processor.runtime.folding import Folding
from processor.runtime.kafka import Consumer, Producer, TopicPartition
from processor.runtime.offset_metadata import OffsetMetadata
from processor.runtime.outbox import Outbox
from processor.runtime.ownership import OwnershipWatch
from processor.runtime.restore import StartAt, TopicFacts
from processor.runtime.settings import RuntimeSettings
from processor.runtime.task import Task
from processor.runtime.worker import Worker
from processor.testing import (
    GroupMetadata,
    SimulatedCommitter,
    SimulatedConsumer,
    SimulatedGroupView,
    SimulatedProcess,
    SimulatedProducer,
    SimulatedWatch,
)
from processor.testing.host import Host
from tests.simulation.assembler import EVENTS, IDLE_MS, Parts, make_folding


class _Committing(Parts):
    """Another committer."""

    kind: type[SimulatedCommitter] = SimulatedCommitter

    def committer(
        self, process: SimulatedProcess, producer: SimulatedProducer, settings: RuntimeSettings
    ) -> Committer:
        """The mistaken one."""
        return self.kind(
            process,
            cast("Producer", producer),
            process.point,
            timeout_s=settings.commit.transaction_timeout_ms / 1000,
            clock=process.seconds,
        )


class _CommitsFirst(SimulatedCommitter):
    def _commit(self, transaction: Transaction) -> None:
        super()._commit(Transaction([], transaction.offsets, transaction.group_metadata))
        if transaction.outputs:
            self._producer.begin_transaction()
            self._produce(transaction.outputs)
            self._producer.commit_transaction(self._timeout_s)


class CommitsBeforeItProduces(_Committing):
    """Positions are committed, then the outputs: a kill between the two loses them."""

    kind = _CommitsFirst


class _WritesBeside(SimulatedCommitter):
    def _produce(self, outputs: Outbox) -> None:
        plain = SimulatedProducer(self._process, {})
        for topic, key, value, headers, partition in outputs:
            at = -1 if partition is None else partition
            plain.produce(topic, value, key, partition=at, headers=headers)
        plain.poll(0)


class WritesOutputsOutsideOfTheTransaction(_Committing):
    """An abort does not take them back."""

    kind = _WritesBeside


class _TakesSilenceForSuccess(SimulatedCommitter):
    def _resumed(self, call: Callable[[], object], doing: str) -> bool:
        try:
            return super()._resumed(call, doing)
        except CommitUnknown:
            return False


class GoesOnWithAnUnknownResult(_Committing):
    """No answer is taken for a yes."""

    kind = _TakesSilenceForSuccess


class _TriesAgainInPlace(SimulatedCommitter):
    def _resumed(self, call: Callable[[], object], doing: str) -> bool:
        super()._resumed(call, doing)
        return False


class GoesOnAfterALateAnswer(_Committing):
    """The first request is still on its way and lands in the next transaction."""

    kind = _TriesAgainInPlace


class _AbortsAndGoesOn(SimulatedCommitter):
    def _commit(self, transaction: Transaction) -> None:
        try:
            super()._commit(transaction)
        except ProcessorError:
            self._producer.abort_transaction(self._timeout_s)


class GoesOnAfterAnAbort(_Committing):
    """The fold has moved on: what the aborted transaction held is never written again."""

    kind = _AbortsAndGoesOn


class _Folding(Parts):
    """Another folding."""

    kind: "type[_Mistaken]"

    def folding(self, host: Host, wall_ms: Callable[[], int]) -> Folding[Assembly]:
        """The mistaken one."""
        return self.kind(make_folding(host, wall_ms))


class _Mistaken:
    """Passes everything on."""

    def __init__(self, right: Assembling) -> None:
        self._right = right

    @property
    def version(self) -> int:
        """As it is."""
        return self._right.version

    @property
    def mark(self) -> TermsMark:
        """As it is."""
        return self._right.mark

    @property
    def events_count(self) -> int:
        """As it is."""
        return self._right.events_count

    @property
    def output_bytes_count(self) -> int:
        """As it is."""
        return self._right.output_bytes_count

    def held_bytes(self, tasks: Mapping[int, Task[Assembly]]) -> int:
        """As it is."""
        return self._right.held_bytes(tasks)

    def append_checkpoints(self, task: Task[Assembly], outbox: Outbox) -> None:
        """As it is."""
        self._right.append_checkpoints(task, outbox)

    def begin(self, partition: int, plan: StartAt, facts: TopicFacts) -> Task[Assembly]:
        """As it is."""
        return self._right.begin(partition, plan, facts)

    def absorb(
        self, messages: Sequence[Message], tasks: Mapping[int, Task[Assembly]], outbox: Outbox
    ) -> None:
        """As it is."""
        self._right.absorb(messages, tasks, outbox)

    def append_due(self, tasks: Mapping[int, Task[Assembly]], outbox: Outbox) -> int:
        """As it is."""
        return self._right.append_due(tasks, outbox)


class _LowTask(Task[Assembly]):
    __slots__ = ()

    def metadata(self) -> OffsetMetadata:
        """One too far."""
        found = super().metadata()
        found.low = min(found.low + 1, self.next_offset)  # type: ignore[misc]  # a deliberate bug
        return found


class _LowTasks(_Mistaken):
    def begin(self, partition: int, plan: StartAt, facts: TopicFacts) -> Task[Assembly]:
        task = super().begin(partition, plan, facts)
        task.__class__ = _LowTask
        return task


class LowWaterIsOneTooHigh(_Folding):
    """A restart misses the first record of the oldest call."""

    kind = _LowTasks


class _Loud(_Mistaken):
    def absorb(
        self, messages: Sequence[Message], tasks: Mapping[int, Task[Assembly]], outbox: Outbox
    ) -> None:
        bounds = {p: task.mute_below for p, task in tasks.items()}
        for task in tasks.values():
            task.mute_below = 0
        super().absorb(messages, tasks, outbox)
        for p, task in tasks.items():
            task.mute_below = bounds[p]


class SpeaksWhileItRestores(_Folding):
    """What an earlier life has given out is given out again."""

    kind = _Loud


class _Unmuted(_Mistaken):
    def begin(self, partition: int, plan: StartAt, facts: TopicFacts) -> Task[Assembly]:
        task = super().begin(partition, plan, facts)
        task.mute_below = plan.offset
        return task


class ForgetsThatItRestores(_Folding):
    """A position below the committed one is taken for live."""

    kind = _Unmuted


class _Working(Parts):
    """Another loop."""

    kind: type[Worker[Assembly]] = Worker

    def worker(
        self,
        process: SimulatedProcess,
        *,
        skew_ms: int = 0,
        batch: Callable[[int], int] = lambda size: size,
    ) -> Worker[Assembly]:
        """The mistaken one."""
        worker = super().worker(process, skew_ms=skew_ms, batch=batch)
        worker.__class__ = self.kind
        return worker


class _Anonymous(Worker[Assembly]):
    def _group_metadata(self) -> object:
        return GroupMetadata(self._settings.group)


class CommitsWithoutSayingWhoItIs(_Working):
    """The broker fences nothing: a zombie's commit counts."""

    kind = _Anonymous


class _Trusting(Worker[Assembly]):
    def _group_metadata(self) -> object:
        return self._consumer.consumer_group_metadata()


class TrustsANewMemberId(_Working):
    """A member that was thrown out and joined again commits what is another one's by now."""

    kind = _Trusting


class _Keeping(Worker[Assembly]):
    def _drop(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        kept = dict(self._tasks)
        super()._drop(consumer, partitions)
        if not self._leaving:
            self._tasks = kept


class KeepsWhatWasRevoked(_Working):
    """It goes on committing positions of a partition that somebody else has."""

    kind = _Keeping


class _Deaf(Worker[Assembly]):
    def _check(self) -> None:
        self._failure = None
        if self._client_errors.fatal is not None:
            raise self._client_errors.fatal
        self._committer.check()


class GoesOnAfterALostPartition(_Working):
    """What a callback said is forgotten, and the loop goes on."""

    kind = _Deaf


class ReadsWhatIsNotCommitted(Parts):
    """Aborted events and unstable offsets count."""

    def consumer(
        self,
        process: SimulatedProcess,
        config: dict[str, object],
        batch: Callable[[int], int],
    ) -> SimulatedConsumer:
        """The mistaken one."""
        config = {**config, "isolation.level": "read_uncommitted"}
        return SimulatedConsumer(process, config, batch=batch, idle_ms=IDLE_MS)


class NobodyWatches(Parts):
    """A partition that lost its owner in a hand-over stays without one."""

    def watch(
        self, process: SimulatedProcess, settings: RuntimeSettings, partitions: int
    ) -> OwnershipWatch:
        """The watch that never looks."""
        view = SimulatedGroupView(process, settings.group, EVENTS)
        return _Blind(process, view, settings.slot, partitions, lambda _: None)


class _Blind(SimulatedWatch):
    def start(self) -> None:
        pass


BUGS: dict[str, type[Parts]] = {
    kind.__name__: kind
    for kind in (
        CommitsBeforeItProduces,
        CommitsWithoutSayingWhoItIs,
        ForgetsThatItRestores,
        GoesOnAfterALateAnswer,
        GoesOnAfterALostPartition,
        GoesOnAfterAnAbort,
        GoesOnWithAnUnknownResult,
        KeepsWhatWasRevoked,
        LowWaterIsOneTooHigh,
        NobodyWatches,
        ReadsWhatIsNotCommitted,
        SpeaksWhileItRestores,
        TrustsANewMemberId,
        WritesOutputsOutsideOfTheTransaction,
    )
}
