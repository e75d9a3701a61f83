"""The program `toolcalls`: builds the command line and turns errors into one line and a status.

Rules:
    An error raised on purpose is one line on standard error, never a traceback.
    A bug is named by its type and its place; its message is left out, since it may quote content.
"""

import importlib
import os
import sys
import traceback
from typing import Annotated, Final, NoReturn

import typer

from processor import __version__
from processor.cli.exit_codes import MEANINGS, ExitCode, exit_code_of
from processor.core.errors import ProcessorError

VERBS = (
    "dev",
    "topics",
    "publish",
    "normalize",
    "run",
    "assemble",
    "execute",
    "demo",
    "migrate",
    "ledger",
    "relay",
    "usage",
    "verify",
    "inspect",
    "doctor",
)

_CLIENT_BROKEN: Final = frozenset(
    {
        ExitCode.FENCED,
        ExitCode.CLIENT_FATAL,
        ExitCode.COMMIT_UNKNOWN,
        ExitCode.COMMIT_REFUSED,
    }
)

_HELP = f"""Raw LLM stream events in, tool calls that are safe to act on out.

Example: toolcalls dev up

Exit codes: {"; ".join(f"{int(code)} {meaning}" for code, meaning in MEANINGS.items())}.
"""


def build_app() -> typer.Typer:
    """The command line with every verb; the work of a verb is imported when it runs."""
    app = typer.Typer(
        name="toolcalls",
        help=_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for verb in VERBS:
        importlib.import_module(f"processor.cli.{verb}").register(app)
    return app


def main() -> None:
    """Entry point of the console script."""
    try:
        build_app()()
    except ProcessorError as e:
        typer.echo(f"toolcalls: {e}", err=True)
        _leave(exit_code_of(e))
    except Exception as e:  # noqa: BLE001  # the last line of defence: a bug, told without content
        typer.echo(_describe_bug(e), err=True)
        sys.exit(ExitCode.INTERNAL)


def _leave(code: ExitCode) -> NoReturn:
    """End with `code`. After a fatal client error the client may never finish closing itself."""
    if code in _CLIENT_BROKEN:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _show_version(value: bool) -> None:  # noqa: FBT001  # the shape typer calls
    if value:
        typer.echo(f"toolcalls {__version__}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    del version


def _describe_bug(error: Exception) -> str:
    """The type and the lines of code, without the message."""
    places = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return f"toolcalls: internal error, please report it: {type(error).__name__}\n{places}"


if __name__ == "__main__":
    main()
