"""The state file of one stack, and the lock that keeps two commands apart.

Rules:
    Mode 0600, because the file holds the generated password; replaced by rename, never in place.
    The stack owns a folder that was absent or empty; it never touches another one.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import cast

from processor.core._record import field, record
from processor.core.errors import Misuse
from processor.devstack.errors import DevStackFailed
from processor.devstack.locks import hold
from processor.devstack.processes import Process
from processor.devstack.reach import free_ports

STATE_FILE = "toolcalls-dev.json"
LOCK_FILE = ".toolcalls-dev.lock"
_VERSION = 1


@record
class State:
    """Everything a later command must know; ports and password are kept over restarts."""

    kafka_port: int
    controller_port: int
    postgres_port: int
    password: str
    kafka_properties: dict[str, str] = field(default_factory=dict[str, str])
    kafka: Process | None = None
    postgres: Process | None = None


def fresh_state() -> State:
    """Ports that are free now and a password of 192 random bits."""
    kafka_port, controller_port, postgres_port = free_ports(3)
    return State(kafka_port, controller_port, postgres_port, secrets.token_urlsafe(24))


def read_state(directory: Path) -> State | None:
    """The state of a stack, None when there is none.

    Raises: `DevStackFailed` naming the file when it cannot be understood.
    """
    path = directory / STATE_FILE
    try:
        loaded = json.loads(path.read_text())
        if loaded["version"] != _VERSION:
            raise ValueError("version")
        return State(
            kafka_port=int(loaded["kafka_port"]),
            controller_port=int(loaded["controller_port"]),
            postgres_port=int(loaded["postgres_port"]),
            password=str(loaded["password"]),
            kafka_properties={str(k): str(v) for k, v in loaded["kafka_properties"].items()},
            kafka=_process(loaded["kafka"]),
            postgres=_process(loaded["postgres"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DevStackFailed(
            f"{path} is not a state file of this version: run `toolcalls dev down` for this"
            " directory, then `toolcalls dev up`"
        ) from None


def write_state(directory: Path, state: State) -> None:
    """Replace the state file in one step."""
    content = {
        "version": _VERSION,
        "kafka_port": state.kafka_port,
        "controller_port": state.controller_port,
        "postgres_port": state.postgres_port,
        "password": state.password,
        "kafka_properties": state.kafka_properties,
        "kafka": _document(state.kafka),
        "postgres": _document(state.postgres),
    }
    part = directory / f"{STATE_FILE}.part"
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=1)
    part.replace(directory / STATE_FILE)


def is_ours(directory: Path) -> bool:
    """True when a stack was made in this directory."""
    return (directory / LOCK_FILE).exists()


@contextlib.contextmanager
def locked(directory: Path) -> Generator[None]:
    """Make the directory if need be and hold its lock; one command at a time.

    Raises: `Misuse` when the directory belongs to something else or cannot be written;
        `DevStackFailed` when another command holds the lock for too long.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = not is_ours(directory) and any(directory.iterdir())
    except OSError as e:
        raise _unusable(directory, e) from e
    if taken:
        raise Misuse(
            f"{directory} is not empty and holds no dev stack: name an empty or a new directory"
        )
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold(directory / LOCK_FILE))
        except OSError as e:
            raise _unusable(directory, e) from e
        yield


def _unusable(directory: Path, error: OSError) -> Misuse:
    return Misuse(f"{directory} cannot be used as a dev stack's directory: {error.strerror}")


def _document(process: Process | None) -> dict[str, object] | None:
    return {"pid": process.pid, "born": process.born} if process else None


def _process(loaded: object) -> Process | None:
    if loaded is None:
        return None
    fields = cast(dict[str, object], loaded)
    return Process(int(str(fields["pid"])), str(fields["born"]))
