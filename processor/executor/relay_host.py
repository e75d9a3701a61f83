"""Put the parts of one relay process together and run it."""

from collections.abc import Callable

from processor.core._record import record
from processor.executor.crash_points import CrashPoint, never_crash
from processor.executor.kafka_sink import KafkaSink, SinkSettings
from processor.executor.ports import Clock
from processor.executor.relay import Relay, RelaySettings
from processor.executor.relay_log import LogRelayObserver
from processor.ledger.postgres_outbox import PostgresOutbox
from processor.ledger.postgres_pool import PostgresSettings


@record
class RelayHostSettings:
    """Everything that one relay process is told."""

    sink: SinkSettings
    postgres: PostgresSettings
    relay: RelaySettings


def run_relay(
    settings: RelayHostSettings,
    *,
    observer: LogRelayObserver,
    stop_requested: Callable[[], bool],
    clock: Clock,
    crash_point: CrashPoint = never_crash,
) -> None:
    """Run until asked to stop, idle for long enough, or unable to go on.

    Raises: an error of `executor.errors`, `Misuse`, `Transient` when the ledger cannot be reached,
    `InvariantViolated`.
    """
    sink = KafkaSink(settings.sink, observer.client_error)
    try:
        with PostgresOutbox(settings.postgres) as outbox:
            sink.check()
            relay = Relay(
                outbox,
                sink,
                settings=settings.relay,
                clock=clock,
                observer=observer,
                stop_requested=stop_requested,
                crash_point=crash_point,
            )
            observer.started(sink.topic)
            relay.run()
            observer.stopped()
    finally:
        sink.close()
