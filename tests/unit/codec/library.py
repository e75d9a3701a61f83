"""The Avro library as an independent judge: what it reads, and what it writes."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import fastavro
from fastavro.utils import generate_many

Json = dict[str, Any]

# Its stubs leave the stream's type open, which the strict checkers refuse.
_LIBRARY = vars(fastavro)
_write = cast("Callable[[BytesIO, Json, object], None]", _LIBRARY["schemaless_writer"])
_read = cast("Callable[[BytesIO, Json, Json | None], object]", _LIBRARY["schemaless_reader"])


def load_json(path: Path) -> Json:
    """A schema file as JSON."""
    return cast("Json", json.loads(path.read_text(encoding="utf-8")))


def library_writes(schema: Json, value: object) -> bytes:
    """What the library writes."""
    stream = BytesIO()
    _write(stream, schema, value)
    return stream.getvalue()


def library_reads(writer: Json, data: bytes, reader: Json | None = None) -> object:
    """The one datum that the library reads from `data`, all of it."""
    stream = BytesIO(data)
    value = _read(stream, writer, reader)
    if stream.read():
        raise AssertionError("bytes are left over")
    return value


def library_invents(schema: Json, count: int) -> list[object]:
    """Some data of a schema."""
    return list(generate_many(cast("dict[Any, Any]", schema), count))
