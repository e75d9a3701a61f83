"""Start, find and end the two parts of one directory.

Rules:
    Every process is on record before the next step, and is also found by its command line; so
    a command killed at any moment leaves nothing that the next one does not find.
    A running part is left alone; a dead one is started again with its data, on its old port when
    that is free.
"""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from processor.core.errors import Misuse
from processor.devstack import kafka, postgres
from processor.devstack.endpoints import Endpoints, PartStatus, Progress, StackStatus
from processor.devstack.errors import AddressTaken, DevStackFailed
from processor.devstack.external import kafka_addresses, postgres_addresses, require_reached
from processor.devstack.jars import broker_classpath
from processor.devstack.part import await_ready, log_size
from processor.devstack.places import default_directory, postgres_home, service_user
from processor.devstack.processes import Process, end, find
from processor.devstack.reach import all_free, free_ports
from processor.devstack.state import (
    LOCK_FILE,
    STATE_FILE,
    State,
    fresh_state,
    is_ours,
    locked,
    read_state,
    write_state,
)
from processor.devstack.waiting import wait_until

PORT_ATTEMPTS = 4
STOP_TIMEOUT_S = 15.0
PORT_WAIT_S = 1.0  # connections of a killed part close within milliseconds
Name = Literal["postgres", "kafka"]
# Postgres first: its data is made while Kafka's folder is formatted in the background.
NAMES: tuple[Name, ...] = ("postgres", "kafka")
OnProgress = Callable[[Progress], None]


def up(
    directory: Path | None = None,
    *,
    on_progress: OnProgress = lambda _: None,
    kafka_properties: Mapping[str, str] | None = None,
    kafka_bootstrap: str | None = None,
    database_url: str | None = None,
    only: Name | None = None,
) -> Endpoints:
    """Start what does not run yet and wait until both parts answer.

    Args:
        directory: Where data, logs and state lie; None is `default_directory()`. Must be absent,
            empty, or a stack's.
        on_progress: Called with each step, and several times a second during the first download.
        kafka_properties: Broker settings over ours; None keeps those of the last start.
        kafka_bootstrap: Address of a broker somebody else runs; then none is started here. The
            address of this stack's own broker counts as not given.
        database_url: The same for Postgres.
        only: Leave the other part as it is; its address in the answer may not be served.
    Cost: about 4 s for a new stack, 0.1 s when it runs; the first time downloads 45 MB.

    Raises: `DevStackFailed`, `JarRefused`, `PackageMissing`; `Misuse` for a directory of something
        else, a setting that is none, or settings that differ from the running broker's.
    """
    place = _place(directory)
    kafka_bootstrap, database_url = _foreign(place, kafka_bootstrap, database_url)
    if kafka_bootstrap:
        require_reached("Kafka", "TOOLCALLS_KAFKA_BOOTSTRAP", kafka_addresses(kafka_bootstrap))
    if database_url:
        require_reached("Postgres", "TOOLCALLS_DATABASE_URL", postgres_addresses(database_url))
    external = {"kafka": kafka_bootstrap, "postgres": database_url}
    wanted: list[Name] = [n for n in NAMES if not external[n] and only in (None, n)]
    if wanted:
        with locked(place):
            state = _bring_up(place, wanted, kafka_properties, on_progress)
        kafka_bootstrap = kafka_bootstrap or _bootstrap(state)
        database_url = database_url or postgres.database_url(state)
    on_progress(Progress("ready", "Kafka and Postgres are ready"))
    return Endpoints(kafka_bootstrap or "", database_url or "")


def down(directory: Path | None = None, *, keep_data: bool = False) -> bool:
    """End both parts and everything they started; remove their data unless `keep_data`.

    Returns: False when there is no stack in the directory.
    Raises: `DevStackFailed` when a process does not end.
    """
    place = _place(directory)
    if not is_ours(place):
        return False
    with locked(place):
        state = None
        with contextlib.suppress(DevStackFailed):  # an unreadable file must not keep it running
            state = read_state(place)
        _end_all(place, state)
        if not keep_data:
            _remove(place)
        elif state:
            write_state(place, replace(state, kafka=None, postgres=None))
    if not keep_data:
        with contextlib.suppress(OSError):  # a file that is not ours keeps the folder
            place.rmdir()
    return True


def status(
    directory: Path | None = None,
    *,
    kafka_bootstrap: str | None = None,
    database_url: str | None = None,
) -> StackStatus:
    """What runs now; changes nothing. Raises: `DevStackFailed` for an unreadable state file."""
    place = _place(directory)
    state = read_state(place)
    kafka_bootstrap, database_url = _foreign(place, kafka_bootstrap, database_url)
    broker = (
        PartStatus("kafka", "external", None, _port(kafka_addresses(kafka_bootstrap)), None, "")
        if kafka_bootstrap
        else _own("kafka", state.kafka if state else None, state, place / "kafka.log")
    )
    database = (
        PartStatus("postgres", "external", None, _port(postgres_addresses(database_url)), None, "")
        if database_url
        else _own("postgres", state.postgres if state else None, state, place / "postgres.log")
    )
    endpoints = None
    if "stopped" not in (broker.state, database.state):
        endpoints = Endpoints(
            kafka_bootstrap or (_bootstrap(state) if state else ""),
            database_url or (postgres.database_url(state) if state else ""),
        )
    return StackStatus(str(place), broker, database, endpoints)


def _foreign(
    directory: Path, kafka_bootstrap: str | None, database_url: str | None
) -> tuple[str | None, str | None]:
    """The addresses that are not this stack's own, which a shell may have exported from `up`."""
    state = read_state(directory)
    if state is None:
        return kafka_bootstrap, database_url
    return (
        None if kafka_bootstrap == _bootstrap(state) else kafka_bootstrap,
        None if database_url == postgres.database_url(state) else database_url,
    )


def _bring_up(
    directory: Path,
    wanted: list[Name],
    kafka_properties: Mapping[str, str] | None,
    on_progress: OnProgress,
) -> State:
    """Start the wanted parts that do not run; new ports when one was taken meanwhile."""
    state = read_state(directory) or fresh_state()
    if kafka_properties is not None:
        checked = kafka.checked_properties(kafka_properties)
        if "kafka" in wanted and _runs(state.kafka) and checked != state.kafka_properties:
            raise Misuse(
                f"the broker of {directory} runs with other settings: `toolcalls dev down` it first"
            )
        state = replace(state, kafka_properties=checked)
    _end_strays(directory, state)
    for _ in range(PORT_ATTEMPTS - 1):
        state = _with_free_ports(state)
        with contextlib.suppress(AddressTaken):
            return _start(directory, wanted, state, on_progress)
        state = _with_other_ports(read_state(directory) or state)
    return _start(directory, wanted, state, on_progress)


def _start(directory: Path, wanted: list[Name], state: State, on_progress: OnProgress) -> State:
    """Format in the background while Postgres makes its data; start both; wait for both."""
    write_state(directory, state)
    user = service_user()
    missing: list[Name] = [name for name in wanted if not _runs(_process(state, name))]
    classpath = broker_classpath(on_progress) if "kafka" in missing else ""
    parts: dict[Name, kafka.Kafka | postgres.Postgres] = {}
    if "kafka" in wanted:
        parts["kafka"] = kafka.Kafka(directory, state, classpath)
    if "postgres" in wanted:
        parts["postgres"] = postgres.Postgres(directory, state, user)
    offsets = {name: log_size(part.log) for name, part in parts.items()}
    for name in missing:
        progress = parts[name].prepare()
        if progress:
            on_progress(progress)
    for name in missing:
        process = parts[name].launch()
        state = (
            replace(state, kafka=process) if name == "kafka" else replace(state, postgres=process)
        )
        write_state(directory, state)
        on_progress(Progress("start", f"starting {parts[name].title}"))
    for name, part in parts.items():
        running = _process(state, name)
        if running is not None:
            await_ready(part, running, offsets[name])
    return state


def _end_strays(directory: Path, state: State) -> None:
    """End what a killed command started and could not put on record."""
    known = {p.pid for p in (state.kafka, state.postgres) if p and p.is_alive()}
    strays = [(p, sign) for p, sign in _found(directory) if p.pid not in known]
    if strays:
        end(strays, STOP_TIMEOUT_S)


def _end_all(directory: Path, state: State | None) -> None:
    family = {p.pid: (p, sign) for p, sign in _found(directory)}
    if state and state.kafka:
        family[state.kafka.pid] = (state.kafka, kafka.POLITE)
    if state and state.postgres:
        family[state.postgres.pid] = (state.postgres, postgres.POLITE)
    end(list(family.values()), STOP_TIMEOUT_S)
    left = [str(process.pid) for process, _ in family.values() if process.is_alive()]
    if left:
        raise DevStackFailed(f"these processes of {directory} do not end: pid {', '.join(left)}")


def _found(directory: Path) -> Iterable[tuple[Process, signal.Signals]]:
    user = service_user()
    owners = [os.geteuid(), *([user.uid] if user else [])]
    for process in find(directory / "kafka", owners):
        yield process, kafka.POLITE
    for process in find(postgres_home(directory, user), owners):
        yield process, postgres.POLITE


def _remove(directory: Path) -> None:
    """Remove what a stack makes, and nothing else that may lie there."""
    for folder in (directory / "kafka", postgres_home(directory, service_user())):
        shutil.rmtree(folder, ignore_errors=True)
    for name in ("kafka.log", "postgres.log", f"{STATE_FILE}.part", STATE_FILE, LOCK_FILE):
        (directory / name).unlink(missing_ok=True)


def _with_free_ports(state: State) -> State:
    """New ports for stopped parts whose old ones are taken, and stay so for a moment."""
    broker = (state.kafka_port, state.controller_port)
    if not _runs(state.kafka) and not wait_until(lambda: all_free(*broker), PORT_WAIT_S):
        state = _with_other_kafka_ports(state)
    database = state.postgres_port
    if not _runs(state.postgres) and not wait_until(lambda: all_free(database), PORT_WAIT_S):
        state = replace(state, postgres_port=free_ports(1)[0])
    return state


def _with_other_ports(state: State) -> State:
    """New ports for every part that does not run."""
    if not _runs(state.kafka):
        state = _with_other_kafka_ports(state)
    return state if _runs(state.postgres) else replace(state, postgres_port=free_ports(1)[0])


def _with_other_kafka_ports(state: State) -> State:
    kafka_port, controller_port = free_ports(2)
    return replace(state, kafka_port=kafka_port, controller_port=controller_port)


def _place(directory: Path | None) -> Path:
    return Path(os.path.abspath((directory or default_directory()).expanduser()))


def _runs(process: Process | None) -> bool:
    return process is not None and process.is_alive()


def _process(state: State, name: Name) -> Process | None:
    return state.kafka if name == "kafka" else state.postgres


def _bootstrap(state: State) -> str:
    return f"127.0.0.1:{state.kafka_port}"


def _port(addresses: list[tuple[str, int]]) -> int:
    return addresses[0][1] if addresses else 0


def _own(name: Name, process: Process | None, state: State | None, log: Path) -> PartStatus:
    since_ms = process.since_ms() if process else None
    port = 0
    if state:
        port = state.kafka_port if name == "kafka" else state.postgres_port
    if process is None or since_ms is None:
        return PartStatus(name, "stopped", None, port, None, str(log))
    return PartStatus(name, "running", process.pid, port, since_ms, str(log))
