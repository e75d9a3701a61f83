"""`toolcalls publish`: captured streams onto the events topic, as an application would put them.

With `--to chunks` they go onto the chunks topic instead, as a gateway would put them.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from processor.cli.console import console, print_table

if TYPE_CHECKING:
    from processor.cli.publish_chunks import Capture
    from processor.publisher import Publisher, PublisherSettings, StreamPublisher

_HELP = """Publish captured model streams to the events topic, or as they are to the chunks topic.

Each FILE is one response: server-sent events, JSON lines, or a JSON array of chunks. With several
files each is a request of its own, named REQUEST_ID-1, REQUEST_ID-2 and so on. With --to chunks
nothing but the response id is read of a stream: `toolcalls normalize` makes the events of it.

Example: toolcalls publish --dialect openai-responses --request-id req_1 stream.sse

Exit codes: 0 Kafka confirmed every event, 1 a file is no such stream, 2 a
setting or a file is wrong, 4 Kafka was not reached or did not confirm an event.
"""


class Destination(StrEnum):
    """The topic that the streams are put on."""

    EVENTS = "events"
    CHUNKS = "chunks"


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("publish", help=_HELP)(publish)


def publish(
    files: Annotated[list[Path], typer.Argument(help="Captured streams.", show_default=False)],
    dialect: Annotated[str, typer.Option(help="Whose stream it is, e.g. openai-chat.")],
    request_id: Annotated[str, typer.Option(help="Id of the application's request; no colon.")],
    tenant: Annotated[str, typer.Option(help="Whose request it is.")] = "local",
    model: Annotated[str | None, typer.Option(help="Name of the model, when known.")] = None,
    kafka_bootstrap: Annotated[
        str | None,
        typer.Option(help="Broker address, HOST:PORT[,HOST:PORT]; else TOOLCALLS_KAFKA_BOOTSTRAP."),
    ] = None,
    to: Annotated[
        Destination, typer.Option(help="Which topic: events of calls, or chunks as they came.")
    ] = Destination.EVENTS,
    topic: Annotated[str | None, typer.Option(help="That topic, when named otherwise.")] = None,
    prefix: Annotated[
        str | None,
        typer.Option(help="Prefix of all topic names; else TOOLCALLS_TOPIC_PREFIX."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(min=0.1, max=3600, help="How long Kafka may take to confirm.")
    ] = 30.0,
) -> None:
    """Publish every file and wait until Kafka has confirmed it."""
    from processor import config
    from processor.cli.publish_chunks import Capture, publish_chunks
    from processor.publisher import PublisherSettings
    from processor.runtime.topics import TopicNames

    environment = config.read_environment(kafka_bootstrap=kafka_bootstrap, topic_prefix=prefix)
    names = TopicNames.prefixed(environment.topic_prefix, chunks=True)
    settings = PublisherSettings(
        bootstrap=config.kafka_bootstrap(environment),
        events_topic=topic or names.events,
        usage_topic=names.usage,
        on_publish_error="raise",
        delivery_timeout_ms=int(timeout_s * 1000),
    )
    ids = [request_id]
    if len(files) > 1:
        ids = [f"{request_id}-{number}" for number in range(1, len(files) + 1)]
    captures = [
        Capture(path, dialect, tenant, name, model) for path, name in zip(files, ids, strict=True)
    ]
    with _progress(files) as advance:
        if to is Destination.EVENTS:
            rows = _publish_events(settings, captures, advance, timeout_s)
        else:
            chunks_topic = topic or names.by_role()["chunks"]
            rows = publish_chunks(settings, chunks_topic, captures, advance, timeout_s)
    print_table(("file", "request", "response"), rows)


def _publish_events(
    settings: "PublisherSettings",
    captures: "list[Capture]",
    advance: Callable[[int], object],
    timeout_s: float,
) -> list[tuple[str, str, str]]:
    from processor.publisher import Publisher

    rows: list[tuple[str, str, str]] = []
    # Faults are raised here, so they need not be told as well.
    with Publisher(settings, on_fault=lambda _: None) as publisher:
        for capture in captures:
            stream = publisher.stream(
                dialect=capture.dialect,
                tenant=capture.tenant,
                request_id=capture.request_id,
                model=capture.model,
            )
            _publish_file(publisher, stream, capture.path, advance, timeout_s)
            rows.append((str(capture.path), capture.request_id, stream.response_id or "-"))
    return rows


def _publish_file(
    publisher: "Publisher",
    stream: "StreamPublisher",
    path: Path,
    advance: Callable[[int], object],
    timeout_s: float,
) -> None:
    from processor.publisher import Undelivered
    from processor.publisher.captures import read_capture

    with stream:
        for piece in read_capture(path, advance):
            stream.observe(piece)
    # Twice: an event fails after timeout_s, and is then still to be reported.
    if not stream.confirm(2 * timeout_s):
        raise Undelivered(publisher.flush(0), (stream.request_id,))


@contextmanager
def _progress(files: list[Path]) -> Generator[Callable[[int], object]]:
    """A bar over the bytes of all files on standard error; nothing outside a terminal."""
    out = console(err=True)
    if not out.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn

    total = sum(path.stat().st_size for path in files if path.is_file())
    columns = (BarColumn(bar_width=24), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)
