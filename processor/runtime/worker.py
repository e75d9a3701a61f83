"""The exactly-once loop of one process: consume, fold, commit, give partitions up and take them.

Rules:
    The loop's thread owns both clients' state; only the commit itself runs beside it.
    Rebalance callbacks run inside `consume` and never raise: they keep the error, the loop raises.
    On revocation everything folded so far is committed before the partitions go; when they are
    lost, nothing of them is committed again and the process ends (its position is unknown).
    After a fatal error nothing is polled again.
"""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, cast

from processor.core.errors import InvariantViolated, ProcessorError
from processor.runtime.absorb import Message as Record
from processor.runtime.back_pressure import PartitionValve
from processor.runtime.committer import Committer, Transaction
from processor.runtime.crash_points import CrashPoint
from processor.runtime.errors import ClientFatal, RestoreRefused, SlotFenced
from processor.runtime.expirer import CHECK_INTERVAL_S
from processor.runtime.folding import F, Folding
from processor.runtime.kafka import (
    ClientErrors,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
    ending,
    ends_consumption,
)
from processor.runtime.outbox import Outbox
from processor.runtime.ownership import Watch
from processor.runtime.restore import Committed, LogEnds, StartAt, TopicFacts, plan_start
from processor.runtime.settings import RuntimeSettings
from processor.runtime.task import Task

#: Seconds that a question to the broker inside a rebalance may take.
_ASK_S = 10.0
#: Longest wait for records, so that a stop request is seen soon.
_POLL_S = 0.1


class Clock(Protocol):
    """Monotonic seconds; the only use of time in the loop is to decide when to commit."""

    def __call__(self) -> float:
        """Seconds since some fixed moment."""
        ...


class Observer(Protocol):
    """What the loop tells about itself; implementations log and count, and never raise."""

    def assigned(self, partition: int, plan: StartAt) -> None:
        """A partition was taken over."""
        ...

    def restored(self, partition: int, records: int) -> None:
        """A partition has been re-folded up to its committed offset."""
        ...

    def revoked(self, partitions: list[int]) -> None:
        """Partitions were given up after a commit."""
        ...

    def committed(self, partitions: int, outputs: int) -> None:
        """A transaction was handed to the committer."""
        ...

    def input_paused(self, partitions: list[int]) -> None:
        """Open calls hold too much: these partitions wait for their turn to be read."""
        ...

    def input_resumed(self) -> None:
        """All partitions are read again."""
        ...

    def without_owner(self, partitions: list[int]) -> None:
        """Partitions had no owner in a stable group; it is made to assign again."""
        ...

    def client_error(self, name: str) -> None:
        """The client reported an error that it goes on after."""
        ...


class Worker(Generic[F]):
    """One member of the group. Build it, then `run(should_stop)`; it owns and closes its clients."""

    def __init__(
        self,
        settings: RuntimeSettings,
        consumer: Consumer,
        committer: Committer,
        folding: Folding[F],
        facts: TopicFacts,
        client_errors: ClientErrors,
        watch: Watch,
        observer: Observer,
        clock: Clock,
        crash_point: CrashPoint,
    ) -> None:
        self._settings = settings
        self._consumer = consumer
        self._committer = committer
        self._folding = folding
        self._facts = facts
        self._client_errors = client_errors
        self._watch = watch
        self._observer = observer
        self._clock = clock
        self._crash_point = crash_point
        self._tasks: dict[int, Task[F]] = {}
        self._valve = PartitionValve(settings.buffered_bytes_max)
        self._paused: frozenset[int] = frozenset()
        self._outbox: Outbox = []
        self._failure: ProcessorError | None = None
        #: Who this process was when it got the first of its partitions.
        self._member_id = ""
        self._commit_due_s: float | None = None
        self._uncommitted_count = 0
        self._committed_bytes_count = 0
        self._leaving = False
        self._has_fenced = False
        self._expiry_due_s = clock() + CHECK_INTERVAL_S

    @property
    def events_count(self) -> int:
        """Records absorbed so far, re-folded ones included."""
        return self._folding.events_count

    @property
    def ready(self) -> bool:
        """True when partitions are assigned and each has been re-folded."""
        return bool(self._tasks) and not any(task.restoring for task in self._tasks.values())

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Work until `should_stop`, then commit what was folded and leave.

        Raises: a `ProcessorError` of `runtime.errors`; nothing was committed after its cause.
        """
        if self._settings.group_protocol == "classic":
            self._fence_earlier()
        self._watch.start()
        self._consumer.subscribe(
            [self._settings.input_topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        try:
            while not should_stop():
                self._step()
            self._commit()
            self._committer.wait()
        except ProcessorError:
            self._stop_threads()
            self._leave_after_failure()
            raise
        self._stop_threads()
        self._leaving = True
        self._consumer.close()
        self._check()

    def _fence_earlier(self) -> None:
        """Fence the slot's earlier process, once, beside the loop.

        With the protocol `consumer` this waits until the group gave us the slot: there a newcomer
        is refused, and must not have ended the transactions of the one that stays.
        """
        if not self._has_fenced:
            self._has_fenced = True
            self._committer.start()

    def _stop_threads(self) -> None:
        self._watch.stop()
        self._committer.stop()

    def _leave_after_failure(self) -> None:
        """Tell a group of the protocol `consumer` that this slot is free for its next process.

        A classic group lets the next process take the slot of a dead one; this one would refuse it
        until the session is over. Nothing is committed; a client that does not answer is left.
        """
        if self._settings.group_protocol == "consumer":
            self._leaving = True
            closing = threading.Thread(target=self._consumer.close, name="leave", daemon=True)
            closing.start()
            closing.join(_ASK_S)

    def _step(self) -> None:
        messages = self._consume()
        if messages:
            restoring = [task for task in self._tasks.values() if task.restoring]
            records = cast("list[Record]", messages)  # errors were taken out, so offsets are there
            self._folding.absorb(records, self._tasks, self._outbox)
            self._crash_point("after_fold")
            for task in restoring:
                self._note_restore(task)
            self._uncommitted_count += len(messages)
            if self._commit_due_s is None:
                self._commit_due_s = self._clock() + self._settings.commit.interval_ms / 1000
        self._regulate(messages)
        if self._clock() >= self._expiry_due_s:
            self._append_expiries()
        if self._is_commit_due():
            self._commit()

    def _regulate(self, messages: list[Message]) -> None:
        """Pause and resume partitions as the bytes held ask for; polling goes on all the time."""
        now_s = self._clock()
        if self._valve.is_due(now_s):
            self._valve.weighed(self._folding.held_bytes(self._tasks), now_s, self._clock())
        if not (self._valve.closed or self._paused):
            return
        read = {cast("int", message.partition()) for message in messages}
        wanted = self._valve.paused(self._tasks, read, now_s)
        if wanted == self._paused:
            return
        try:
            self._consumer.pause(self._places(wanted - self._paused))
            self._consumer.resume(self._places(self._paused - wanted))
        except KafkaException as e:
            raise ending(e, "pause") from e
        if not wanted:
            self._observer.input_resumed()
        elif not self._paused:
            self._observer.input_paused(sorted(wanted))
        self._paused = wanted

    def _places(self, partitions: frozenset[int]) -> list[TopicPartition]:
        return [TopicPartition(self._settings.input_topic, p) for p in sorted(partitions)]

    def _append_expiries(self) -> None:
        self._expiry_due_s = self._clock() + CHECK_INTERVAL_S
        if self._folding.append_due(self._tasks, self._outbox) and self._commit_due_s is None:
            self._commit_due_s = self._clock()

    def _consume(self) -> list[Message]:
        """A batch, records first; one blocking wait only when the client has nothing queued."""
        size = self._settings.batch_records
        try:
            messages = self._consumer.consume(size, 0)
            if not messages:
                wait_s = _POLL_S
                if self._commit_due_s is not None and not self._committer.busy:
                    wait_s = min(_POLL_S, max(0.0, self._commit_due_s - self._clock()))
                first = self._consumer.poll(wait_s)
                messages = [] if first is None else [first]
        except KafkaException as e:
            raise self._failure or ending(e, "consume") from e
        self._check()
        records = [message for message in messages if message.error() is None]
        if len(records) < len(messages):
            for message in messages:
                self._judge_error(message)
        return records

    def _judge_error(self, message: Message) -> None:
        """End the process for an error that loses records or membership; note the others."""
        error = message.error()
        if error is None:
            return
        failure = ends_consumption(error)
        if failure is not None:
            raise failure
        self._observer.client_error(error.name())

    def _check(self) -> None:
        failure = self._failure or self._client_errors.fatal
        if failure is not None:
            raise failure
        self._committer.check()

    # --- commit --------------------------------------------------------------------------------

    def _is_commit_due(self) -> bool:
        if self._commit_due_s is None:
            return False
        commit = self._settings.commit
        output_bytes = self._folding.output_bytes_count - self._committed_bytes_count
        full = (
            self._uncommitted_count >= commit.records_max
            or len(self._outbox) >= commit.outputs_max
            or output_bytes >= commit.output_bytes_max
        )
        if full:
            return True
        return self._clock() >= self._commit_due_s and not self._committer.busy

    def _commit(self) -> None:
        """Hand everything folded so far to the committer; waits while one is in flight."""
        self._check()
        self._commit_due_s = None
        self._uncommitted_count = 0
        self._committed_bytes_count = self._folding.output_bytes_count
        # An expiry may be all that there is: then a position is committed again unchanged, since a
        # transaction without an owned offset would not be fenced by the group.
        wanted = [task for task in self._tasks.values() if task.dirty or self._outbox]
        dirty = [task for task in wanted if not task.restoring]
        if not dirty:
            if self._outbox:
                raise InvariantViolated("outputs without a partition to commit")
            return
        for task in dirty:
            self._folding.append_checkpoints(task, self._outbox)
        offsets = [
            TopicPartition(
                self._settings.input_topic,
                task.partition,
                task.next_offset,
                metadata=task.metadata().encode(),
            )
            for task in dirty
        ]
        outputs, self._outbox = self._outbox, []
        self._committer.submit(Transaction(outputs, offsets, self._identity()))
        for task in dirty:
            task.committed_offset = task.next_offset
        self._observer.committed(len(dirty), len(outputs))

    def _identity(self) -> Callable[[], object]:
        """Who we are, asked when it is used, for what was ours when this was called."""
        member_id = self._member_id

        def identify() -> object:
            metadata = self._group_metadata()
            # In this order: what was lost is noted before the client can join again.
            if self._failure is not None or self._member_id != member_id:
                raise SlotFenced("commit: partitions were lost meanwhile; restart this process")
            return metadata

        return identify

    def _group_metadata(self) -> object:
        """Who we are, asked now; without a member id the broker would fence nothing (KIP-447).

        A client that was thrown out during a rebalance joins again under another member id and says
        nothing of it: its metadata would be good, and what it commits another one's.
        """
        metadata = self._consumer.consumer_group_metadata()
        member_id = self._consumer.memberid()
        if not member_id or member_id != self._member_id:
            raise SlotFenced("commit: the group went on without this process; restart it")
        return metadata

    # --- ownership -----------------------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            self._fence_earlier()
            if not self._tasks:
                self._member_id = consumer.memberid()
            found = consumer.committed(partitions, _ASK_S)
            consumer.incremental_assign([self._take(consumer, committed) for committed in found])
        except KafkaException as e:
            self._failure = ending(e, "assign")
        except ProcessorError as e:
            self._failure = e
        except Exception as e:  # noqa: BLE001 - an escaping exception would lose fetched records
            self._failure = ClientFatal(f"assign failed: {type(e).__name__}")

    def _take(self, consumer: Consumer, committed: TopicPartition) -> TopicPartition:
        if committed.error is not None:
            raise ending(committed.error, f"committed offset of partition {committed.partition}")
        topic, partition = committed.topic, committed.partition
        first, last = consumer.get_watermark_offsets(TopicPartition(topic, partition), _ASK_S)
        plan = plan_start(
            Committed(topic, partition, committed.offset, committed.metadata or ""),
            LogEnds(first, last),
            self._facts,
            self._folding.version,
            self._folding.mark,
            start=self._settings.start,
            accept_reset=self._settings.accept_reset,
        )
        self._tasks[partition] = self._begin(consumer, committed, plan)
        if plan.origin != "restored":
            # The chosen start is committed at once: from now on a missing offset is an anomaly.
            self._commit_due_s = self._clock()
        self._observer.assigned(partition, plan)
        return TopicPartition(topic, partition, plan.offset)

    def _begin(self, consumer: Consumer, committed: TopicPartition, plan: StartAt) -> Task[F]:
        topic, partition = committed.topic, committed.partition
        try:
            return self._folding.begin(partition, plan, self._facts)
        except RestoreRefused as e:
            # Nothing may be wrong but that this process stood still since it asked.
            (now,) = consumer.committed([TopicPartition(topic, partition)], _ASK_S)
            if (now.offset, now.metadata) != (committed.offset, committed.metadata):
                raise SlotFenced(
                    f"assign: the group has moved {topic}[{partition}] on to offset {now.offset}"
                    f" since it stood at {committed.offset}. Restart this process"
                ) from e
            raise

    def _note_restore(self, task: Task[F]) -> None:
        if task.restoring:
            self._crash_point("mid_restore")
        else:
            self._observer.restored(task.partition, task.next_offset - task.mute_below)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._leaving:
            self._commit_before_revocation()
        self._drop(consumer, partitions)

    def _commit_before_revocation(self) -> None:
        try:
            self._committer.wait()
            self._commit()
            self._committer.wait()
        except ProcessorError as e:
            self._failure = e
        except Exception as e:  # noqa: BLE001 - as in _on_assign
            self._failure = ClientFatal(f"revoke failed: {type(e).__name__}")

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = sorted(p.partition for p in partitions)
        self._failure = SlotFenced(
            f"partitions {numbers} were lost: the group went on without this process. Nothing was"
            " committed since; restart it"
        )
        self._drop(consumer, partitions)

    def _drop(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self._tasks.pop(tp.partition, None)
            # An assignment begins unpaused.
            self._paused -= {tp.partition}
        try:
            consumer.incremental_unassign(partitions)
        except KafkaException as e:
            self._failure = self._failure or ending(e, "unassign")
        self._observer.revoked(sorted(p.partition for p in partitions))
