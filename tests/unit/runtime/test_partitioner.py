"""The partition of a key: the same number as every Kafka client's."""

import pytest

from processor.runtime.partitioner import murmur2, partition_of

#: Of the Kafka clients' own tests (UtilsTest.testMurmur2), as signed integers.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("data", "signed"), KNOWN.items())
def test_murmur2_is_that_of_the_kafka_clients(data: bytes, signed: int) -> None:
    """Bit by bit, whatever the length leaves over."""
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_a_partition_is_never_negative() -> None:
    """The sign bit is dropped, as `Utils.toPositive` does."""
    assert partition_of(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
