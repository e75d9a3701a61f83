"""The schemas of one record type: what we write, and every version that we can still read.

Rules:
    The newest file of a record is what we write; every older one can still be read.
    Data written with a schema other than the newest is checked first, by the schema that wrote it,
    and then resolved by the Avro library, which so sees only what has the right shape.
    Logical types are left out: times stay whole numbers, and no date can overflow.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Final, cast

import fastavro
from fastavro import parse_schema
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, fingerprint, to_parsing_canonical_form
from fastavro.types import Schema

from processor.codec.avro_datum import SchemaRefused, compile_schema, read_datum
from processor.codec.varint import Malformed

NAMESPACE: Final = "toolcalls.v1"
#: A registry's schema beyond this is refused; ours have some 10 KiB.
SCHEMA_BYTES_MAX: Final = 256 * 1024
SCHEMAS_CACHED_MAX: Final = 256

Fields = dict[str, object]

#: What the library may raise for data that has the right shape but does not resolve.
_LIBRARY_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    SchemaResolutionError,
    TypeError,
    ValueError,
)


class AvroReader:
    """Reads data written with one schema into the newest form of a record."""

    __slots__ = ("_name_branches", "_newest", "_read", "_writer")

    def __init__(self, writer: Schema, newest: Schema | None, *, name_branches: bool) -> None:
        self._writer = writer
        self._name_branches = name_branches
        #: None when both are the same, and nothing has to be resolved.
        self._newest = newest
        self._read = compile_schema(writer).read

    def read(self, data: bytes, at: int) -> Fields:
        """The fields of the datum that fills `data` from `at` to its end.

        A union of records reads as (full name of the branch, fields). Raises: `Malformed`.
        """
        value = read_datum(self._read, data, at)
        if self._newest is not None:
            try:
                value = fastavro.schemaless_reader(  # pyright: ignore[reportUnknownMemberType]  # its stub says IO
                    BytesIO(data[at:]),
                    self._writer,
                    self._newest,
                    return_record_name=self._name_branches,
                )
            except _LIBRARY_ERRORS as e:
                raise Malformed("the data does not fit the newest schema") from e
        return cast("Fields", value)


class RecordSchema:
    """The schemas of one record type, by version. Immutable once made."""

    def __init__(self, name: str, versions: list[Fields]) -> None:
        newest = versions[-1]
        self.name = name
        self.full_name = f"{NAMESPACE}.{name}"
        #: Text of the newest version, as it is registered.
        self.text = json.dumps(newest)
        #: CRC-64-AVRO of the newest version, little endian.
        self.fingerprint = _fingerprint(newest)
        self._has_branches = _has_union_of_records(newest)
        self._newest = _parsed(newest)
        self._newest_form = _canonical_form(newest)
        self._write = compile_schema(self._newest).write
        self._readers = {_fingerprint(version): self._reader_of(version) for version in versions}

    @property
    def fingerprints(self) -> frozenset[bytes]:
        """Fingerprints of every version kept, little endian."""
        return frozenset(self._readers)

    def write(self, frame: bytes, fields: Mapping[str, object]) -> bytes:
        """`frame` and behind it the Avro data of `fields`.

        Raises: `ValueError` or `KeyError` for what the schema cannot carry.
        """
        return frame + self._write(fields)

    def reader_of_fingerprint(self, found: bytes) -> AvroReader | None:
        """The reader of a version kept here, or None."""
        return self._readers.get(found)

    def reader_of_text(self, text: str) -> AvroReader:
        """The reader of a registry's schema; compiled once. Raises: `SchemaRefused`."""
        made = _compiled(self, text)
        if isinstance(made, str):
            raise SchemaRefused(made)
        return made

    def compile_text(self, text: str) -> AvroReader:
        """Read a schema and check that it is one of this record. Raises: `SchemaRefused`."""
        if len(text) > SCHEMA_BYTES_MAX:
            raise SchemaRefused(f"the schema has more than {SCHEMA_BYTES_MAX} characters")
        try:
            schema: object = json.loads(text)
            if not isinstance(schema, dict):
                raise SchemaRefused("the schema is no record")
            fields = cast("Fields", schema)
            name = cast("Fields", _parsed(fields)).get("name")
            reader = self._reader_of(fields)
        except SchemaRefused:
            raise
        except (SchemaParseException, *_LIBRARY_ERRORS) as e:
            raise SchemaRefused("the schema is not valid Avro") from e
        if name != self.full_name:
            raise SchemaRefused(f"the schema is not that of {self.full_name}")
        return reader

    def _reader_of(self, schema: Fields) -> AvroReader:
        same = _canonical_form(schema) == self._newest_form
        return AvroReader(
            _parsed(schema), None if same else self._newest, name_branches=self._has_branches
        )


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def _compiled(record_schema: RecordSchema, text: str) -> AvroReader | str:
    # A refusal is kept like a reader: a flood of bad records must not compile one each.
    try:
        return record_schema.compile_text(text)
    except SchemaRefused as refused:
        return str(refused)


def load_record_schema(folder: Path, name: str) -> RecordSchema:
    """Read `folder/name/v1.avsc`, `v2.avsc` and so on; the last one is what is written."""
    versions: list[Fields] = []
    while (path := folder / name / f"v{len(versions) + 1}.avsc").is_file():
        versions.append(json.loads(path.read_text(encoding="utf-8")))
    if not versions:
        raise FileNotFoundError(f"no schema of {name}: {path} is missing; install the package anew")
    return RecordSchema(name, versions)


def _parsed(schema: Fields) -> Schema:
    return parse_schema(cast("Schema", _without_logical_types(schema)))


def _canonical_form(schema: Fields) -> str:
    return to_parsing_canonical_form(cast("Schema", schema))


def _fingerprint(schema: Fields) -> bytes:
    return bytes.fromhex(fingerprint(_canonical_form(schema), "CRC-64-AVRO"))


def _has_union_of_records(schema: Fields) -> bool:
    """The library names the branch of every union with a named type, or of none."""
    fields = cast("list[Fields]", schema["fields"])
    branches = [branch for field in fields for branch in _branches(field["type"])]
    return sum(isinstance(b, dict) and cast("Fields", b)["type"] == "record" for b in branches) > 1


def _branches(kind: object) -> list[object]:
    return cast("list[object]", kind) if isinstance(kind, list) else []


def _without_logical_types(schema: object) -> object:
    if isinstance(schema, list):
        return [_without_logical_types(part) for part in cast("list[object]", schema)]
    if isinstance(schema, dict):
        return {
            name: part if name == "default" else _without_logical_types(part)
            for name, part in cast("Fields", schema).items()
            if name != "logicalType"
        }
    return schema
