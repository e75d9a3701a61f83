"""The half of `toolcalls publish` that puts captured streams onto the chunks topic."""

from collections.abc import Callable, Sequence
from pathlib import Path

from processor.core._record import record
from processor.dialects.calls import NO_ID
from processor.dialects.stream import ResponseStream
from processor.publisher import PublisherSettings
from processor.publisher.captures import read_capture
from processor.publisher.chunk_writer import ChunkWriter, ResponseName
from processor.publisher.producer import KafkaSink


@record
class Capture:
    """A captured stream, and whose it is."""

    path: Path
    dialect: str
    tenant: str
    request_id: str
    model: str | None


def publish_chunks(
    settings: PublisherSettings,
    topic: str,
    captures: Sequence[Capture],
    advance: Callable[[int], object],
    timeout_s: float,
) -> list[tuple[str, str, str]]:
    """Write each capture as it is; returns file, request and response of each.

    Raises: `Undelivered`, and what the stream or the file is refused with.
    """
    rows: list[tuple[str, str, str]] = []
    sink = KafkaSink(settings.checked())
    try:
        for capture in captures:
            # Read twice: the key of every record has the response id, which may come late.
            name = _named(capture)
            writer = ChunkWriter(sink, topic, name)
            for piece in read_capture(capture.path, advance):
                writer.write_raw(piece, timeout_s=timeout_s)
            writer.close(timeout_s=timeout_s)
            # Twice: a record fails after timeout_s, and is then still to be reported.
            writer.confirm(2 * timeout_s)
            rows.append((str(capture.path), name.request_id, name.response_id))
    finally:
        sink.close(0)
    return rows


def _named(capture: Capture) -> ResponseName:
    stream = ResponseStream(
        capture.dialect,
        tenant=capture.tenant,
        request_id=capture.request_id,
        model=capture.model,
    )
    for piece in read_capture(capture.path):
        stream.observe_bytes(piece)
    stream.end()
    return ResponseName(
        capture.tenant,
        capture.request_id,
        stream.response_id or NO_ID,
        capture.dialect,
        capture.model,
    )
