"""One transaction at a time, on a thread of its own: begin, produce, send offsets, commit.

Rules:
    The loop goes on consuming and folding into the next outbox while a commit runs (librdkafka
    releases the interpreter lock). Running ahead is safe because a commit that fails ends the
    process: nothing of what was folded ahead can have left it.
    A transaction begins when it is about to be committed, so none is open while idle, restoring or
    rebalancing, and our own open transaction never holds back our input.
    Every transaction carries at least one owned input offset; one without is not fenced by the
    group's generation.
    After an error no further transaction is begun with this producer, but for one: when the group
    assigned again while a transaction was made, it is aborted and made again under the new
    generation. What it commits is still owned then: a partition is given to another member only
    after this one gave it up, which waits for the transaction.
    A transaction in which a call got no answer in time is its producer's last, even when it was
    committed at the second try: the first request may still be on its way, and would count in the
    next transaction of the same epoch. The restart's new epoch fences it.
"""

import threading
from collections.abc import Callable
from typing import Final

from processor.core._record import record
from processor.core.errors import InvariantViolated, ProcessorError
from processor.runtime.crash_points import CrashPoint
from processor.runtime.errors import ClientFatal, CommitRefused, CommitUnknown, GenerationPassed
from processor.runtime.kafka import (
    KafkaException,
    Producer,
    TopicPartition,
    ending,
    kafka_error,
)
from processor.runtime.leftovers import BROKER_SCAN_S
from processor.runtime.outbox import Outbox

#: How often a call that timed out without a verdict is made again; it resumes, it does not repeat.
RESUME_MAX: Final = 3
#: How often a transaction is made again for a new generation, and the pause for it to be heard of.
REDO_MAX: Final = 5
REDO_PAUSE_S: Final = 0.05
#: Steps of a commit that may each take the client's whole time limit, before nobody waits longer:
#: a client call has been seen not to return at all after its broker was away.
STEPS_MAX: Final = 2
GRACE_S: Final = 5.0
#: How often a waiting loop looks at the time.
WATCH_S: Final = 0.5


@record
class Transaction:
    """What one transaction carries: outputs, the next offsets with metadata, who we are.

    `group_metadata` is asked on the loop's thread only: the client lets no other thread ask while
    a rebalance callback runs. It raises when we are not who we were.
    """

    outputs: Outbox
    offsets: list[TopicPartition]
    group_metadata: Callable[[], object]


class Committer:
    """Commits transactions in the order given, one in flight at most. Used by one loop only."""

    def __init__(
        self,
        producer: Producer,
        crash_point: CrashPoint,
        *,
        timeout_s: float,
        clock: Callable[[], float],
        await_leftovers: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._await_leftovers = await_leftovers
        self._producer = producer
        self._crash_point = crash_point
        self._timeout_s = timeout_s
        self._wake = threading.Condition()
        self._given: Transaction | None = None
        self._given_at_s = 0.0
        self._limit_s = timeout_s * STEPS_MAX + GRACE_S
        #: A first transaction also waits for the end of earlier ones.
        self._first_limit_s = self._limit_s + timeout_s + BROKER_SCAN_S
        self._is_fenced = False
        self._stopping = False
        self._failure: ProcessorError | None = None
        self._metadata: object = None
        self._is_asking = False
        self.committed_count = 0
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    def start(self) -> None:
        """Start the thread, which first fences the slot's earlier process; `check` raises its error.

        Then it waits until nothing of an earlier life is open (`runtime/leftovers.py`).
        It takes half a second when that one died in a transaction (the client asks again so late),
        and the loop need not wait: after its joining the group refuses the earlier process by its
        member id, and a committed offset is given out only when no transaction has it in its hands.
        """
        self._thread.start()

    def _fence(self) -> ProcessorError | None:
        try:
            self._resumed(
                lambda: self._producer.init_transactions(self._timeout_s), "init_transactions"
            )
            self._await_leftovers()
        except ProcessorError as e:
            return e
        except Exception as e:  # noqa: BLE001 - as in _commit_or_failure
            return ClientFatal(f"the commit thread failed to start: {type(e).__name__}")
        self._given_at_s = self._clock()
        self._is_fenced = True
        return None

    @property
    def busy(self) -> bool:
        """True while a transaction is in flight."""
        return self._given is not None

    def check(self) -> None:
        """Raise what ended the last transaction, if it did not commit or does not end.

        Says who we are now to a transaction that asks again; raises as that does.
        """
        if self._failure is not None:
            raise self._failure
        self._answer()
        limit_s = self._limit_s if self._is_fenced else self._first_limit_s
        if self.busy and self._clock() - self._given_at_s > limit_s:
            raise CommitUnknown(
                f"commit: no answer from the client within {limit_s:.0f} s, whatever its own"
                " limit. A restart reads the result from Kafka"
            )

    def submit(self, transaction: Transaction) -> None:
        """Hand over the next transaction; waits until the one in flight has committed."""
        if not transaction.offsets:
            raise InvariantViolated("a transaction without an owned offset is not fenced")
        self.wait()
        with self._wake:
            self._take(transaction)
            self._wake.notify_all()

    def _take(self, transaction: Transaction) -> None:
        self._metadata = transaction.group_metadata()
        self._given_at_s = self._clock()
        self._given = transaction

    def _answer(self) -> None:
        given = self._given
        if self._is_asking and given is not None:
            self._metadata = given.group_metadata()
            with self._wake:
                self._is_asking = False
                self._wake.notify_all()

    def wait(self) -> None:
        """Wait until nothing is in flight. Raises: what ended the transaction."""
        while True:
            with self._wake:
                self._wake.wait_for(
                    lambda: self._given is None or self._failure is not None or self._is_asking,
                    WATCH_S,
                )
            self.check()
            if not self.busy:
                return

    def stop(self) -> None:
        """End the thread after the transaction in flight, if any."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join(self._timeout_s)

    def _run(self) -> None:
        self._failure = self._fence()
        while self._failure is None:
            with self._wake:
                self._wake.wait_for(lambda: self._given is not None or self._stopping)
                given = self._given
            if given is None:
                return
            failure = self._commit_or_failure(given)
            with self._wake:
                self._failure = failure
                if failure is None:
                    self._given = None
                    self.committed_count += 1
                self._wake.notify_all()

    def _commit_or_failure(self, transaction: Transaction) -> ProcessorError | None:
        try:
            self._commit_redoing(transaction)
        except ProcessorError as e:
            return e
        except Exception as e:  # noqa: BLE001 - a bug on this thread must end the loop, not hide
            return ClientFatal(f"the commit thread failed: {type(e).__name__}")
        return None

    def _commit_redoing(self, transaction: Transaction) -> None:
        """Commit; once more under the group's new generation when it assigned again meanwhile."""
        redone = 0
        while True:
            try:
                self._commit(transaction)
            except GenerationPassed:
                redone += 1
                if redone == REDO_MAX:
                    raise
                self._abort()
                self._ask_again()
            else:
                return

    def _abort(self) -> None:
        if self._resumed(lambda: self._producer.abort_transaction(self._timeout_s), "abort"):
            raise CommitUnknown("abort: an earlier request of it may still be on its way")

    def _ask_again(self) -> None:
        """Have the loop say who we are now, once the client has had time to hear of it."""
        with self._wake:
            self._wake.wait_for(lambda: self._stopping, REDO_PAUSE_S)
            self._is_asking = True
            self._wake.notify_all()
            self._wake.wait_for(lambda: not self._is_asking or self._stopping, self._timeout_s)
            if self._is_asking:
                raise CommitRefused("commit: a new generation began, and the loop did not go on")

    def _commit(self, transaction: Transaction) -> None:
        crash_point = self._crash_point
        crash_point("before_begin")
        try:
            self._producer.begin_transaction()
        except KafkaException as e:
            raise ending(e, "begin_transaction") from e
        crash_point("after_begin")
        self._produce(transaction.outputs)
        crash_point("after_produce")
        late = self._resumed(
            lambda: self._producer.send_offsets_to_transaction(
                transaction.offsets,
                self._metadata,
                self._timeout_s,
            ),
            "send_offsets_to_transaction",
        )
        crash_point("after_send_offsets")
        late |= self._resumed(lambda: self._producer.commit_transaction(self._timeout_s), "commit")
        crash_point("after_commit")
        if late:
            raise CommitUnknown(
                "commit: it was made, but an earlier request of it may still be on its way. A"
                " restart fences that request"
            )

    def _produce(self, outputs: Outbox) -> None:
        produce = self._producer.produce
        for topic, key, value, headers, partition in outputs:
            while True:
                try:
                    produce(
                        topic,
                        value,
                        key,
                        partition=-1 if partition is None else partition,
                        headers=headers,
                    )
                    break
                except BufferError:
                    # The local queue is full: wait for room, bounded by message.timeout.ms, after
                    # which the queued records fail and the commit reports it.
                    self._producer.poll(0.05)
                except KafkaException as e:
                    raise ending(e, f"produce to {topic}") from e
        self._producer.poll(0)

    def _resumed(self, call: Callable[[], object], doing: str) -> bool:
        """Make a call until it is answered; True when the first try was not."""
        attempt = 0
        while True:
            try:
                call()
            except KafkaException as e:
                attempt += 1
                if not kafka_error(e).retriable() or attempt == RESUME_MAX:
                    raise ending(e, doing) from e
            else:
                return attempt > 0
