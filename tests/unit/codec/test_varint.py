"""Avro's long: known encodings, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.codec.varint import Malformed, read_long, write_long

LONG_MAX = 2**63 - 1
#: The table of the Avro 1.11 specification, and the ends of the range.
KNOWN = {
    0: "00",
    -1: "01",
    1: "02",
    -2: "03",
    2: "04",
    -64: "7f",
    64: "8001",
    LONG_MAX: "feffffffffffffffff01",
    -LONG_MAX - 1: "ffffffffffffffffff01",
}


@pytest.mark.parametrize(("number", "encoded"), KNOWN.items())
def test_longs_have_the_encoding_of_the_specification(number: int, encoded: str) -> None:
    """Both ways, for the specification's examples."""
    assert write_long(number).hex() == encoded
    assert read_long(bytes.fromhex(encoded), 0) == (number, len(encoded) // 2)


@given(st.integers(-LONG_MAX - 1, LONG_MAX), st.binary(max_size=5), st.binary(max_size=5))
def test_every_long_is_read_where_it_stands(number: int, before: bytes, after: bytes) -> None:
    """The place behind the number is exact, whatever stands around it."""
    encoded = write_long(number)
    end = len(before) + len(encoded)
    assert read_long(before + encoded + after, len(before)) == (number, end)


@pytest.mark.parametrize("number", [LONG_MAX + 1, -LONG_MAX - 2])
def test_more_than_64_bits_are_not_written(number: int) -> None:
    """A number that no reader takes is refused before it is written."""
    with pytest.raises(ValueError, match="64 bits"):
        write_long(number)


@pytest.mark.parametrize("encoded", ["ff" * 11, "80" * 10 + "00", "ff" * 9 + "02", "80" * 9 + "7f"])
def test_more_than_64_bits_are_not_read(encoded: str) -> None:
    """Too many bytes, or too large a last one."""
    with pytest.raises(Malformed):
        read_long(bytes.fromhex(encoded), 0)
