"""`toolcalls execute`: run completed calls with your tools."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from processor.executor.host import HostSettings
    from processor.executor.remote import RemoteTools
    from processor.executor.served import ServedTool
    from processor.policy.catalogue import Catalogue


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("execute", help=_HELP)(execute)


_HELP = """Run completed calls with your tools, each at most once.

Example: toolcalls execute --tools my_tools.py --start earliest
Example: toolcalls execute --catalogue catalogue.yaml --start earliest

The tools are functions decorated with @tool of processor.executor, and the
tools of the catalogue that are HTTP endpoints (http:) or MCP servers (mcp:).
Calls of tools that are not among them are left to other groups, unless
--unknown-tools fail says that there are none.

The lease of a running call is its tool's time limit plus --lease-margin-s. A
longer margin rides out a slower ledger or a paused host; a shorter one lets
another process take over sooner what a crash has left.

After SIGTERM or SIGINT nothing new starts. What runs may end within --drain-s
seconds; what does not is left to its lease.

Exit codes: 0 stopped on request or idle, 2 a setting is wrong, 4 Kafka or
Postgres not reached, 5 another process uses the slot, 6 fatal client error, 8
there is no position, or the committed one is gone. All but 2 and 8 are meant
to be restarted by a supervisor.
"""


_Tools = Annotated[str | None, typer.Option(help="A module or a path.py with decorated functions.")]
_Group = Annotated[str, typer.Option(envvar="TOOLCALLS_EXECUTOR_GROUP", help="Consumer group.")]
_Slot = Annotated[
    str | None,
    typer.Option(envvar="TOOLCALLS_SLOT", help="Stable name of this process in the group."),
]
_CataloguePath = Annotated[
    str | None, typer.Option(envvar="TOOLCALLS_CATALOGUE", help="Path of catalogue.yaml.")
]
_Bootstrap = Annotated[
    str | None,
    typer.Option(envvar="TOOLCALLS_KAFKA_BOOTSTRAP", help="Broker address, HOST:PORT[,...]."),
]
_Database = Annotated[
    str | None, typer.Option(envvar="TOOLCALLS_DATABASE_URL", help="The ledger's database.")
]
_Topic = Annotated[
    str | None, typer.Option(envvar="TOOLCALLS_COMPLETED_TOPIC", help="Topic to read.")
]
_Prefix = Annotated[
    str, typer.Option(envvar="TOOLCALLS_TOPIC_PREFIX", help="Prefix of all topic names.")
]
_Start = Annotated[
    str | None,
    typer.Option(
        envvar="TOOLCALLS_START", help="Where a group without offsets begins: earliest or latest."
    ),
]
_Threads = Annotated[int, typer.Option(min=1, max=1000, help="Calls that run at once.")]
_PerTenant = Annotated[
    int | None,
    typer.Option(
        envvar="TOOLCALLS_PER_TENANT",
        min=1,
        max=1000,
        help="Calls of one tenant that run at once; by default as many as --threads.",
    ),
]
_LeaseMargin = Annotated[
    float,
    typer.Option(
        envvar="TOOLCALLS_LEASE_MARGIN_S",
        min=0.5,
        max=86_400,
        help="Seconds that a call's lease outlives its tool's time limit.",
    ),
]
_Drain = Annotated[
    float,
    typer.Option(
        envvar="TOOLCALLS_DRAIN_S",
        min=0,
        max=3600,
        help="Seconds that running calls get to end after a stop request.",
    ),
]
_UntilIdle = Annotated[
    float | None, typer.Option(min=0.1, help="End after so many seconds without work.")
]


def execute(
    tools: _Tools = None,
    group: _Group = "toolcalls-executor",
    slot: _Slot = None,
    catalogue: _CataloguePath = None,
    kafka_bootstrap: _Bootstrap = None,
    database_url: _Database = None,
    completed_topic: _Topic = None,
    prefix: _Prefix = "",
    start: _Start = None,
    unknown_tools: Annotated[str, typer.Option(help="skip or fail.")] = "skip",
    threads: _Threads = 16,
    per_tenant: _PerTenant = None,
    lease_margin_s: _LeaseMargin = 10.0,
    drain_s: _Drain = 30.0,
    until_idle_s: _UntilIdle = None,
) -> None:
    """Run until SIGTERM or SIGINT; what runs then may end, and the rest is left to its lease."""
    from processor.config import read_catalogue
    from processor.runtime.topics import TopicNames

    settings = _settings(
        kafka_bootstrap=kafka_bootstrap,
        database_url=database_url,
        topic=completed_topic or TopicNames.prefixed(prefix).completed,
        group=group,
        slot=slot,
        start=start,
        unknown_tools=unknown_tools,
        threads=threads,
        per_tenant=per_tenant,
        lease_margin_s=lease_margin_s,
        drain_s=drain_s,
        until_idle_s=until_idle_s,
    )
    rules = read_catalogue(catalogue) if catalogue else None
    remote = _remote(rules)
    try:
        served = _served(tools, rules, remote)
        _run(settings, served, rules.names() if rules else frozenset(), remote)
    finally:
        if remote is not None:
            remote.close()


def _remote(rules: "Catalogue | None") -> "RemoteTools | None":
    from processor.executor.remote import RemoteTools

    return None if rules is None else RemoteTools(rules, os.environ)


def _served(
    tools: str | None, rules: "Catalogue | None", remote: "RemoteTools | None"
) -> "dict[str, ServedTool]":
    from processor.core.errors import Misuse
    from processor.executor.served import serve
    from processor.executor.tools import ToolSet

    found = ToolSet() if tools is None else ToolSet.from_module(tools)
    for declaration in remote.declarations if remote else ():
        found.add(declaration)
    if not len(found):
        raise Misuse(
            "there is no tool to serve: give --tools my_tools.py, or a --catalogue with tools that"
            " have http: or mcp:"
        )
    return serve(found, rules, remote.lookups if remote else None)


def _run(
    settings: "HostSettings",
    served: "dict[str, ServedTool]",
    listed: frozenset[str],
    remote: "RemoteTools | None",
) -> None:
    from processor.app import StopRequest
    from processor.cli.exit_codes import ExitCode, exit_code_of
    from processor.core.errors import ProcessorError
    from processor.executor.crash_points import crash_point_of
    from processor.executor.host import run_executor
    from processor.executor.log_observer import LogObserver
    from processor.executor.ports import SystemClock
    from processor.telemetry.logging import make_logger

    log = make_logger("executor")
    observer = LogObserver(log, listed=listed)
    stop = StopRequest()
    stop.install()
    for problem in remote.check() if remote else ():
        log.error(problem.code, server=problem.server, tool=problem.tool)
    try:
        run_executor(
            settings,
            served,
            observer=observer,
            stop_requested=stop,
            clock=SystemClock(),
            crash_point=crash_point_of(os.environ),
        )
    except ProcessorError as e:
        if observer.calls_left_running:
            typer.echo(f"toolcalls: {e}", err=True)
            _end_at_once(exit_code_of(e), remote)
        raise
    if observer.calls_left_running:
        _end_at_once(ExitCode.OK, remote)


def _end_at_once(status: int, remote: "RemoteTools | None") -> NoReturn:
    """End although tools still run: the interpreter's own end would wait for their threads."""
    if remote is not None:
        # A child process of ours must not outlive us.
        remote.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _settings(
    *,
    kafka_bootstrap: str | None,
    database_url: str | None,
    topic: str,
    group: str,
    slot: str | None,
    start: str | None,
    unknown_tools: str,
    threads: int,
    per_tenant: int | None,
    lease_margin_s: float,
    drain_s: float,
    until_idle_s: float | None,
) -> "HostSettings":
    from processor.core.errors import Misuse
    from processor.executor.host import HostSettings
    from processor.executor.kafka_source import KafkaSettings
    from processor.executor.runner import RunnerSettings
    from processor.executor.worker import WorkerSettings
    from processor.ledger.postgres import PostgresSettings

    if not kafka_bootstrap:
        raise Misuse(
            "no Kafka address: give --kafka-bootstrap HOST:PORT or set TOOLCALLS_KAFKA_BOOTSTRAP"
        )
    if not database_url:
        raise Misuse("no database: give --database-url or set TOOLCALLS_DATABASE_URL")
    if slot is not None and not slot.strip():
        raise Misuse("--slot is empty: name the process, for example --slot 0, or leave it out")
    if start not in {None, "earliest", "latest"}:
        raise Misuse(f"--start must be earliest or latest, not {start}")
    if unknown_tools not in {"skip", "fail"}:
        raise Misuse(f"--unknown-tools must be skip or fail, not {unknown_tools}")
    return HostSettings(
        kafka=KafkaSettings(
            bootstrap=kafka_bootstrap,
            topic=topic,
            group=group,
            slot=slot,
            start=start,  # type: ignore[arg-type]  # checked above
        ),
        postgres=PostgresSettings(
            database_url=database_url,
            application_name=f"{group}-{slot or 'executor'}",
            pool_max=threads + 2,
        ),
        runner=RunnerSettings(
            lease_margin_s=lease_margin_s,
            unknown_tools=unknown_tools,  # type: ignore[arg-type]  # checked above
        ),
        worker=WorkerSettings(
            idle_end_s=until_idle_s, drain_s=drain_s, in_flight_max=max(4096, threads * 4)
        ),
        threads=threads,
        per_tenant=threads if per_tenant is None else per_tenant,
    ).checked()
