"""The index of expected outputs: what must exist, by the place that decided it."""

from pathlib import Path

from processor.audit.verify_index import ExpectedIndex, Output, Place, digest_of


def output(partition: int, offset: int, *, unsure: bool = False, retired: bool = False) -> Output:
    """An expected completed call."""
    return Output(
        Place(partition, offset), 0, digest_of(b"k", b"v", []), is_unsure=unsure, is_retired=retired
    )


def test_an_output_is_found_by_its_place_only() -> None:
    """The largest partition and offset of a cluster fit."""
    far = output(99_999, (1 << 44) - 1, unsure=True, retired=True)
    with ExpectedIndex() as index:
        index.add([output(0, 7), far])
        assert index.find(Place(0, 7)) == output(0, 7)
        assert index.find(far.place) == far
        assert index.find(Place(1, 7)) is None


def test_what_nobody_found_is_listed_by_place() -> None:
    """And nothing else."""
    with ExpectedIndex() as index:
        index.add([output(1, 2), output(0, 9), output(1, 1)])
        index.mark_seen(Place(1, 2))
        assert [o.place for o in index.unseen()] == [Place(0, 9), Place(1, 1)]
        found = index.find(Place(1, 2))
        assert found is not None
        assert found.is_seen


def test_the_file_goes_with_the_index(tmp_path: Path) -> None:
    """Nothing is left behind, also after an error."""
    with ExpectedIndex(tmp_path) as index:
        index.add([output(0, 1)])
        assert index.bytes_on_disk() > 0
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_digest_tells_key_value_and_headers_apart() -> None:
    """Moving a byte from one part to the next, or the order of headers, changes it."""
    digests = {
        digest_of(b"ab", b"c", []),
        digest_of(b"a", b"bc", []),
        digest_of(None, b"c", []),
        digest_of(b"", b"c", []),
        digest_of(b"ab", None, []),
        digest_of(b"ab", b"c", [("x", b"1"), ("y", b"2")]),
        digest_of(b"ab", b"c", [("y", b"2"), ("x", b"1")]),
        digest_of(b"ab", b"c", [("x1", b""), ("y", b"2")]),
    }
    assert len(digests) == 8
    with_headers, without = digest_of(b"k", b"v", [("x", b"1")]), digest_of(b"k", b"v", [])
    assert with_headers[:16] == without[:16]
