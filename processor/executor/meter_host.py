"""Put the parts of one usage recorder together and run it; and its log."""

from collections import Counter
from collections.abc import Callable, Sequence

import structlog

from processor.codec.records import decode_usage
from processor.core._record import record
from processor.executor.crash_points import CrashPoint, never_crash
from processor.executor.kafka_sink import KafkaSink, SinkSettings
from processor.executor.kafka_source import KafkaSettings, KafkaSource
from processor.executor.ports import Clock
from processor.executor.source import Delivered
from processor.executor.usage_recorder import MeterSettings, UsageRecorder
from processor.ledger.postgres_pool import PostgresSettings
from processor.ledger.postgres_usage import PostgresUsage
from processor.ledger.usage import Cause
from processor.telemetry.logging import RepeatFilter


@record
class MeterHostSettings:
    """Everything that one recorder is told."""

    kafka: KafkaSettings
    dead_letters: SinkSettings
    postgres: PostgresSettings
    meter: MeterSettings


class LogMeterObserver:
    """See `MeterObserver`. `counts` holds (what, word) -> how often. Places and words only."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._repeats = RepeatFilter()
        self.counts: Counter[tuple[str, str]] = Counter()

    def started(self, topic: str, group: str) -> None:
        """The database answers, and reading begins."""
        self._log.info("usage_recorder_started", topic=topic, group=group)

    def stopped(self) -> None:
        """The recorder ends because it was asked to, or was idle for long enough."""
        causes = {word: n for (what, word), n in self.counts.items() if what == "recorded"}
        self._log.info("usage_recorder_stopped", recorded=causes)

    def recorded(self, causes: Sequence[Cause]) -> None:
        """See `MeterObserver.recorded`."""
        for cause in causes:
            self.counts["recorded", cause] += 1

    def dead_letter(self, delivered: Delivered, code: str) -> None:
        """See `MeterObserver.dead_letter`."""
        self.counts["dead_letter", code] += 1
        total = self._repeats.count(f"dead_letter {code}")
        if total is not None:
            self._log.error(
                "usage_record_unreadable",
                topic=delivered.topic,
                partition=delivered.partition,
                offset=delivered.offset,
                code=code,
                total=total,
            )

    def failing(self, code: str) -> None:
        """See `MeterObserver.failing`."""
        self.counts["failing", code] += 1
        total = self._repeats.count(f"failing {code}")
        if total is not None:
            self._log.warning("usage_not_recorded", code=code, total=total)

    def client_error(self, name: str) -> None:
        """The Kafka client reported an error from which it recovers by itself."""
        self.counts["client_error", name] += 1
        total = self._repeats.count(name)
        if total is not None:
            self._log.warning("kafka_client_error", name=name, total=total)


def run_meter(
    settings: MeterHostSettings,
    *,
    observer: LogMeterObserver,
    stop_requested: Callable[[], bool],
    clock: Clock,
    crash_point: CrashPoint = never_crash,
) -> None:
    """Run until asked to stop, idle for long enough, or unable to go on.

    Raises: an error of `executor.errors`, `Misuse`, `Transient` when the database cannot be reached,
    `InvariantViolated`.
    """
    dead_letters = KafkaSink(settings.dead_letters, observer.client_error)
    try:
        with PostgresUsage(settings.postgres) as book:
            dead_letters.check()
            recorder = UsageRecorder(
                KafkaSource(settings.kafka, observer.client_error),
                book,
                dead_letters,
                decode=decode_usage,
                settings=settings.meter,
                clock=clock,
                observer=observer,
                stop_requested=stop_requested,
                crash_point=crash_point,
            )
            observer.started(settings.kafka.topic, settings.kafka.group)
            recorder.run()
            observer.stopped()
    finally:
        dead_letters.close()
