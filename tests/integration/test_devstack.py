"""The real dev stack: found again, repaired, ended without a trace."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from processor.core.errors import Misuse
from processor.devstack import Endpoints, StackStatus, down, status, up
from processor.devstack.places import postgres_home, service_user
from processor.devstack.processes import Process, born, find, with_descendants
from processor.devstack.state import LOCK_FILE, STATE_FILE, fresh_state, write_state
from processor.devstack.waiting import wait_until

pytestmark = pytest.mark.integration
TOPIC = "devstack-test"


@contextmanager
def stack(directory: Path) -> Generator[Endpoints]:
    """A running stack that is ended in any case."""
    try:
        yield up(directory)
    finally:
        down(directory)


def everything(directory: Path) -> list[Process]:
    """All processes of the stack, children included."""
    user = service_user()
    owners = [os.geteuid(), *([user.uid] if user else [])]
    found = [p for home in homes(directory) for p in find(home, owners)]
    return with_descendants(found)


def homes(directory: Path) -> list[Path]:
    """The folders whose paths a part's command line or working folder holds."""
    return [directory, postgres_home(directory, service_user())]


def pids(found: StackStatus) -> tuple[int, int]:
    """The pids of both running parts."""
    assert found.kafka.pid
    assert found.postgres.pid
    return found.kafka.pid, found.postgres.pid


def topics(endpoints: Endpoints) -> set[str]:
    """The topics of the broker."""
    admin = AdminClient({"bootstrap.servers": endpoints.kafka_bootstrap})
    return set(admin.list_topics(timeout=30).topics)


def test_a_stack_lives_from_up_to_down(tmp_path: Path) -> None:
    """Both parts serve; a second `up` finds the same processes; `down` leaves nothing."""
    directory = tmp_path / "dev"
    with stack(directory) as endpoints:
        before = pids(status(directory))
        assert topics(endpoints) == set()
        with psycopg.connect(endpoints.database_url) as connection:
            assert connection.execute("SHOW server_version").fetchone() is not None
        assert up(directory) == endpoints
        assert pids(status(directory)) == before
        bootstrap, url = endpoints.kafka_bootstrap, endpoints.database_url
        assert up(directory, kafka_bootstrap=bootstrap, database_url=url) == endpoints
        assert status(directory, kafka_bootstrap=bootstrap).kafka.state == "running"
        with pytest.raises(Misuse, match="other settings"):
            up(directory, kafka_properties={"num.partitions": "2"})
        family = everything(directory)
        assert {p.pid for p in family} > set(before)
    assert not any(p.is_alive() for p in family)
    assert not any(home.exists() for home in homes(directory))


def test_a_password_is_needed(tmp_path: Path) -> None:
    """The database refuses a wrong password; there is no trust on the loopback."""
    directory = tmp_path / "dev"
    try:
        endpoints = up(directory, only="postgres")
        assert status(directory).kafka.state == "stopped"
        wrong = endpoints.database_url.replace("@", "x@")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(wrong)
    finally:
        down(directory)


def test_dead_parts_are_started_again_with_data_and_ports(tmp_path: Path) -> None:
    """After SIGKILL of both, `up` brings back the topic, the table and the addresses."""
    directory = tmp_path / "dev"
    with stack(directory) as endpoints:
        admin = AdminClient({"bootstrap.servers": endpoints.kafka_bootstrap})
        futures = admin.create_topics([NewTopic(TOPIC, 1)])  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # no stub
        futures[TOPIC].result()  # pyright: ignore[reportUnknownMemberType]  # no stub
        with psycopg.connect(endpoints.database_url) as connection:
            connection.execute("CREATE TABLE kept (id int)")
        for pid in pids(status(directory)):
            Process(pid, born(pid) or "").signal(signal.SIGKILL)
        assert wait_until(lambda: status(directory).kafka.state == "stopped", 10)
        assert up(directory) == endpoints
        assert TOPIC in topics(endpoints)
        with psycopg.connect(endpoints.database_url) as connection:
            connection.execute("SELECT id FROM kept")


def test_data_is_kept_on_request(tmp_path: Path) -> None:
    """`down --keep-data` ends the server; the next start has the table."""
    directory = tmp_path / "dev"
    try:
        endpoints = up(directory, only="postgres")
        with psycopg.connect(endpoints.database_url) as connection:
            connection.execute("CREATE TABLE kept (id int)")
        down(directory, keep_data=True)
        assert everything(directory) == []
        with psycopg.connect(up(directory, only="postgres").database_url) as connection:
            connection.execute("SELECT id FROM kept")
    finally:
        down(directory)


def test_a_taken_port_is_replaced(tmp_path: Path) -> None:
    """Another program on the old port: the part moves to a free one."""
    directory = tmp_path / "dev"
    directory.mkdir()
    (directory / LOCK_FILE).touch()
    state = fresh_state()
    write_state(directory, state)
    with socket.create_server(("127.0.0.1", state.postgres_port)):
        try:
            endpoints = up(directory, only="postgres")
            assert f":{state.postgres_port}/" not in endpoints.database_url
            psycopg.connect(endpoints.database_url).close()
        finally:
            down(directory)


@pytest.mark.faults
@pytest.mark.parametrize("sign", ["kafka/data.new", "postgres.log", "kafka/data", STATE_FILE])
def test_a_killed_up_leaves_nothing_out_of_reach(tmp_path: Path, sign: str) -> None:
    """The command is killed when a step has begun; `down` finds and ends all of it."""
    directory = tmp_path / "dev"
    command = [sys.executable, "-m", "processor.cli.main", "dev", "up", "--dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        assert wait_until((directory / sign).exists, 60, poll_s=0.005)
        child.kill()
    family = everything(directory)
    assert down(directory)
    assert not any(p.is_alive() for p in family)
    assert everything(directory) == []
    assert not any(home.exists() for home in homes(directory))


@pytest.mark.faults
def test_a_killed_up_is_finished_by_the_next_one(tmp_path: Path) -> None:
    """The broker was starting when the command was killed; the next `up` takes it over."""
    directory = tmp_path / "dev"
    command = [sys.executable, "-m", "processor.cli.main", "dev", "up", "--dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        assert wait_until((directory / "kafka" / "data").exists, 60, poll_s=0.005)
        child.kill()
    with stack(directory) as endpoints:
        assert topics(endpoints) == set()
        found = status(directory)
        brokers = [p.pid for p in everything(directory) if p.pid == found.kafka.pid]
        assert brokers == [found.kafka.pid]


@pytest.mark.faults
def test_two_ups_at_once_make_one_stack(tmp_path: Path) -> None:
    """The lock lets one of them work; the other finds the result."""
    directory = tmp_path / "dev"
    command = [sys.executable, "-m", "processor.cli.main", "dev", "up", "--dir", str(directory)]
    try:
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as two,
        ):
            first, second = one.communicate()[0], two.communicate()[0]
        assert (one.returncode, two.returncode) == (0, 0)
        assert first == second
        assert "export TOOLCALLS_KAFKA_BOOTSTRAP=" in first
    finally:
        down(directory)
