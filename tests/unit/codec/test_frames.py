"""The first bytes of a value decide how it is read."""

import pytest

from processor.codec.frames import (
    FrameError,
    Json,
    Registered,
    SingleObject,
    read_frame,
    registry_frame,
    single_object_frame,
)

FINGERPRINT = bytes(range(8))


def test_each_frame_is_told_by_its_first_bytes() -> None:
    """Single object, registry, JSON."""
    assert read_frame(single_object_frame(FINGERPRINT) + b"x") == (SingleObject(FINGERPRINT), 10)
    assert read_frame(b"\x00\x00\x00\x01\x02x") == (Registered(258), 5)
    assert read_frame(b'{"seq":1}') == (Json(), 0)


def test_the_registry_frame_has_a_big_endian_id() -> None:
    """Magic byte 0, then 32 bits."""
    assert registry_frame(258) == b"\x00\x00\x00\x01\x02"


@pytest.mark.parametrize("value", [b"", b"\x00\x01\x02", b"\xc3\x01\x00", b"\xc3", b" {}", b"[]"])
def test_other_bytes_are_no_frame(value: bytes) -> None:
    """Nothing is guessed, and nothing of the value is quoted."""
    with pytest.raises(FrameError, match=f"the {len(value)} bytes"):
        read_frame(value)


@pytest.mark.parametrize("schema_id", [-1, 2**31])
def test_an_id_outside_of_its_range_is_not_written(schema_id: int) -> None:
    """Ids of a registry are positive 32-bit numbers."""
    with pytest.raises(FrameError):
        registry_frame(schema_id)
