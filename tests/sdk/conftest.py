"""One server, one client of every SDK, and no way out of this machine."""

import asyncio
import gc
import socket
import warnings
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.sdk.clients import SDKS, Sdk
from tests.sdk.server import ModelServer, serving

Opened = Callable[[str], Sdk]


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """The server of all wires."""
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.Runner]:
    """The event loop of all async clients: their connections belong to one."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def sdk(model_server: ModelServer, loop: asyncio.Runner) -> Iterator[Opened]:
    """An SDK by its name, imported and opened when first asked for."""
    opened: dict[str, Sdk] = {}

    def open_sdk(name: str) -> Sdk:
        if name not in opened:
            (kind,) = [kind for kind in SDKS if kind.name == name]
            with warnings.catch_warnings():
                # What a module warns of while it is imported is not about any test.
                warnings.simplefilter("ignore")
                opened[name] = kind(model_server.url)
        return opened[name]

    yield open_sdk
    for one in opened.values():
        one.close()
        loop.run(one.aclose())


@pytest.fixture(autouse=True)
def _no_garbage_of_an_sdk() -> Iterator[None]:
    """Sockets that a vendor's SDK left unclosed are its own, and no later test's business."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The collector may find such a socket within a test, too."""
    ignored = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(ignored)


@pytest.fixture(autouse=True)
def _this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SDK that tries to reach anything else fails its test."""
    connect = socket.socket.connect

    def local(self: socket.socket, address: tuple[str, int]) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            assert ip_address(address[0]).is_loopback, "an SDK calls a server that is not ours"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local)
