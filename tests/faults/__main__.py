"""`python -m tests.faults`: seeded faults on real servers, under load, ended by one oracle.

With `--seed` that run is played alone, or as the first of `--runs`.
"""

import argparse
import itertools
import json
import secrets
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.faults.soak import Line, Summary, soak

CALLS = 2_600
SECONDS = 6.0


def main() -> int:
    """Play, print a table, and say by the exit status whether a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--seed", type=int, help="first seed; drawn and printed by default")
    parser.add_argument("--runs", type=int, help="so many runs")
    parser.add_argument("--minutes", type=float, help="begin no run after so many minutes")
    parser.add_argument("--workers", type=int, default=2, help="clusters at once")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls in a run")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a load is written")
    parser.add_argument("--json", type=Path, help="write the summary to a file as well")
    arguments = parser.parse_args()
    first = secrets.randbelow(1 << 40) if arguments.seed is None else arguments.seed
    runs = arguments.runs
    if runs is None and arguments.minutes is None:
        runs = 1 if arguments.seed is not None else 20
    seeds = itertools.count(first) if runs is None else iter(range(first, first + runs))
    console = Console()
    console.print(f"seeds from {first} (repeat with --seed {first})", highlight=False)
    workers = arguments.workers if runs is None else min(arguments.workers, runs)
    with _progress(console) as progress:
        task = progress.add_task("runs", total=runs)

        def note(line: Line, summary: Summary) -> None:
            progress.update(task, completed=summary.runs, description=_brief(summary))
            if line["failure"] or not console.is_terminal:
                console.print(_told(line), highlight=False, markup=False)

        summary = soak(
            seeds,
            workers=workers,
            calls=arguments.calls,
            seconds=arguments.seconds,
            minutes=arguments.minutes,
            note=note,
        )
    _print(console, summary)
    if arguments.json:
        arguments.json.write_text(json.dumps({"first_seed": first, **summary.as_json()}, indent=1))
    return 1 if summary.failed else 0


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _brief(summary: Summary) -> str:
    broken = summary.lost + summary.doubled + summary.invented
    return f"{summary.events:,} events, {summary.kills} kills, {broken} wrong"


def _told(line: Line) -> str:
    said = f"FAILED {line['failure']}" if line["failure"] else "held"
    return (
        f"seed {line['seed']}: {line['events']:,} events, {line['kills']} kills,"
        f" {line['seconds']:.1f} s, {' '.join(line['faults'])}: {said}"
    )


def _print(console: Console, summary: Summary) -> None:
    table = Table(title="faults on real servers", show_header=False)
    for name, value in summary.rows():
        table.add_row(name, value)
    console.print(table)
    for line in summary.failed:
        replay = f"make faults SEED={line['seed']} RUNS=1"
        console.print(f"{replay}: {line['failure'][:2000]}", highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(main())
