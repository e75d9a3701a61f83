"""`toolcalls demo`: the main job on a real Kafka broker and a real Postgres, in half a minute."""

from pathlib import Path
from typing import Annotated

import typer

_HELP = """Show the main job on real servers: interleaved calls, a cut call, a redelivery, a crash.

Example: toolcalls demo --keep

Starts the dev stack (unless TOOLCALLS_KAFKA_BOOTSTRAP and TOOLCALLS_DATABASE_URL name servers of
yours, which then get topics with a prefix and a ledger schema), runs assembler and executor as
processes of their own, and checks everything that it shows.

Exit codes: 0 all as it must be, 1 something is not, 4 the servers cannot be reached or started.
"""


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("demo", help=_HELP)(demo)


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the dev stack up, and say how to use it.")
    ] = False,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where the dev stack of the demo lives.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Also write what is shown as a picture, an SVG file.")
    ] = None,
) -> None:
    """Run the demo once."""
    from processor.cli.demo_run import run_demo

    run_demo(directory=directory, picture=svg, keep=keep)
