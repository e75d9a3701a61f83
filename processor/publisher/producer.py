"""The Kafka producer behind the port: idempotent, acks=all, bounded; imports the client alone.

Rules:
    One thread serves the client; reports and the records kept for later are its work, so an
    application thread or event loop never runs another stream's callbacks.
    The client's own texts may quote settings: only its error codes are passed on.
"""

import logging
import threading
from collections import deque
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from processor.core.errors import Misuse
from processor.publisher.errors import SinkRefused
from processor.publisher.ports import OutRecord, Report
from processor.publisher.settings import PublisherSettings
from processor.telemetry.logging import ThinRepeats

_log = logging.getLogger("processor.publisher.kafka")
_log.addFilter(ThinRepeats())

#: How long one wait of the serving thread lasts; it bounds how late `close` is noticed.
_SERVE_S: Final = 0.1
#: A missed wake-up costs at most this long; see `wait_for_room`.
_ROOM_WAIT_S: Final = 0.05
#: Time for the failure reports of purged records; they are local, the broker is not asked.
_PURGE_S: Final = 5.0
#: Aborts kept for later. Beyond it the oldest is dropped, and its call ends by expiry instead.
LATE_RECORDS_MAX: Final = 10_000


def client_settings(settings: PublisherSettings) -> dict[str, object]:
    """Every setting of the client: the caller's first, those that this SDK owns last."""
    return {
        "client.id": "toolcalls-publisher",
        "compression.type": "lz4",
        **settings.client,
        "bootstrap.servers": settings.bootstrap,
        "enable.idempotence": True,
        "acks": "all",
        # As Java clients do, so that all writers of a call agree on its partition.
        "partitioner": "murmur2_random",
        "linger.ms": settings.linger_ms,
        "message.timeout.ms": settings.delivery_timeout_ms,
        "queue.buffering.max.messages": settings.queue_events_max,
        "queue.buffering.max.kbytes": max(1, settings.queue_bytes_max // 1024),
        "message.max.bytes": settings.record_bytes_max,
    }


class KafkaSink:
    """An `EventSink` on a Kafka topic. Thread-safe; owns one thread until it is closed.

    Raises: `Misuse` when the client refuses a setting; an unreachable broker is no error here,
    its records fail after `delivery_timeout_ms`.
    """

    def __init__(self, settings: PublisherSettings) -> None:
        self._producer = _producer(settings)
        self._room = threading.Condition()
        self._open_count = 0
        self._late: deque[OutRecord] = deque(maxlen=LATE_RECORDS_MAX)
        self._late_lock = threading.Lock()
        self._closed = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="toolcalls-publisher", daemon=True)
        self._thread.start()

    def offer(self, record: OutRecord, report: Report) -> bool:
        """Hand `record` to the client's queue. Cost: about 3 µs. Raises: `SinkRefused`."""
        if self._closed:
            raise SinkRefused("closed")
        return self._produce(record, report)

    def offer_late(self, record: OutRecord) -> None:
        """Send `record` as soon as there is room; dropped when the sink is closed before."""
        if self._closed:
            return
        with self._late_lock:
            self._late.append(record)
        self._send_late()

    def wait_for_room(self, timeout_s: float) -> None:
        """Wait for a report. Room made between `offer` and this wait is noticed after 50 ms."""
        with self._room:
            self._room.wait(min(timeout_s, _ROOM_WAIT_S))

    def flush(self, timeout_s: float) -> int:
        """Wait until every accepted record is reported, at most `timeout_s`."""
        with self._room:
            self._room.wait_for(self._idle, timeout_s)
            return self._open_count + len(self._late)

    def close(self, timeout_s: float) -> int:
        """Flush, purge the rest (each is reported as failed), stop the thread. Idempotent."""
        if self._closed:
            return 0
        left = self.flush(timeout_s)
        self._closed = True
        self._late.clear()
        if left:
            self._producer.purge()
            self.flush(_PURGE_S)
        self._stop.set()
        self._thread.join(_PURGE_S)
        return left

    def _idle(self) -> bool:
        return self._open_count == 0 and not self._late

    def _produce(self, record: OutRecord, report: Report) -> bool:
        with self._room:
            self._open_count += 1
        taken = False
        try:
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                headers=record.headers,
                on_delivery=partial(self._delivered, record, report),
            )
            taken = True
        except BufferError:
            return False
        except KafkaException as e:
            raise SinkRefused(_code(e.args[0])) from None
        finally:
            if not taken:
                self._settle()
        return True

    def _delivered(
        self, record: OutRecord, report: Report, error: KafkaError | None, _message: Message
    ) -> None:
        try:
            report(record, None if error is None else _code(error))
        except Exception as e:  # noqa: BLE001 - an exception here would leave the other reports unserved
            _log.warning("a delivery report failed with %s", type(e).__name__)
        finally:
            self._settle()

    def _settle(self) -> None:
        with self._room:
            self._open_count -= 1
            if self._open_count == 0:
                self._room.notify_all()

    def _serve(self) -> None:
        while not self._stop.is_set():
            if self._producer.poll(_SERVE_S):
                self._send_late()
                with self._room:
                    self._room.notify_all()

    def _send_late(self) -> None:
        with self._late_lock:
            while self._late:
                try:
                    if not self._produce(self._late[0], _no_report):
                        return
                except SinkRefused as e:
                    _log.warning("a call could not be aborted: %s", e)
                self._late.popleft()


def _no_report(_record: OutRecord, error: str | None) -> None:
    if error is not None:
        _log.warning("a call could not be aborted: not confirmed by Kafka (%s)", error)


def _code(error: object) -> str:
    return error.name() if isinstance(error, KafkaError) else type(error).__name__


def _producer(settings: PublisherSettings) -> Producer:
    try:
        return Producer(client_settings(settings), logger=_log)
    except (KafkaException, ValueError, TypeError) as e:
        # The client's text quotes values; of it only the name of a setting is passed on.
        text = str(e)
        named = [name for name in settings.client if f'"{name}"' in text]
        what = f"client setting {named[0]}" if named else "a client setting"
        raise Misuse(f"{what} was refused by the Kafka client") from None
