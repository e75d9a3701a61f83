"""The schema files: documented, evolvable, and as the page about them says."""

import re
from pathlib import Path
from typing import cast

import pytest

from processor.codec.avro import NAMESPACE, load_record_schema
from processor.codec.chunk_records import decode_chunk
from processor.codec.records import decode_event, encode_event
from processor.core.events import ArgumentsDelta, StreamEvent
from processor.core.identity import call_key, decode_call_key
from processor.dialects.normalise import ResponseFold
from processor.resources import schemas_dir
from tests.builders import assembly, feed, log, only_completed
from tests.unit.codec.library import Json, library_invents, library_reads, library_writes, load_json

PAGE = (schemas_dir() / "README.md").read_text(encoding="utf-8")
FILES = sorted(schemas_dir().glob("*/v*.avsc"))
RECORDS = sorted({path.parent.name for path in FILES})


def versions(name: str) -> list[Path]:
    """Files of one record, oldest first."""
    found = [path for path in FILES if path.parent.name == name]
    return sorted(found, key=lambda path: int(path.stem[1:]))


def parts(schema: object) -> list[Json]:
    """Every object inside a schema."""
    if isinstance(schema, list):
        return [part for item in cast("list[object]", schema) for part in parts(item)]
    if isinstance(schema, dict):
        named = cast("Json", schema)
        return [named, *(part for item in named.values() for part in parts(item))]
    return []


def test_the_records_are_all_there() -> None:
    """One folder per record of the design."""
    assert RECORDS == [
        "CallCompleted",
        "CallRejected",
        "CallResult",
        "OpenCallCheckpoint",
        "ResponseChunk",
        "ResponseUsage",
        "StreamEvent",
    ]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_schema_says_what_everything_is(path: Path) -> None:
    """A doc on every field and every named type; one namespace; the folder's name."""
    schema = load_json(path)
    assert (schema["namespace"], schema["name"]) == (NAMESPACE, path.parent.name)
    for part in parts(schema):
        if "name" in part:
            assert part.get("doc"), part["name"]


@pytest.mark.parametrize("name", RECORDS)
def test_versions_are_numbered_without_holes(name: str) -> None:
    """v1, v2 and so on."""
    assert [path.stem for path in versions(name)] == [
        f"v{number}" for number in range(1, len(versions(name)) + 1)
    ]


@pytest.mark.parametrize("name", RECORDS)
def test_the_newest_version_reads_what_every_earlier_one_wrote(name: str) -> None:
    """BACKWARD_TRANSITIVE, read with the library itself."""
    paths = versions(name)
    newest = load_json(paths[-1])
    for path in paths:
        writer = load_json(path)
        for datum in library_invents(writer, 20):
            written = library_writes(writer, datum)
            assert isinstance(library_reads(writer, written, newest), dict)


@pytest.mark.parametrize("name", RECORDS)
def test_an_enum_falls_back_to_its_careful_symbol_or_to_none(name: str) -> None:
    """The default of each enum is a decision, written down here."""
    careful = {
        "ResponseOutcome": "unknown",
        "EffectClass": "at_most_once",
        "ResultState": "in_doubt",
        "Retry": "never",
    }
    for part in parts(load_json(versions(name)[-1])):
        if part.get("type") == "enum":
            assert part.get("default") == careful.get(part["name"]), part["name"]


def canonical(schema: object, known: set[str], namespace: str = "") -> str:
    """Parsing Canonical Form, written from the specification and from nothing else."""
    if isinstance(schema, list):
        branches = cast("list[object]", schema)
        return "[" + ",".join(canonical(part, known, namespace) for part in branches) + "]"
    if isinstance(schema, str):
        full = f"{namespace}.{schema}"
        return f'"{full if full in known else schema}"'
    parts_of = cast("Json", schema)
    kind: object = parts_of["type"]
    if kind == "map":
        return f'{{"type":"map","values":{canonical(parts_of["values"], known, namespace)}}}'
    if kind in ("record", "enum", "fixed"):
        return canonical_named(parts_of, known, parts_of.get("namespace", namespace))
    return canonical(kind, known, namespace)


def canonical_named(schema: Json, known: set[str], namespace: str) -> str:
    """The form of a type with a name; a second use of the name is the name alone."""
    name, kind = f"{namespace}.{schema['name']}", schema["type"]
    known.add(name)
    if kind == "enum":
        rest = '"symbols":[' + ",".join(f'"{symbol}"' for symbol in schema["symbols"]) + "]"
    elif kind == "fixed":
        rest = f'"size":{schema["size"]}'
    else:
        fields = ",".join(
            f'{{"name":"{field["name"]}","type":{canonical(field["type"], known, namespace)}}}'
            for field in schema["fields"]
        )
        rest = f'"fields":[{fields}]'
    return f'{{"name":"{name}","type":"{kind}",{rest}}}'


def crc64(data: bytes) -> bytes:
    """CRC-64-AVRO bit by bit, as the specification defines it; little endian."""
    empty = 0xC15D213AA4D7A795
    crc = empty
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (empty if crc & 1 else 0)
    return crc.to_bytes(8, "little")


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_fingerprint_is_that_of_the_specification(path: Path) -> None:
    """Computed a second time from the text of the specification, and printed on the page."""
    number = int(path.stem[1:])
    expected = crc64(canonical(load_json(path), set()).encode())
    assert expected in load_record_schema(schemas_dir(), path.parent.name).fingerprints
    assert f"| `{path.parent.name}` v{number} | `{expected.hex()}` |" in PAGE


def test_the_worked_example_of_the_page_is_what_we_write() -> None:
    """Byte by byte, in the block and in the table above it."""
    value = encode_event(StreamEvent(3, ArgumentsDelta(b'{"order_id":'), 1764547200000))
    found = re.search(r"```hex\n([0-9a-f]+)\n```", PAGE)
    assert found is not None
    assert found.group(1) == value.hex()
    section = PAGE.partition("## A delta, byte by byte")[2].partition("```hex")[0]
    rows = re.findall(r"^\| `((?:[0-9a-f]{2} ?)+)` \|", section, re.MULTILINE)
    assert bytes.fromhex("".join(rows)) == value


def test_the_keys_of_the_page_are_those_of_the_code() -> None:
    """Every row of the table, both ways."""
    cell = r" `([^`]+)` \|"
    rows = re.findall(r"^\|" + cell * 5 + "$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for *ids, encoded in rows:
        key = call_key(*ids)
        assert key.encode() == encoded.encode()
        assert decode_call_key(encoded.encode()) == key


def test_the_json_of_the_page_is_a_whole_call() -> None:
    """The first steps lead to a completed call."""
    lines = re.findall(r"^\$K\|(\{.*\})$", PAGE, re.MULTILINE)
    key = b"acme/req_1/resp_1/call_A"
    events = [decode_event(key, line.encode()) for line in lines]
    call = only_completed(feed(assembly(), log(events, of=decode_call_key(key))))
    assert call.arguments == b'{"order_id":"ORDER-1001"}'


def test_the_chunks_of_the_page_are_a_whole_response() -> None:
    """As the shell expands them: the envelope is written once."""
    (envelope,) = re.findall(r"^E='(.*)'$", PAGE, re.MULTILINE)
    (key,) = re.findall(r"^R=(\S+)$", PAGE, re.MULTILINE)
    lines = re.findall(r"^\$R\|(\{.*\})$", PAGE, re.MULTILINE)
    texts = [line.replace("$E", envelope).replace("\\\\", "\\") for line in lines]
    fold = ResponseFold()
    for offset, text in enumerate(texts):
        chunk = decode_chunk(key.encode(), text.encode())
        assert fold.apply(key.encode(), chunk, offset, 1_000).refusal is None
    assert len(texts) == 3
    assert fold.open_count == 0


def test_a_missing_schema_is_named(tmp_path: Path) -> None:
    """A damaged installation says which file is missing."""
    with pytest.raises(FileNotFoundError, match=r"StreamEvent.*v1\.avsc"):
        load_record_schema(tmp_path, "StreamEvent")
