"""A relay that lives through a killed broker and a restarted Postgres, on servers of its own."""

import os
import secrets
import signal
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from processor.devstack import down, status, up
from tests.integration.assembler_rig import wait_until
from tests.integration.relay_rig import RelayRig

pytestmark = [pytest.mark.perf, pytest.mark.faults]


@pytest.fixture
def stack(tmp_path: Path) -> Generator[Path]:
    """Servers that only this test uses, so that it may kill them."""
    directory = tmp_path / "dev"
    up(directory)
    try:
        yield directory
    finally:
        down(directory)


def end(stack: Path, part: str, number: signal.Signals) -> None:
    """Send a signal to one server."""
    pid = getattr(status(stack), part).pid
    assert pid is not None
    os.kill(pid, number)
    wait_until(lambda: getattr(status(stack), part).state != "running", f"the end of {part}")


@pytest.mark.timeout(300)
def test_results_survive_the_loss_of_the_broker_and_of_postgres(stack: Path) -> None:
    """One process, no supervisor: what waits is published when the servers are back, in few lines."""
    endpoints = up(stack)
    with psycopg.connect(endpoints.database_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE outages")
    database = urlunsplit(urlsplit(endpoints.database_url)._replace(path="/outages"))
    rig = RelayRig(endpoints.kafka_bootstrap, database, f"outages-{secrets.token_hex(3)}-")
    relay = rig.start()
    try:
        expected = rig.settle(1, 50)
        wait_until(lambda: rig.waiting() == 0, "the first results")
        end(stack, "kafka", signal.SIGKILL)
        expected |= rig.settle(51, 100)
        up(stack)
        wait_until(lambda: rig.waiting() == 0, "the results after the broker's death")
        end(stack, "postgres", signal.SIGINT)
        up(stack)
        expected |= rig.settle(101, 150)
        wait_until(lambda: rig.waiting() == 0, "the results after the restart of Postgres")
        relay.send_signal(signal.SIGTERM)
        _, log = relay.communicate(timeout=60)
    finally:
        if relay.poll() is None:
            relay.kill()
            relay.communicate()
    assert relay.returncode == 0, log
    assert {name for name, _ in rig.published()} == expected
    assert len(log.splitlines()) < 30
