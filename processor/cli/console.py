"""Output for people and for machines: colours in a terminal, plain lines in a pipe, JSON on demand.

Rules:
    Results go to standard output, progress and remarks to standard error, so a pipe holds only
    results.
    `NO_COLOR` and `TERM=dumb` are honoured (by rich).
"""

import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as _RichProgress

STATE_STYLES = {"running": "green", "external": "cyan", "stopped": "red"}


class ProgressLine(Protocol):
    """What a long step shows while it runs."""

    def show(self, text: str) -> None:
        """Say what is being done now."""
        ...


def console(*, err: bool = False) -> "Console":
    """A rich console; outside a terminal it neither colours nor wraps nor reads markup."""
    from rich.console import Console

    made = Console(stderr=err, highlight=False)
    if not made.is_terminal:
        made.soft_wrap = True
    return made


def is_terminal() -> bool:
    """True when standard output is a terminal."""
    return sys.stdout.isatty()


def is_error_terminal() -> bool:
    """True when standard error is a terminal."""
    return sys.stderr.isatty()


def emit_json(value: object) -> None:
    """One JSON document on one line of standard output, keys in the order given."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def emit_line(text: str = "") -> None:
    """One plain line on standard output, without markup or wrapping."""
    sys.stdout.write(text + "\n")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    styles: Mapping[str, str] | None = None,
) -> None:
    """A table in a terminal; in a pipe one line per row, cells parted by tabs, no heading.

    `styles` names a rich style for a whole cell text, for example `STATE_STYLES`.
    """
    if not is_terminal():
        for row in rows:
            emit_line("\t".join(row))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, header_style="bold", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, style=(styles or {}).get(cell, "")) for cell in row))
    console().print(table)


@contextmanager
def progress_line() -> Generator[ProgressLine]:
    """A moving bar with the elapsed time on standard error; outside a terminal one line per step."""
    out = console(err=True)
    if not out.is_terminal:
        yield _PlainLine()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=out,
        transient=True,
    ) as bar:
        yield _Bar(bar)


class _PlainLine:
    """Says each new text once."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, text: str) -> None:
        if text != self._last:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        self._last = text


class _Bar:
    """An indeterminate bar: how much there is to do is not known."""

    def __init__(self, bar: "_RichProgress") -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)

    def show(self, text: str) -> None:
        self._bar.update(self._task, description=text)
