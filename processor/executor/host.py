"""Put the parts of one executor process together and run it."""

import secrets
from collections.abc import Callable

from processor.codec.records import decode_completed
from processor.core._record import record
from processor.core.errors import Misuse
from processor.executor.crash_points import CrashPoint, never_crash
from processor.executor.dispatch import Dispatcher
from processor.executor.kafka_source import KafkaRefetch, KafkaSettings, KafkaSource
from processor.executor.ports import AllowAll, Authoriser, Observer, SystemClock
from processor.executor.reconcile import Reconciler
from processor.executor.runner import CallRunner, RunnerSettings
from processor.executor.served import ServedTool
from processor.executor.worker import Worker, WorkerSettings
from processor.ledger.grouped import GroupedLedger
from processor.ledger.postgres import PostgresLedger, PostgresSettings


@record
class HostSettings:
    """Everything that one executor process is told. `threads` bounds the calls that run at once."""

    kafka: KafkaSettings
    postgres: PostgresSettings
    runner: RunnerSettings
    worker: WorkerSettings
    threads: int = 16
    per_tenant: int = 16

    def checked(self) -> "HostSettings":
        """Return these settings, or refuse the contradictory ones by name. Raises: `Misuse`."""
        if not 1 <= self.threads <= 1000:
            raise Misuse(f"threads must be 1 to 1000, not {self.threads}")
        if not 1 <= self.per_tenant <= self.threads:
            raise Misuse(f"per_tenant must be 1 to threads ({self.threads}), not {self.per_tenant}")
        if self.worker.in_flight_max < self.threads:
            raise Misuse("in_flight_max must be at least as large as threads")
        margin_s = self.runner.lease_margin_s
        # Written so that a value that is not a number is refused as well.
        if not 0.5 <= margin_s <= 86_400:
            raise Misuse(f"lease_margin_s must be 0.5 to 86400 seconds, not {margin_s}")
        return self


def run_executor(
    settings: HostSettings,
    tools: dict[str, ServedTool],
    *,
    observer: Observer,
    stop_requested: Callable[[], bool],
    clock: SystemClock,
    authoriser: Authoriser | None = None,
    crash_point: CrashPoint = never_crash,
) -> None:
    """Run until asked to stop, idle for long enough, or unable to go on.

    Raises: an error of `executor.errors`, `Misuse`, `Transient` when the ledger cannot be reached at
    the start, `InvariantViolated`.
    """
    settings = settings.checked()
    with PostgresLedger(settings.postgres) as ledger:
        runner = CallRunner(
            GroupedLedger(ledger),
            tools,
            # Unique to this start: what a former start of the slot has claimed is not ours.
            owner=f"{settings.kafka.group}/{settings.kafka.slot or '-'}/{secrets.token_hex(4)}",
            settings=settings.runner,
            clock=clock,
            authoriser=authoriser or AllowAll(),
            observer=observer,
            crash_point=crash_point,
            starts_of=lambda tenant, key: view.begun if (view := ledger.show(tenant, key)) else 0,
        )
        reconciler = Reconciler(ledger, tools, clock=clock, observer=observer)
        observer.started(settings.kafka.group, settings.kafka.slot, sorted(tools))
        try:
            Worker(
                source=KafkaSource(settings.kafka, observer.client_error),
                refetch=KafkaRefetch(settings.kafka, observer.client_error),
                ledger=ledger,
                runner=runner,
                reconciler=reconciler,
                dispatcher=Dispatcher(
                    threads=settings.threads,
                    per_tenant=settings.per_tenant,
                    per_tool={name: served.concurrency for name, served in tools.items()},
                    again_after_s=settings.runner.retry_delay_s,
                    monotonic_s=clock.monotonic_s,
                ),
                tools=frozenset(tools),
                decode=decode_completed,
                clock=clock,
                observer=observer,
                settings=settings.worker,
                stop_requested=stop_requested,
                crash_point=crash_point,
            ).run()
        finally:
            runner.close()
            reconciler.close()
