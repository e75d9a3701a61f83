"""Every captured stream through the normaliser gives the events that its adapter gives."""

import json
import random
from pathlib import Path

import pytest

from processor.core.chunks import ChunkBody, RawChunk, ResponseChunk, StreamClosed
from processor.dialects.normalise import ResponseFold
from processor.dialects.stream import KeyedEvent, ResponseStream
from tests.golden.replay import FIXTURES

CAPTURES = sorted(
    path for kind in ("sse", "jsonl") for path in (FIXTURES / "streams").glob(f"*/*.{kind}")
)
TRY = "try_1"


def normalised(dialect: str, data: bytes, seed: int) -> list[KeyedEvent]:
    """The events of `data`, cut at random into records of the chunks topic."""
    rng = random.Random(seed)
    cuts = sorted(rng.randrange(len(data)) for _ in range(20))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    bodies: list[ChunkBody] = [*map(RawChunk, pieces), StreamClosed(cancelled=False)]
    fold, events = ResponseFold(), list[KeyedEvent]()
    for number, body in enumerate(bodies):
        chunk = ResponseChunk("acme", "req_1", TRY, dialect, number, body)
        events += fold.apply(b"acme/req_1/" + TRY.encode(), chunk, number, 1_000).events
    assert fold.open_count == 0
    return events


def as_adapted(dialect: str, data: bytes) -> list[KeyedEvent]:
    """The events of the adapter alone."""
    stream = ResponseStream(dialect, tenant="acme", request_id="req_1", response_id=TRY)
    return [*stream.observe_bytes(data), *stream.end()]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_captured_stream_normalised_gives_its_adapters_events(path: Path) -> None:
    """Whatever the cuts; a response without an id of its own is named by the envelope."""
    dialect = json.loads(path.with_suffix(".expected.json").read_text())["dialect"]
    data = path.read_bytes()
    assert normalised(dialect, data, seed=len(data)) == as_adapted(dialect, data)
