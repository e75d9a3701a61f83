"""Parts that somebody else runs: their addresses are read, they are reached, never started."""

from processor.core.errors import Misuse
from processor.devstack.errors import DevStackFailed
from processor.devstack.reach import port_open

KAFKA_PORT = 9092
POSTGRES_PORT = 5432


def addresses(text: str, default_port: int, what: str) -> list[tuple[str, int]]:
    """The hosts and ports of `host[:port][,host[:port]]`.

    Raises: `Misuse` for a port that is none; the text is not quoted, it may hold a secret.
    """
    found: list[tuple[str, int]] = []
    for item in text.split(","):
        bare = item.strip()
        if bare.startswith("["):
            host, _, port = bare[1:].partition("]")
            port = port.removeprefix(":")
        else:
            host, _, port = bare.partition(":")
        if port and not (port.isascii() and port.isdigit()):
            raise Misuse(f"{what}: a port is not a number; write HOST:PORT[,HOST:PORT]")
        if host:
            found.append((host, int(port) if port else default_port))
    return found


def kafka_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """The addresses of a bootstrap list. Raises: `Misuse`."""
    found = addresses(bootstrap, KAFKA_PORT, "TOOLCALLS_KAFKA_BOOTSTRAP")
    if not found:
        raise Misuse("TOOLCALLS_KAFKA_BOOTSTRAP names no host; write HOST:PORT[,HOST:PORT]")
    return found


def postgres_addresses(url: str) -> list[tuple[str, int]]:
    """The addresses of a database URL; empty for a Unix socket or a `key=value` string."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("postgres", "postgresql"):
        return []
    authority = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return addresses(authority, POSTGRES_PORT, "TOOLCALLS_DATABASE_URL")


def require_reached(what: str, variable: str, found: list[tuple[str, int]]) -> None:
    """Raises: `DevStackFailed` when none of the addresses accepts a connection."""
    if found and not any(port_open(host, port) for host, port in found):
        named = ", ".join(f"{host}:{port}" for host, port in found)
        raise DevStackFailed(f"{what} cannot be reached at {named}: start it or unset {variable}")
