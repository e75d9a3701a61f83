"""A TCP proxy between the processes under test and one broker: cut, refuse, delay, swallow.

Rules:
    Bytes pass unchanged; a cut aborts both sides at once, as a lost host or a firewall does.
    Swallowing keeps the connection open while nothing arrives: the worst case for a client.
"""

import socket
import threading
from contextlib import suppress
from typing import Final

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 65_536


class Proxy:
    """Listens on `port`, passes on to `upstream_port`. All methods may be called from any thread."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._listener = socket.create_server((_HOST, 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        #: Seconds by which every chunk is late, in both directions.
        self.delay_s = 0.0
        #: New connections are aborted while this is set.
        self.refusing = False
        self._open = threading.Event()
        self._open.set()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def cut(self) -> int:
        """Abort every connection; how many there were."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._abort(pair)
        return len(pairs)

    def swallow(self) -> None:
        """From now on nothing arrives, and nobody is told."""
        self._open.clear()

    def release(self) -> None:
        """What was held back goes on."""
        self._open.set()

    def heal(self) -> None:
        """No fault any more."""
        self.delay_s, self.refusing = 0.0, False
        self.release()

    def close(self) -> None:
        """Abort everything and stop listening."""
        self._closing.set()
        self._open.set()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                _reset(client)
                continue
            try:
                broker = socket.create_connection((_HOST, self._upstream_port), 5)
            except OSError:
                _reset(client)
                continue
            pair = (client, broker)
            for end in pair:
                end.settimeout(None)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add(pair)
            for source, target in (pair, pair[::-1]):
                threading.Thread(
                    target=self._pump, args=(pair, source, target), daemon=True
                ).start()

    def _pump(
        self,
        pair: tuple[socket.socket, socket.socket],
        source: socket.socket,
        target: socket.socket,
    ) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if self.delay_s:
                    self._closing.wait(self.delay_s)
                self._open.wait()
                target.sendall(data)
        self._abort(pair)

    def _abort(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            if pair not in self._pairs:
                return
            self._pairs.discard(pair)
        for end in pair:
            _reset(end)


def _reset(end: socket.socket) -> None:
    """End both directions now, so that whoever waits on either side fails instead."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        end.close()
