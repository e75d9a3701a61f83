"""Captured streams are read as bytes; only an array is cut, and no number changes on the way."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.core.errors import Misuse
from processor.publisher.captures import read_capture

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def capture(folder: Path, data: bytes) -> list[bytes]:
    """What is read from a file with these bytes."""
    path = folder / "capture"
    path.write_bytes(data)
    return list(read_capture(path))


@given(
    chunks=st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=5), indent=st.booleans()
)
def test_an_array_becomes_one_line_for_each_element(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[dict[str, object]], *, indent: bool
) -> None:
    """Every element on its own line, whatever the layout of the file."""
    data = json.dumps(chunks, indent=2 if indent else None, ensure_ascii=False)
    lines = capture(tmp_path_factory.mktemp("array"), data.encode("utf-8", "surrogatepass"))
    assert [json.loads(line) for line in lines] == chunks
    assert all(line.count(b"\n") == 1 and b"\r" not in line for line in lines)


def test_numbers_keep_their_text(tmp_path: Path) -> None:
    """Nothing is rounded: the element's own characters are passed on."""
    element = b'{"n":1234567890123456789012345678901234567890,"f":1.10}'
    assert capture(tmp_path, b"[" + element + b"]") == [element + b"\n"]


@pytest.mark.parametrize("data", [b'data: {"a":1}\n\n', b'{"a":1}\n{"b":2}\n', b": ping\n\n"])
def test_everything_else_is_passed_on_byte_for_byte(tmp_path: Path, data: bytes) -> None:
    """The dialect reads the framing."""
    assert b"".join(capture(tmp_path, data)) == data


def test_an_empty_file_is_no_capture(tmp_path: Path) -> None:
    """It would publish nothing and look like a stream without calls."""
    with pytest.raises(Misuse, match="is empty"):
        capture(tmp_path, b"")


def test_a_byte_order_mark_before_an_array_is_no_part_of_it(tmp_path: Path) -> None:
    """Editors add it."""
    assert capture(tmp_path, b'\xef\xbb\xbf [{"a":1}]') == [b'{"a":1}\n']


@pytest.mark.parametrize(
    "data", [b"[", b"[1", b'[{"a":1} {"b":2}]', b'[{"sk-canary"}]', b"[] []", b"[\xff]", b"[,]"]
)
def test_a_broken_array_is_refused_by_file_and_place_only(tmp_path: Path, data: bytes) -> None:
    """The text says where, and quotes nothing."""
    with pytest.raises(Misuse, match="capture") as caught:
        capture(tmp_path, data)
    assert "sk-canary" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """With what the system says about it."""
    with pytest.raises(Misuse, match="no-such-file"):
        list(read_capture(tmp_path / "no-such-file"))
