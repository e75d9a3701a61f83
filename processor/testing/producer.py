"""The transactional producer, with the names and the errors of the client's `Producer`.

Rules:
    Records wait in the client until `poll`, `flush` or the end of the transaction sends them.
    A call that got no answer may be made again: it resumes, and takes effect once.
    After a fatal error every call is refused with that error.
"""

# ruff: noqa: SLF001 - the client's own error codes are public, their names begin with an underscore.

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from processor.codec.headers import Headers
from processor.core._record import record
from processor.runtime.kafka import KafkaError, KafkaException, TopicPartition, kafka_error
from processor.runtime.partitioner import partition_of
from processor.testing.errors import Blocked, refused
from processor.testing.groups import GroupMetadata, Offset
from processor.testing.host import Host
from processor.testing.log import NewRecord

T = TypeVar("T")


@record
class _Queued:
    topic: str
    partition: int
    record: NewRecord


class SimulatedProducer:
    """One producer; `config` takes the client's own names, the unknown ones are passed over."""

    def __init__(self, host: Host, config: Mapping[str, object]) -> None:
        self._host = host
        transactional_id = config.get("transactional.id")
        self._id = None if transactional_id is None else str(transactional_id)
        self._timeout_ms = int(str(config.get("transaction.timeout.ms", 60_000)))
        self._on_error = config.get("error_cb")
        self._epoch = -1
        self._open = False
        #: Something of the open transaction has reached the broker.
        self._begun = False
        self._queue: list[_Queued] = []
        self._fatal: KafkaError | None = None

    # --- transactions --------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:
        """Get an epoch; an earlier producer of this id is fenced, its transaction aborted."""
        name = self._named()
        init = self._host.cluster.transactions.init
        _, self._epoch = self._remote(
            "init_transactions", lambda: init(name, self._timeout_ms), timeout
        )

    def begin_transaction(self) -> None:
        """Begin, here only: the broker hears of it with the first record or offset."""

        def begin() -> None:
            if self._epoch < 0 or self._open:
                raise refused(KafkaError._STATE, "not ready to begin")
            self._open, self._begun = True, False

        self._local("begin_transaction", begin)

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: object, timeout: float = -1
    ) -> None:
        """Make the group's new offsets part of the transaction. Flushes nothing."""
        if not isinstance(group_metadata, GroupMetadata):
            raise TypeError("group metadata is that of a simulated consumer")
        offsets = {
            (tp.topic, tp.partition): Offset(tp.offset, tp.metadata or "") for tp in positions
        }

        def send() -> None:
            if not self._open:
                raise refused(KafkaError._STATE, "no transaction is open")
            if not offsets:
                return
            cluster = self._host.cluster
            group = cluster.group(group_metadata.group)
            number = cluster.transactions.add_group(self._named(), self._epoch, group)
            self._begun = True
            group.add_pending(number, group_metadata, offsets)

        self._remote("send_offsets_to_transaction", send, timeout)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send what is queued, then have the transaction decided. Resumable."""
        self._end("commit_transaction", timeout, committed=True)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Forget what is queued, then have the transaction aborted. Resumable."""
        self._queue.clear()
        self._end("abort_transaction", timeout, committed=False)

    def _end(self, call: str, timeout: float, *, committed: bool) -> None:
        def end() -> None:
            if not self._open:
                raise refused(KafkaError._STATE, "no transaction is open")
            self._send()
            if self._begun:
                transactions = self._host.cluster.transactions
                transactions.end(self._named(), self._epoch, committed=committed)

        self._remote(call, end, timeout)
        self._open = False

    # --- records -------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        on_delivery: object = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Queue a record; -1 leaves the partition to the key."""
        del on_delivery
        key_bytes = key.encode() if isinstance(key, str) else key
        new = NewRecord(
            key_bytes,
            value.encode() if isinstance(value, str) else value,
            [(k, v.encode() if isinstance(v, str) else v) for k, v in headers or []],
            timestamp or None,
        )

        def queue() -> None:
            if self._id is not None and not self._open:
                raise refused(KafkaError._STATE, "no transaction is open")
            count = self._host.cluster.partitions_of(topic)
            chosen = partition
            if partition < 0:
                # A client draws one for a record without a key; here it is always the first.
                chosen = 0 if key_bytes is None else partition_of(key_bytes, count)
            self._host.cluster.log(topic, chosen)
            self._queue.append(_Queued(topic, chosen, new))

        self._local("produce", queue)

    def poll(self, timeout: float = 0) -> int:
        """Let the client send what is queued."""
        del timeout
        self._local("producer.poll", lambda: None)
        if self._host.reachable:
            self._quietly(self._send)
        return 0

    def flush(self, timeout: float = -1) -> int:
        """Send everything; returns how many records are left."""
        self._remote("flush", self._send, timeout)
        return len(self._queue)

    def close(self, timeout: float = -1) -> None:
        """Abort what is open."""
        if self._open and self._fatal is None:
            self.abort_transaction(timeout)

    def __len__(self) -> int:
        return len(self._queue)

    def _send(self) -> None:
        cluster = self._host.cluster
        while self._queue:
            first = self._queue[0]
            log = cluster.log(first.topic, first.partition)
            if self._id is None:
                log.append(first.record, cluster.now_ms)
            else:
                cluster.transactions.produce(self._id, self._epoch, log, [first.record])
                self._begun = True
            del self._queue[0]

    def _quietly(self, send: Callable[[], None]) -> None:
        """The client's own thread sends: what goes wrong shows at the next call."""
        try:
            send()
        except KafkaException as e:
            self._note(e)
        except Blocked:
            return

    # --- calls ---------------------------------------------------------------------------------

    def _named(self) -> str:
        if self._id is None:
            raise refused(KafkaError._NOT_CONFIGURED, "no transactional.id")
        return self._id

    def _remote(self, call: str, effect: Callable[[], T], timeout: float) -> T:
        timeout_ms = self._timeout_ms if timeout < 0 else int(timeout * 1000)
        return self._called(lambda: self._host.request(call, effect, timeout_ms))

    def _local(self, call: str, effect: Callable[[], T]) -> T:
        return self._called(lambda: self._host.request(call, effect, remote=False))

    def _called(self, make: Callable[[], T]) -> T:
        if self._fatal is not None:
            raise KafkaException(self._fatal)
        try:
            return make()
        except KafkaException as e:
            self._note(e)
            raise

    def _note(self, exception: KafkaException) -> None:
        error = kafka_error(exception)
        if error.fatal() and self._fatal is None:
            self._fatal = error
            if callable(self._on_error):
                self._on_error(error)
