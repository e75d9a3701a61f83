"""`toolcalls assemble`: what becomes of the calls in a captured stream, offline, without Kafka.

Rules:
    The same adapters and the same fold as in production, with no catalogue: every tool waits for
    the response's clean end.
    Only this verb prints arguments, because its user has them already; errors never do.
    A file is read in bounded pieces.
"""

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from processor.cli.console import (
    console,
    emit_json,
    is_error_terminal,
    is_terminal,
    print_table,
)

if TYPE_CHECKING:
    from processor.core.outcomes import Outcome
    from processor.dialects.stream import ResponseStream

PIECE_BYTES = 64 * 1024
#: A smaller file is read before a bar could be seen.
BAR_FROM_BYTES = 8 * 1024 * 1024
#: Stands for the dialect that the first events are of.
AUTO = "auto"
_EMPTY = "-"
_STYLES = {"completed": "green", "rejected": "red"}
_COLUMNS = (
    "call_id",
    "tool",
    "verdict",
    "reason",
    "stage",
    "arguments",
    "response_id",
    "output_index",
    "item_id",
    "idempotency_key",
)

_SHARED = frozenset({"response_id", "idempotency_key"})

_HELP = """Say of every call in a captured model stream whether it may run, and why not.

FILE is one response as it came: server-sent events, JSON lines, or a JSON array of chunks; - reads
standard input. Nothing is sent anywhere, no Kafka is needed.

With --dialect auto the first events tell whose stream it is; where they do not, as with mistral and
openai-chat, which look alike, the file is refused.

Example: curl -sN https://api.example/v1/chat/completions -d @body.json | toolcalls assemble
--dialect openai-chat -

In a pipe the columns are parted by tabs, in the order of the keys of --json; - is an absent value,
and control characters are escaped. The exact arguments are in --json.

Exit codes: 0 the stream was read, whatever became of its calls, 2 it is not of that dialect or
cannot be read.
"""


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("assemble", help=_HELP)(assemble)


def assemble(
    file: Annotated[Path, typer.Argument(help="A captured stream, or -.", show_default=False)],
    dialect: Annotated[
        str, typer.Option(help="Whose stream it is, e.g. openai-chat; or auto.", show_default=False)
    ],
    tenant: Annotated[str, typer.Option(help="Whose request it was.")] = "local",
    request_id: Annotated[str, typer.Option(help="Id of the request; no colon.")] = "request-1",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per call.")] = False,
) -> None:
    """Read the stream, fold it, print one line per call."""
    from processor.core.errors import Misuse
    from processor.dialects.stream import DialectError, ResponseStream

    name = "standard input" if str(file) == "-" else str(file)
    pieces = _pieces(file)
    try:
        if dialect == AUTO:
            dialect, pieces = _recognised(pieces, name)
        stream = ResponseStream(dialect, tenant=tenant, request_id=request_id)
        outcomes = _fold(stream, pieces)
    except OSError as e:
        raise Misuse(f"{name} cannot be read: {e.strerror}") from None
    except DialectError as e:
        raise Misuse(f"{name}: {e}") from None
    if not stream.is_recognised:
        raise Misuse(f"{name} holds no event of a model stream")
    _print([_row(outcome) for outcome in outcomes], as_json=as_json)
    _remark(stream, name, outcomes)


def _recognised(pieces: Iterator[bytes], name: str) -> tuple[str, Iterator[bytes]]:
    """The dialect of an input, and the whole input once more. Says what was found."""
    from processor.core.errors import Misuse
    from processor.dialects.recognise import HEAD_BYTES_MAX, Unsure, recognise_bytes

    head, is_whole = bytearray(), True
    for piece in pieces:
        head += piece
        if len(head) >= HEAD_BYTES_MAX:
            is_whole = False
            break
    found = recognise_bytes(bytes(head), is_whole=is_whole)
    if isinstance(found, Unsure):
        raise Misuse(f"{name}: {found.why}; name its dialect with --dialect")
    console(err=True).print(f"{name}: recognised as {found}", style="dim", markup=False)
    return found, chain([bytes(head)], pieces)


def _fold(stream: "ResponseStream", pieces: Iterator[bytes]) -> "list[Outcome]":
    """The verdicts, in the order in which their calls first appeared."""
    from processor.core.assembly import Assembly, Place
    from processor.core.gate import NoCatalogue
    from processor.core.limits import Limits

    fold = Assembly(Place("offline", 0), Limits(), NoCatalogue())
    verdicts: dict[bytes, Outcome | None] = {}
    offset = 0

    def apply_all(ended: bytes | None) -> None:
        nonlocal offset
        for key, event in stream.end() if ended is None else stream.observe_bytes(ended):
            encoded = key.encode()
            verdicts.setdefault(encoded, None)
            outcome = fold.apply(encoded, event, offset, 0)
            offset += 1
            if outcome is not None:
                verdicts[encoded] = outcome

    for piece in pieces:
        apply_all(piece)
    apply_all(None)
    return [outcome for outcome in verdicts.values() if outcome is not None]


def _row(outcome: "Outcome") -> dict[str, object]:
    from processor.core.outcomes import CallCompleted

    key = outcome.key
    done = outcome if isinstance(outcome, CallCompleted) else None
    refused = None if isinstance(outcome, CallCompleted) else outcome
    values = (
        key.call_id,
        outcome.tool,
        "completed" if done else "rejected",
        refused and refused.reason,
        refused and refused.stage,
        done and done.arguments.decode(),
        key.response_id,
        outcome.output_index,
        outcome.item_id,
        key.idempotency_key,
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _print(rows: list[dict[str, object]], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            emit_json(row)
        return
    columns: tuple[str, ...] = _COLUMNS
    if is_terminal():
        # A column without a value says nothing; what is the same for all is named once, below.
        columns = tuple(
            c for c in _COLUMNS if c not in _SHARED and any(row[c] is not None for row in rows)
        )
    if rows:
        cells = [[_cell(row[column]) for column in columns] for row in rows]
        print_table(columns, cells, styles=_STYLES)


def _cell(value: object) -> str:
    """One value without characters that move a cursor or end a line."""
    if value is None:
        return _EMPTY
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _remark(stream: "ResponseStream", name: str, outcomes: "list[Outcome]") -> None:
    """For people only, on standard error: what the table does not show."""
    from processor.core.outcomes import CallCompleted

    err = console(err=True)
    if stream.ignored_count:
        text = f"{name}: {stream.ignored_count} events after the response's end were ignored"
        err.print(text, style="yellow", markup=False)
    if not outcomes:
        how = "" if stream.outcome in (None, "completed") else f" and ended as {stream.outcome}"
        err.print(f"{name}: the response calls no tool{how}", markup=False)
    elif is_terminal():
        done = sum(isinstance(outcome, CallCompleted) for outcome in outcomes)
        text = (
            f"response {stream.response_id or _EMPTY}: {done} of {len(outcomes)} calls completed;"
            f" idempotency keys {outcomes[0].key.request_id}:CALL_ID"
        )
        err.print(text, style="dim", markup=False)


def _pieces(file: Path) -> Iterator[bytes]:
    if str(file) == "-":
        yield from _read(sys.stdin.buffer, lambda _: None)
        return
    with file.open("rb") as opened, _bar(file.stat().st_size) as advance:
        yield from _read(opened, advance)


def _read(source: BinaryIO, advance: Callable[[int], object]) -> Iterator[bytes]:
    while piece := source.read(PIECE_BYTES):
        yield piece
        advance(len(piece))


@contextmanager
def _bar(size: int) -> Generator[Callable[[int], object]]:
    """A bar on standard error for a big file in front of a person; nothing else."""
    if size < BAR_FROM_BYTES or not is_error_terminal():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn

    columns = (BarColumn(bar_width=24), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(err=True), transient=True) as progress:
        task = progress.add_task("", total=size)
        yield lambda count: progress.advance(task, count)
