"""How many results a relay publishes in a second from a full outbox, on servers of its own.

Usage: python -m tests.perf.bench_relay
"""

import secrets
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import psycopg

from processor.devstack import down, up
from processor.executor.kafka_sink import KafkaSink, SinkSettings
from processor.executor.ports import SystemClock
from processor.executor.relay import Relay, RelaySettings
from processor.executor.relay_log import LogRelayObserver
from processor.ledger.postgres_outbox import PostgresOutbox
from processor.ledger.postgres_pool import PostgresSettings
from processor.telemetry.logging import make_logger
from tests.integration.assembler_rig import wait_until
from tests.integration.relay_rig import RelayRig

EVENTS: Final = 20_000


def publish_all(rig: RelayRig) -> None:
    """One relay until there is nothing left."""
    observer = LogRelayObserver(make_logger("bench"))
    sink = KafkaSink(SinkSettings(rig.kafka, rig.topics.results), observer.client_error)
    with PostgresOutbox(PostgresSettings(rig.database, pool_max=1)) as outbox:
        Relay(
            outbox,
            sink,
            settings=RelaySettings(idle_end_s=0.3),
            clock=SystemClock(),
            observer=observer,
            stop_requested=lambda: False,
        ).run()
    sink.close()


def measure(rig: RelayRig, relays: int, first: int) -> str:
    """Fill the outbox, then time its emptying; the relays' own CPU time with it."""
    rig.settle(first, first + EVENTS - 1)
    threads = [threading.Thread(target=publish_all, args=(rig,)) for _ in range(relays)]
    cpu_s, start_s = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    wait_until(lambda: rig.waiting() == 0, "an empty outbox", 300)
    seconds = time.perf_counter() - start_s
    cpu_s = time.process_time() - cpu_s
    for thread in threads:
        thread.join()
    return f"{relays} relay(s): {EVENTS / seconds:,.0f} results/s, {cpu_s * 50:.1f} CPU s a million"


def main() -> None:
    """Measure one relay and two."""
    with tempfile.TemporaryDirectory(prefix="bench-relay-") as folder:
        stack = Path(folder) / "dev"
        endpoints = up(stack)
        try:
            with psycopg.connect(endpoints.database_url, autocommit=True) as connection:
                connection.execute("CREATE DATABASE bench")
            database = urlunsplit(urlsplit(endpoints.database_url)._replace(path="/bench"))
            rig = RelayRig(endpoints.kafka_bootstrap, database, f"bench-{secrets.token_hex(3)}-")
            for number, relays in enumerate((1, 2)):
                sys.stdout.write(measure(rig, relays, 1 + number * EVENTS) + "\n")
        finally:
            down(stack)


if __name__ == "__main__":
    main()
