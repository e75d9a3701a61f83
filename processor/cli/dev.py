"""`toolcalls dev`: a real Kafka and a real Postgres on this machine."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from processor.devstack import PartStatus, Progress, StackStatus

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Directory of the stack: data, logs, state. Must be new, empty or a stack's.",
        envvar="TOOLCALLS_DEV_DIR",
        show_default="~/.local/state/toolcall-processor/dev",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document for machines.")]

_UP_HELP = """Start Kafka and Postgres, or find them running; then show how to use them.

The first time downloads Apache Kafka (about 45 MB). A part whose address is in
TOOLCALLS_KAFKA_BOOTSTRAP or TOOLCALLS_DATABASE_URL is used as it is, not started.

Example: eval "$(toolcalls dev up)"

Exit codes: 0 both parts answer, 1 a jar is not the pinned one, 2 the directory or a setting is
wrong, 4 a part did not start or cannot be reached.
"""
_DOWN_HELP = """End both parts and remove their data.

Example: toolcalls dev down --keep-data

Exit codes: 0 nothing runs any more, 4 a process does not end.
"""
_STATUS_HELP = """Show both parts: state, pid, port, start, log.

Example: toolcalls dev status --json

Exit codes: 0 both parts run, 1 a part does not, 4 the state file cannot be read.
"""


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    group = typer.Typer(
        help="A real Kafka and a real Postgres on this machine.", no_args_is_help=True
    )
    group.command("up", help=_UP_HELP)(dev_up)
    group.command("down", help=_DOWN_HELP)(dev_down)
    group.command("status", help=_STATUS_HELP)(dev_status)
    app.add_typer(group, name="dev")


def dev_up(directory: Directory = None, *, as_json: Json = False) -> None:
    """Start what does not run."""
    import shlex

    from processor.cli.console import emit_json, emit_line, is_terminal, progress_line
    from processor.devstack import status, up

    kafka_bootstrap, database_url = _external()
    with progress_line() as line:
        endpoints = up(
            directory,
            on_progress=lambda progress: line.show(_progress_text(progress)),
            kafka_bootstrap=kafka_bootstrap,
            database_url=database_url,
        )
    found = status(directory, kafka_bootstrap=kafka_bootstrap, database_url=database_url)
    if as_json:
        emit_json(_document(found))
        return
    if is_terminal():
        _show(found)
        emit_line("\nUse it in this shell:")
    emit_line(f"export TOOLCALLS_KAFKA_BOOTSTRAP={shlex.quote(endpoints.kafka_bootstrap)}")
    emit_line(f"export TOOLCALLS_DATABASE_URL={shlex.quote(endpoints.database_url)}")


def dev_down(
    directory: Directory = None,
    *,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep topics and tables for the next start.")
    ] = False,
    as_json: Json = False,
) -> None:
    """End what runs."""
    from processor.cli.console import emit_json, emit_line
    from processor.devstack import down

    ended = down(directory, keep_data=keep_data)
    if as_json:
        emit_json({"stack_found": ended, "data_kept": ended and keep_data})
    elif not ended:
        emit_line("no dev stack there: nothing to end")
    else:
        emit_line("Kafka and Postgres ended" + (", data kept" if keep_data else ", data removed"))


def dev_status(directory: Directory = None, *, as_json: Json = False) -> None:
    """Show what runs; changes nothing."""
    from processor.cli.console import emit_json
    from processor.cli.exit_codes import ExitCode
    from processor.devstack import status

    kafka_bootstrap, database_url = _external()
    found = status(directory, kafka_bootstrap=kafka_bootstrap, database_url=database_url)
    if as_json:
        emit_json(_document(found))
    else:
        _show(found)
    if found.endpoints is None:
        raise typer.Exit(ExitCode.CHECK_FAILED)


def _external() -> tuple[str | None, str | None]:
    """The addresses of parts that somebody else runs."""
    return (
        os.environ.get("TOOLCALLS_KAFKA_BOOTSTRAP") or None,
        os.environ.get("TOOLCALLS_DATABASE_URL") or None,
    )


def _show(found: "StackStatus") -> None:
    from processor.cli.console import STATE_STYLES, print_table

    rows = [_row(part) for part in (found.kafka, found.postgres)]
    print_table(["part", "state", "pid", "port", "since", "log"], rows, styles=STATE_STYLES)


def _row(part: "PartStatus") -> list[str]:
    return [
        part.name,
        part.state,
        str(part.pid or "-"),
        str(part.port or "-"),
        _iso(part.since_ms) if part.since_ms else "-",
        part.log_path or "-",
    ]


def _iso(epoch_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _document(found: "StackStatus") -> dict[str, object]:
    """The machine form; `endpoints.database_url` holds the password, as the export line does."""
    endpoints = found.endpoints
    return {
        "directory": found.directory,
        "parts": [
            {
                "name": part.name,
                "state": part.state,
                "pid": part.pid,
                "port": part.port,
                "since_ms": part.since_ms,
                "log": part.log_path,
            }
            for part in (found.kafka, found.postgres)
        ],
        "endpoints": endpoints
        and {
            "kafka_bootstrap": endpoints.kafka_bootstrap,
            "database_url": endpoints.database_url,
        },
    }


def _progress_text(progress: "Progress") -> str:
    if progress.step != "download" or not progress.jar_count:
        return progress.text
    from processor.cli.console import is_error_terminal

    if not is_error_terminal():
        return progress.text
    return f"{progress.text}: {progress.jar_count} here, {progress.jar_bytes / 1e6:.1f} MB"
