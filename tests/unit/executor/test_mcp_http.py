"""MCP over HTTP when the server's answers are hostile: statuses, cut and endless bodies, redirects."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import pytest

from processor.executor.remote import RemoteTools
from processor.executor.runner import Ran
from processor.executor.tools import ToolSet
from processor.policy.catalogue import parse_catalogue
from tests.unit.executor.runner_rig import Rig, call_of

PAID = {"content": [{"type": "text", "text": "paid"}]}
RESULTS: dict[str, object] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "plain", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "refund", "inputSchema": {"type": "object"}}]},
    "tools/call": PAID,
}


class Server(ThreadingHTTPServer):
    """Speaks MCP until `tools/call`, and then answers as `mode` says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.mode = "ok"
        self.calls: list[dict[str, object]] = []
        self.sessions = 0


class Handler(BaseHTTPRequestHandler):
    """One request."""

    @property
    def bank(self) -> Server:
        """The server of this request."""
        return cast("Server", self.server)

    def do_POST(self) -> None:
        """Answer a message."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = cast("dict[str, object]", json.loads(body))
        method = str(message["method"])
        if method == "tools/call":
            self.bank.calls.append(message)
            if self.bank.mode != "ok":
                self._misbehave(self.bank.mode)
                return
        if method == "initialize":
            self.bank.sessions += 1
        if "id" not in message:
            self._send(202, b"")
            return
        answer: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
        if method in RESULTS:
            answer["result"] = RESULTS[method]
        else:
            answer["error"] = {"code": -32601, "message": "no such method"}
        self._send(200, json.dumps(answer).encode())

    def do_GET(self) -> None:
        """No stream of the server's own."""
        self._send(405, b"")

    def do_DELETE(self) -> None:
        """The end of a session."""
        self._send(200, b"")

    def _misbehave(self, mode: str) -> None:
        if mode.isdigit():
            self._send(int(mode), b"CANARY")
        elif mode == "moved":
            self._send(307, b"", Location="http://127.0.0.2:1/mcp")
        elif mode == "cut":
            self._send(200, b'{"jsonrpc"', length=900)
        elif mode == "huge":
            self._send(200, b" " * 3_000_000)
        elif mode == "stream_cut":
            self._send(200, b": CANARY\n\n", kind="text/event-stream")
        elif mode == "text":
            self._send(200, b"CANARY", kind="text/html")
        self.close_connection = True

    def _send(
        self,
        status: int,
        body: bytes,
        *,
        length: int | None = None,
        kind: str = "application/json",
        **headers: str,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Mcp-Session-Id", "s1")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """Listening."""
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join(10)


@pytest.fixture
def rig(server: Server) -> Iterator[Rig]:
    """A runner with one tool on it."""
    catalogue = parse_catalogue(
        "version: 1\n"
        f'mcp_servers: {{bank: {{url: "http://127.0.0.1:{server.server_port}/mcp"}}}}\n'
        "tools: {refund: {effect_class: at_most_once, timeout_s: 20, mcp: {server: bank}}}\n"
    )
    remote = RemoteTools(catalogue, {})
    yield Rig(ToolSet(remote.declarations), catalogue=catalogue)
    remote.close()


@pytest.mark.parametrize(
    ("mode", "ran", "why"),
    [
        ("401", Ran("settled", "failed"), "mcp_http_401"),
        ("403", Ran("settled", "failed"), "mcp_http_403"),
        ("404", Ran("parked", "ready"), "mcp_session_ended"),
        ("429", Ran("parked", "in_doubt"), "mcp_http_429"),
        ("500", Ran("parked", "in_doubt"), "mcp_http_500"),
        ("202", Ran("parked", "in_doubt"), "mcp_error"),
        ("moved", Ran("parked", "in_doubt"), "mcp_http_307"),
        ("text", Ran("parked", "in_doubt"), "mcp_error"),
        ("reset", Ran("parked", "in_doubt"), "mcp_cut"),
        ("cut", Ran("parked", "in_doubt"), "mcp_cut"),
        ("huge", Ran("parked", "in_doubt"), "mcp_cut"),
        ("stream_cut", Ran("parked", "in_doubt"), "mcp_cut"),
    ],
)
def test_one_post_and_an_honest_word_for_its_answer(
    server: Server,
    rig: Rig,
    capfd: pytest.CaptureFixture[str],
    mode: str,
    ran: Ran,
    why: str | None,
) -> None:
    """Nothing is sent again below us; after it the server is used as before."""
    server.mode = mode
    assert rig.run(call_of()) == ran
    assert rig.ledger.history("acme", "req_1001:call_1")[-1].why == why
    assert len(server.calls) == 1
    server.mode = "ok"
    assert rig.run(call_of(number=2)) == Ran("settled", "succeeded")
    assert server.sessions == (2 if mode == "404" else 1)
    assert "CANARY" not in "".join(capfd.readouterr())
