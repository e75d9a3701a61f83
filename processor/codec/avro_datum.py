"""Avro binary data, strictly: schemas compiled into plain functions that read and write one datum.

Rules (Avro 1.11 specification, "Binary encoding"):
    The data is exactly one datum: it neither ends early nor goes on.
    Every length lies inside the data before anything is taken; every index of an enum or a union
    exists; numbers fit their type; texts are UTF-8.
    A schema that could keep a reader busy on few bytes (recursion, items without size) is refused.

The Avro library takes a negative index for one from the end and ignores what follows the datum;
this file does neither, and costs half as much for records of our size. Float and double are only
passed over: no record of ours has one, and a foreign schema is resolved by the library.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from processor.codec.varint import Malformed, read_long, write_long

#: (data, place) -> the value, and the place behind it. Raises `Malformed`, or `IndexError` past
#: the end, or `UnicodeDecodeError`.
Read = Callable[[bytes, int], tuple[object, int]]
#: Value -> its bytes. Raises `ValueError` or `KeyError` for what the schema cannot carry.
Write = Callable[[object], bytes]

#: Entries of all kinds in one array or map; ours have a few.
ITEMS_MAX: Final = 65_536
_INT_MIN: Final = -(1 << 31)
_INT_MAX: Final = (1 << 31) - 1


class SchemaRefused(ValueError):
    """The schema is none that this reader works with; the text says why."""


class Type(NamedTuple):
    """A compiled schema; `least_bytes` is the size of its smallest datum."""

    read: Read
    write: Write
    least_bytes: int
    #: Full name when the type is a record.
    record_name: str | None = None


def read_datum(read: Read, data: bytes, at: int) -> object:
    """The one datum that fills `data` from `at` to its end. Raises: `Malformed`."""
    try:
        value, end = read(data, at)
    except IndexError as e:
        raise Malformed(f"the data ends early, after {len(data)} bytes") from e
    except UnicodeDecodeError as e:
        raise Malformed("a text is not UTF-8") from e
    if end != len(data):
        raise Malformed(f"the data goes on after its end: {len(data) - end} bytes too many")
    return value


def compile_schema(schema: object) -> Type:
    """Compile a schema with full names. Raises: `SchemaRefused`."""
    return _Compiler().compile(schema)


class _Compiler:
    """One pass over a schema; `None` stands for a name whose definition is not yet closed."""

    def __init__(self) -> None:
        self._named: dict[str, Type | None] = {}

    def compile(self, schema: object) -> Type:
        if isinstance(schema, str):
            return self._by_name(schema)
        if isinstance(schema, list):
            return _union([self.compile(branch) for branch in cast("list[object]", schema)])
        if not isinstance(schema, dict):
            raise SchemaRefused("a type is neither a name, a list nor an object")
        parts = cast("dict[str, object]", schema)
        kind = parts.get("type")
        match kind:
            case "record" | "enum" | "fixed":
                name = str(parts.get("name"))
                self._named[name] = None
                made = self._named[name] = self._define(name, str(kind), parts)
                return made
            case "array":
                return self._array(parts.get("items"))
            case "map":
                return _map(self.compile(parts.get("values")))
            case _:
                return self.compile(kind)

    def _by_name(self, name: str) -> Type:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        found = self._named.get(name)
        if found is None:
            raise SchemaRefused(
                "a type refers to itself" if name in self._named else "a type has no definition"
            )
        return found

    def _define(self, name: str, kind: str, schema: Mapping[str, object]) -> Type:
        match kind:
            case "record":
                fields = cast("list[dict[str, object]]", schema["fields"])
                return _record(
                    name, [(str(field["name"]), self.compile(field["type"])) for field in fields]
                )
            case "enum":
                return _enum(tuple(cast("list[str]", schema["symbols"])))
            case _:
                return _fixed(cast("int", schema["size"]))

    def _array(self, items: object) -> Type:
        item = self.compile(items)
        if item.least_bytes == 0:
            raise SchemaRefused("an array has items without size")
        return _array(item)


def _read_null(data: bytes, at: int) -> tuple[object, int]:
    del data
    return None, at


def _write_null(value: object) -> bytes:
    if value is not None:
        raise ValueError("null expected")
    return b""


def _read_boolean(data: bytes, at: int) -> tuple[object, int]:
    if data[at] > 1:
        raise Malformed(f"the boolean at byte {at} is neither 0 nor 1")
    return data[at] == 1, at + 1


def _write_boolean(value: object) -> bytes:
    return b"\x01" if value else b"\x00"


def _read_int(data: bytes, at: int) -> tuple[object, int]:
    number, end = read_long(data, at)
    if not _INT_MIN <= number <= _INT_MAX:
        raise Malformed(f"the int at byte {at} has more than 32 bits")
    return number, end


def _write_int(value: object) -> bytes:
    number = cast("int", value)
    if not _INT_MIN <= number <= _INT_MAX:
        raise ValueError("an int has more than 32 bits")
    return write_long(number)


def _write_long(value: object) -> bytes:
    return write_long(cast("int", value))


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size = data[at]
    if size < 128 and not size & 1:
        start = at + 1
        end = start + (size >> 1)
    else:
        size, start = read_long(data, at)
        if size < 0:
            raise Malformed(f"the length at byte {at} is negative")
        end = start + size
    if end > len(data):
        raise Malformed(f"the length at byte {at} reaches beyond the data")
    return data[start:end], end


def _write_bytes(value: object) -> bytes:
    data = cast("bytes", value)
    return write_long(len(data)) + data


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    text, end = _read_bytes(data, at)
    return text.decode(), end


def _write_text(value: object) -> bytes:
    data = cast("str", value).encode()
    return write_long(len(data)) + data


def _fixed(size: int) -> Type:
    def read(data: bytes, at: int) -> tuple[object, int]:
        end = at + size
        if end > len(data):
            raise Malformed(f"{size} bytes expected at byte {at}, the data ends before")
        return data[at:end], end

    def write(value: object) -> bytes:
        data = cast("bytes", value)
        if len(data) != size:
            raise ValueError(f"{size} bytes expected")
        return data

    return Type(read, write, size)


_PRIMITIVES: Final[dict[str, Type]] = {
    "null": Type(_read_null, _write_null, 0),
    "boolean": Type(_read_boolean, _write_boolean, 1),
    "int": Type(_read_int, _write_int, 1),
    "long": Type(read_long, _write_long, 1),
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": Type(_read_bytes, _write_bytes, 1),
    "string": Type(_read_text, _write_text, 1),
}


def _enum(symbols: tuple[str, ...]) -> Type:
    encoded = {symbol: write_long(index) for index, symbol in enumerate(symbols)}

    def read(data: bytes, at: int) -> tuple[object, int]:
        index, end = read_long(data, at)
        if not 0 <= index < len(symbols):
            raise Malformed(f"the enum at byte {at} has no such symbol")
        return symbols[index], end

    def write(value: object) -> bytes:
        return encoded[cast("str", value)]

    return Type(read, write, 1)


def _record(name: str, fields: Sequence[tuple[str, Type]]) -> Type:
    reads = tuple((name, field.read) for name, field in fields)
    writes = tuple((name, field.write) for name, field in fields)

    def read(data: bytes, at: int) -> tuple[object, int]:
        values: dict[str, object] = {}
        for field, part in reads:
            values[field], at = part(data, at)
        return values, at

    def write(value: object) -> bytes:
        values = cast("dict[str, object]", value)
        return b"".join([part(values[field]) for field, part in writes])

    return Type(read, write, sum(field.least_bytes for _, field in fields), name)


def _union(branches: Sequence[Type]) -> Type:
    if len(branches) == 2 and branches[0] is _PRIMITIVES["null"]:
        return _nullable(branches[1])
    names = [branch.record_name for branch in branches]
    reads = [branch.read for branch in branches]
    by_name = {
        name: (write_long(index), branches[index].write)
        for index, name in enumerate(names)
        if name is not None
    }

    def read(data: bytes, at: int) -> tuple[object, int]:
        index, end = read_long(data, at)
        if not 0 <= index < len(reads):
            raise Malformed(f"the union at byte {at} has no such branch")
        value, end = reads[index](data, end)
        name = names[index]
        return (value if name is None else (name, value)), end

    def write(value: object) -> bytes:
        name, fields = cast("tuple[str, object]", value)
        index, part = by_name[name]
        return index + part(fields)

    return Type(read, write, 1)


def _nullable(branch: Type) -> Type:
    part, put = branch.read, branch.write

    def read(data: bytes, at: int) -> tuple[object, int]:
        index, end = read_long(data, at)
        if index == 0:
            return None, end
        if index != 1:
            raise Malformed(f"the union at byte {at} has no such branch")
        return part(data, end)

    def write(value: object) -> bytes:
        return b"\x00" if value is None else b"\x02" + put(value)

    return Type(read, write, 1)


def _read_block(data: bytes, at: int, read_count: int) -> tuple[int, int]:
    """Number of items of the block at `at`, and where they begin; 0 ends the list."""
    count, end = read_long(data, at)
    if count < 0:
        # A negative count is followed by the size of the block in bytes.
        count = -count
        size, end = read_long(data, end)
        if size < 0 or end + size > len(data):
            raise Malformed(f"the block at byte {at} reaches beyond the data")
    if read_count + count > ITEMS_MAX:
        raise Malformed(f"the block at byte {at} leads to more than {ITEMS_MAX} items")
    return count, end


def _array(item: Type) -> Type:
    def read(data: bytes, at: int) -> tuple[object, int]:
        items: list[object] = []
        while True:
            count, at = _read_block(data, at, len(items))
            if count == 0:
                return items, at
            for _ in range(count):
                value, at = item.read(data, at)
                items.append(value)

    def write(value: object) -> bytes:
        items = cast("Sequence[object]", value)
        if not items:
            return b"\x00"
        return write_long(len(items)) + b"".join(map(item.write, items)) + b"\x00"

    return Type(read, write, 1)


def _map(item: Type) -> Type:
    def read(data: bytes, at: int) -> tuple[object, int]:
        items: dict[str, object] = {}
        items_count = 0
        while True:
            count, at = _read_block(data, at, items_count)
            if count == 0:
                return items, at
            items_count += count
            for _ in range(count):
                name, at = _read_text(data, at)
                items[name], at = item.read(data, at)

    def write(value: object) -> bytes:
        items = cast("Mapping[str, object]", value)
        if not items:
            return b"\x00"
        parts = [_write_text(name) + item.write(entry) for name, entry in items.items()]
        return write_long(len(items)) + b"".join(parts) + b"\x00"

    return Type(read, write, 1)
