"""One local model server for all SDKs: what it answers is named by the model of the request.

Rules:
    The model `FOLDER--NAME` is the captured stream `FOLDER/NAME`; any other is a wire that a test
    has given to `put`. The bytes are sent as they are; only Bedrock's lines become binary frames.
    A gated wire stops in the midst until its reader has shown that it has what was sent before.
"""

import json
import re
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.golden.test_streams import data_of
from tests.sdk.eventstream import frames_of

_IN_PATH = re.compile(r"/models?/([^:/]+)")
_EVENT_END = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)")
_GATE_TIMEOUT_S = 20.0
#: Pieces of a gated wire that are sent before it stops.
BEFORE_GATE = 3


class Wire:
    """What one model is answered with; `gate` is None for a wire that does not stop."""

    def __init__(self, folder: str, data: bytes, *, is_gated: bool = False) -> None:
        self.content_type = _content_type(folder)
        self.pieces: Sequence[bytes] = _pieces(folder, data)
        self.gate = threading.Event() if is_gated else None

    def send(self) -> Iterator[bytes]:
        """The pieces; a gate that nobody opens in time ends them early."""
        for count, piece in enumerate(self.pieces):
            if self.gate is not None and count == BEFORE_GATE and not self._is_opened():
                return
            yield piece

    def _is_opened(self) -> bool:
        return self.gate is None or self.gate.wait(_GATE_TIMEOUT_S)


def _content_type(folder: str) -> str:
    if folder == "bedrock-converse":
        return "application/vnd.amazon.eventstream"
    return "application/x-ndjson" if folder == "ollama" else "text/event-stream"


def _pieces(folder: str, data: bytes) -> list[bytes]:
    """The events of a wire, each as the piece that a server would flush."""
    if folder == "bedrock-converse":
        return frames_of(data)
    if folder == "ollama":
        return data.splitlines(keepends=True)
    return [piece for piece in _EVENT_END.split(data) if piece]


class ModelServer:
    """The server; `url` is its address without a path."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._given: dict[str, Wire] = {}

    def put(self, folder: str, data: bytes, *, is_gated: bool = False) -> tuple[str, Wire]:
        """Serve `data` as a stream of `folder`; returns the model that asks for it, and the wire."""
        model = f"given--{len(self._given)}"
        self._given[model] = Wire(folder, data, is_gated=is_gated)
        return model, self._given[model]

    def wire(self, model: str) -> Wire:
        """What `model` is answered with."""
        given = self._given.get(model)
        folder, _, name = model.partition("--")
        return given or Wire(folder, data_of(f"{folder}/{name}"))


@contextmanager
def serving() -> Generator[ModelServer, None, None]:
    """A server on a free port of this machine, until the block is left."""

    class Handler(BaseHTTPRequestHandler):
        """Answers every POST with the wire of its model."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Read the request, find its model, send the wire in chunks."""
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            named = _IN_PATH.search(self.path)
            wire = served.wire(unquote(named[1]) if named else json.loads(body)["model"])
            self.send_response(200)
            self.send_header("Content-Type", wire.content_type)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for piece in wire.send():
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True  # the reader has left early, as some tests do

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        """One thread a connection; the block does not wait for readers that keep theirs open."""

        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing of readers that have left."""

    server = Server(("127.0.0.1", 0), Handler)
    served = ModelServer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
