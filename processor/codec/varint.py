"""Avro's long: zigzag, then seven bits a byte, lowest first (Avro 1.11, "Binary encoding")."""

from typing import Final

VARINT_BYTES_MAX: Final = 10
_LONG_BOUND: Final = 1 << 64
_LONG_MAX: Final = (1 << 63) - 1


class Malformed(ValueError):
    """The data is no datum of the schema; the text says what is wrong and where, no content."""


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """The long at `at`, and the place behind it. Raises: `Malformed`, `IndexError`."""
    byte = data[at]
    end = at + 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), end
    number, shift = byte & 127, 7
    while byte > 127:
        if end - at >= VARINT_BYTES_MAX:
            raise Malformed(f"the number at byte {at} is too long")
        byte = data[end]
        end += 1
        number |= (byte & 127) << shift
        shift += 7
    if number >= _LONG_BOUND:
        raise Malformed(f"the number at byte {at} has more than 64 bits")
    return (number >> 1) ^ -(number & 1), end


def write_long(number: int) -> bytes:
    """The bytes of a long, in the shortest form. Raises: `ValueError` beyond 64 bits."""
    if -64 <= number < 64:
        return _ONE_BYTE[number]
    if not -_LONG_MAX - 1 <= number <= _LONG_MAX:
        raise ValueError("a long has more than 64 bits")
    number = number << 1 if number >= 0 else (~number << 1) | 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


#: Indexed by the number itself; negative ones count from the end, as lists do.
_ONE_BYTE: Final = [bytes((n << 1,)) for n in range(64)] + [
    bytes(((~n << 1) | 1,)) for n in range(-64, 0)
]
