"""A bar with an end for long reading, on standard error of a person's terminal; nothing else."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from processor.cli.console import console, is_error_terminal

#: Told the phase, the records done and the records there are.
OnProgress = Callable[[str, int, int], None]


@contextmanager
def reading_bar() -> Generator[OnProgress]:
    """Show `phase done/total` with the time that is left."""
    if not is_error_terminal():
        yield lambda phase, done, total: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda phase, done, total: bar.update(
            task, description=phase, completed=done, total=total
        )
