"""The strict reading of Avro data: shapes that a lenient reader would let pass."""

import pytest

from processor.codec.avro_datum import ITEMS_MAX, SchemaRefused, compile_schema, read_datum
from processor.codec.varint import Malformed, write_long

RECORD = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["x", "y"]}},
        {"name": "data", "type": "bytes"},
    ],
}
MAP = {"type": "map", "values": "long"}
ARRAY = {"type": "array", "items": "int"}


def read(schema: object, encoded: str) -> object:
    """Read hexadecimal data."""
    return read_datum(compile_schema(schema).read, bytes.fromhex(encoded), 0)


def test_a_record_is_read_field_by_field() -> None:
    """The plain case."""
    assert read(RECORD, "02026102026a") == {"maybe": "a", "kind": "y", "data": b"j"}


@pytest.mark.parametrize(
    ("schema", "encoded", "word"),
    [
        (RECORD, "010000", "branch"),
        (RECORD, "040000", "branch"),
        (RECORD, "000100", "symbol"),
        (RECORD, "000400", "symbol"),
        (RECORD, "00000161", "negative"),
        (RECORD, "0000046161" + "00", "goes on"),
        (RECORD, "000006616161"[:-2], "reaches beyond"),
        (RECORD, "0000", "ends early"),
        (RECORD, "0202ff0000", "UTF-8"),
        ("boolean", "02", "boolean"),
        ("int", "8080808010", "32 bits"),
        ("null", "00", "goes on"),
        ({"type": "fixed", "name": "F", "size": 4}, "000000", "4 bytes expected"),
        (MAP, "01", "ends early"),
        (MAP, "01ff0102610000", "block"),
        (ARRAY, "0202", "ends early"),
        (ARRAY, write_long(ITEMS_MAX + 1).hex(), "items"),
        (ARRAY, write_long(2**63 - 1).hex(), "items"),
        (ARRAY, write_long(-(2**63)).hex() + "00", "items"),
        ({"type": "array", "items": ["null", "long"]}, write_long(ITEMS_MAX).hex(), "ends early"),
    ],
)
def test_data_of_another_shape_is_refused(schema: object, encoded: str, word: str) -> None:
    """Negative indexes and lengths, holes, left-overs, and counts that nothing stands behind."""
    with pytest.raises(Malformed, match=word):
        read(schema, encoded)


def test_blocks_of_maps_and_arrays_may_carry_their_size() -> None:
    """A negative count is followed by the size of the block (Avro 1.11, "Arrays", "Maps")."""
    assert read(ARRAY, "010202" + "00") == [1]
    assert read(MAP, "0106026104" + "02026206" + "00") == {"a": 2, "b": 3}


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "array", "items": "null"}, "without size"),
        ({"type": "array", "items": {"type": "record", "name": "N", "fields": []}}, "without size"),
        (
            {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
            "itself",
        ),
        ("toolcalls.v1.Nothing", "no definition"),
        (7, "neither"),
    ],
)
def test_schemas_that_could_keep_a_reader_busy_are_refused(schema: object, word: str) -> None:
    """Recursion, items without size, names without a definition."""
    with pytest.raises(SchemaRefused, match=word):
        compile_schema(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", 1),
        ("int", 2**31),
        ("long", 2**63),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc"),
        ("string", "\ud800"),
    ],
)
def test_what_a_schema_cannot_carry_is_not_written(schema: object, value: object) -> None:
    """A writer refuses what every reader would refuse."""
    with pytest.raises(ValueError, match=r".+"):
        compile_schema(schema).write(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("boolean", True),
        ("boolean", False),
        ("null", None),
        (ARRAY, [1, -2, 3]),
        (ARRAY, []),
        (MAP, {}),
        (MAP, {"a": 1, "b": -1}),
    ],
)
def test_plain_values_are_read_as_they_were_written(schema: object, value: object) -> None:
    """Every kind of type that the records of today leave out, too."""
    compiled = compile_schema(schema)
    assert read_datum(compiled.read, compiled.write(value), 0) == value
