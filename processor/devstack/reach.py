"""Does a server answer? Raw first messages of the two protocols, so no driver is needed.

Rules:
    A combined KRaft node binds its port long before it serves: only an answered ApiVersions
    request (KIP-35) shows that the broker is registered and takes requests.
"""

import socket
import struct
from contextlib import closing

PROBE_TIMEOUT_S = 1.0
_LOOPBACK = "127.0.0.1"
_CLIENT_ID = b"toolcalls-dev"
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, len(_CLIENT_ID)) + _CLIENT_ID
_SSL_REQUEST = struct.pack(">ii", 8, 80877103)


def kafka_answers(host: str, port: int, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """True when the broker answers an ApiVersions request (or wants TLS: then it is reached)."""
    head = _first_bytes(
        host, port, struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS, timeout_s
    )
    return len(head) == 10 and struct.unpack(">iih", head)[1:] == (1, 0)


def port_open(host: str, port: int, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """True when something accepts a TCP connection."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError:
        return False
    return True


def postgres_answers(host: str, port: int, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """True when a Postgres server answers an SSLRequest, whatever it answers."""
    return _first_bytes(host, port, _SSL_REQUEST, timeout_s, count=1) in (b"S", b"N")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now; another process may still take one."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((_LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def all_free(*ports: int) -> bool:
    """True when the loopback ports can be bound now (a connection in TIME_WAIT does not count)."""
    return all(_is_free(port) for port in ports)


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True


def _first_bytes(host: str, port: int, request: bytes, timeout_s: float, count: int = 10) -> bytes:
    """Send `request`, read up to `count` bytes; empty on any network error."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(request)
            answer = b""
            while len(answer) < count:
                piece = connection.recv(count - len(answer))
                if not piece:
                    break
                answer += piece
            return answer
    except OSError:
        return b""
