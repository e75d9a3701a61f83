"""A real HTTP server on this machine that misbehaves as its path says, and counts what it did."""

import gzip
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from processor.core._record import record

OK = b'{"paid":true}'
HUGE = 3_000_000


@record
class Request:
    """What came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """What goes out; `hold` keeps the connection open without another byte."""

    data: bytes
    reset: bool = False
    hold: bool = False


def answer(status: str, body: bytes = b"", *headers: str, kind: str = "application/json") -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
    return "\r\n".join([*lines, "Connection: close", *headers, "", ""]).encode() + body


class HostileServer:
    """Listens while it is entered. An effect counts once per `Idempotency-Key` when `dedupes`."""

    def __init__(self, *, dedupes: bool = False) -> None:
        self.dedupes = dedupes
        self.lookup_body = OK
        self.requests: list[Request] = []
        self.effects: Counter[str] = Counter()
        self.seen = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def url(self, path: str) -> str:
        """An address of it."""
        return f"http://127.0.0.1:{self.port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            request = _read(connection)
            if request is None:
                return
            with self.seen:
                self.requests.append(request)
                reply = self._reply(request)
                self.seen.notify_all()
            connection.sendall(reply.data)
            if reply.hold:
                return
            if reply.reset:
                # With nothing to linger for, closing sends a reset.
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()
        except OSError:
            connection.close()

    def _reply(self, request: Request) -> Reply:
        path = request.path.partition("?")[0]
        if path not in _WITHOUT_EFFECT and not path.startswith(_LOOKUPS):
            key = request.headers.get("idempotency-key", "")
            if path == "/lost_then_401":
                path = "/401" if self.effects[key] else "/reset"
            if path == "/flaky":
                # Only the first answer is lost.
                path = "/ok" if self.effects[key] else "/reset"
            if not (self.dedupes and self.effects[key]):
                self.effects[key] += 1
        if path.startswith(_LOOKUPS):
            return Reply(
                answer("200 OK", self.lookup_body) if self.effects else answer("404 Not Found")
            )
        return _MODES[path]()

    def wait_for_requests(self, count: int) -> None:
        """Until so many have come."""
        with self.seen:
            assert self.seen.wait_for(lambda: len(self.requests) >= count, 30)


def _read(connection: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65_536)
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65_536)
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body)


_CUT = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
_CHUNK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
_OLD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
_GZIPPED = gzip.compress(b"x" * 1_000_000)

_LOOKUPS = ("/asked/", "/refunds/by-key/")
_WITHOUT_EFFECT = frozenset(
    {"/400", "/401", "/402", "/403", "/404", "/405", "/410", "/413", "/415", "/422", "/moved"}
)
_MODES: dict[str, Callable[[], Reply]] = {
    "/ok": lambda: Reply(answer("200 OK", OK)),
    "/refunds": lambda: Reply(answer("200 OK", OK)),
    "/created": lambda: Reply(answer("201 Created", OK)),
    "/empty": lambda: Reply(answer("204 No Content")),
    "/text": lambda: Reply(answer("200 OK", b"paid", kind="text/plain")),
    "/binary": lambda: Reply(answer("200 OK", b"\x00\x01", kind="application/octet-stream")),
    "/broken_json": lambda: Reply(answer("200 OK", b"{paid")),
    "/huge": lambda: Reply(answer("200 OK", b" " * HUGE)),
    "/gzip": lambda: Reply(answer("200 OK", _GZIPPED, "Content-Encoding: gzip")),
    "/reset": lambda: Reply(b"", reset=True),
    "/closed": lambda: Reply(b""),
    "/half_head": lambda: Reply(b"HTTP/1.1 200 O"),
    "/no_http": lambda: Reply(b"220 mail ready\r\n\r\n"),
    "/reset_after_head": lambda: Reply(_CUT, reset=True),
    "/cut": lambda: Reply(_CUT),
    "/cut_chunks": lambda: Reply(_CHUNK),
    "/cut_old": lambda: Reply(_OLD + b'{"paid":'),
    "/old": lambda: Reply(_OLD + OK),
    "/never": lambda: Reply(b"", hold=True),
    "/stuck": lambda: Reply(_CUT, hold=True),
    "/redirect_303": lambda: Reply(answer("303 See Other", b"", "Location: /ok")),
    "/redirect_307": lambda: Reply(answer("307 Temporary Redirect", b"", "Location: /ok")),
    "/moved": lambda: Reply(answer("302 Found", b"", "Location: /ok")),
    "/away": lambda: Reply(answer("302 Found", b"", "Location: http://127.0.0.2:1/ok")),
    "/429": lambda: Reply(answer("429 Too Many Requests", b"", "Retry-After: 7")),
    "/503_far": lambda: Reply(answer("503 Busy", b"", "Retry-After: 99999999999999")),
    "/503_date": lambda: Reply(
        answer(
            "503 Busy",
            b"",
            "Date: Tue, 01 Dec 2026 10:00:00 GMT",
            "Retry-After: Tue, 01 Dec 2026 10:00:30 GMT",
        )
    ),
}


def _status(status: int) -> Callable[[], Reply]:
    return lambda: Reply(answer(f"{status} No", b'{"why":"no"}'))


_CLIENT = (400, 401, 402, 403, 404, 405, 408, 409, 410, 413, 415, 418, 422, 425)
_MODES.update({f"/{status}": _status(status) for status in (*_CLIENT, 500, 502, 503, 504)})
