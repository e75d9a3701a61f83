"""Does a server answer? Tried on small servers of our own."""

import socket
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from processor.core.errors import Misuse
from processor.devstack.errors import DevStackFailed
from processor.devstack.external import kafka_addresses, postgres_addresses, require_reached
from processor.devstack.reach import (
    all_free,
    free_ports,
    kafka_answers,
    port_open,
    postgres_answers,
)

HOST = "127.0.0.1"
GOOD_KAFKA = struct.pack(">iih", 6, 1, 0)


@contextmanager
def server(answer: bytes) -> Generator[int]:
    """Accept one connection, read its request, send `answer`, close."""
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(64)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (GOOD_KAFKA + b"more", True),
        (struct.pack(">iih", 6, 2, 0), False),
        (struct.pack(">iih", 6, 1, 35), False),
        (b"HTTP/1.1 400", False),
        (b"", False),
    ],
)
def test_a_broker_is_known_by_its_answer(answer: bytes, expected: bool) -> None:
    """Only a matching ApiVersions answer without an error counts."""
    with server(answer) as port:
        assert kafka_answers(HOST, port) is expected


@pytest.mark.parametrize(("answer", "expected"), [(b"N", True), (b"S", True), (b"", False)])
def test_postgres_is_known_by_its_answer(answer: bytes, expected: bool) -> None:
    """It says whether it speaks TLS; silence is no answer."""
    with server(answer) as port:
        assert postgres_answers(HOST, port) is expected


def test_a_bound_port_that_is_not_served_is_no_broker() -> None:
    """A combined node accepts connections long before it serves them."""
    with socket.create_server((HOST, 0)) as listener:
        assert not kafka_answers(HOST, listener.getsockname()[1], timeout_s=0.1)


def test_free_ports_are_free_and_different() -> None:
    """All asked for at once, so that none comes twice."""
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all_free(*ports)
    with socket.create_server((HOST, 0)) as listener:
        assert not all_free(*ports, listener.getsockname()[1])


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@db.example:6543/x", [("db.example", 6543)]),
        ("postgres://db.example", [("db.example", 5432)]),
        ("postgresql://u:p%40@a:1,b/x?sslmode=require", [("a", 1), ("b", 5432)]),
        ("postgresql://u@[::1]:7/x", [("::1", 7)]),
        ("postgresql:///x?host=/tmp", []),
        ("host=db user=u", []),
    ],
)
def test_addresses_of_a_database_url(url: str, expected: list[tuple[str, int]]) -> None:
    """As libpq reads them; a socket or a key=value text names no address to try."""
    assert postgres_addresses(url) == expected


def test_addresses_of_a_bootstrap_list() -> None:
    """Host and port, several parted by commas."""
    assert kafka_addresses("a:1, b") == [("a", 1), ("b", 9092)]


@pytest.mark.parametrize("text", ["a:hunter2", ",", "a:1,b:-2"])
def test_a_wrong_bootstrap_list_is_refused_without_quoting_it(text: str) -> None:
    """What stands where a port belongs may be a secret."""
    with pytest.raises(Misuse) as caught:
        kafka_addresses(text)
    assert "hunter2" not in str(caught.value)


def test_an_external_part_that_is_not_there_is_named() -> None:
    """The error names the address and the variable."""
    (port,) = free_ports(1)
    with pytest.raises(DevStackFailed, match=f"127.0.0.1:{port}.*unset THE_VARIABLE"):
        require_reached("Kafka", "THE_VARIABLE", [(HOST, port)])
    with socket.create_server((HOST, 0)) as listener:
        open_port = listener.getsockname()[1]
        assert port_open(HOST, open_port)
        require_reached("Kafka", "THE_VARIABLE", [(HOST, port), (HOST, open_port)])
