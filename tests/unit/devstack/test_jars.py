"""The broker's jars are the pinned ones or they are refused by name."""

import hashlib
import re
from pathlib import Path

import pytest

from processor.devstack.errors import JarRefused
from processor.devstack.jars import ENDPOINT, Pin, read_pins, verify


def make_pin(folder: Path, name: str, content: bytes) -> Pin:
    """A jar in the folder and its pin."""
    (folder / name).write_bytes(content)
    return Pin(hashlib.sha256(content).hexdigest(), name, f"org.example:{name[:-4]}:1")


def test_the_list_is_complete_and_well_formed() -> None:
    """Every pin has a full digest; the two jars that are asked for are among them, none twice."""
    pins = read_pins()
    assert all(re.fullmatch(r"[0-9a-f]{64}", pin.sha256) for pin in pins)
    assert len({pin.file for pin in pins}) == len(pins) > 40
    assert set(ENDPOINT.split("+")) <= {pin.coordinates for pin in pins}


def test_every_file_name_follows_from_its_coordinates() -> None:
    """`artifact-version.jar`, at the place a Maven folder gives it."""
    for pin in read_pins():
        group, artifact, version = pin.coordinates.split(":")
        assert pin.file == f"{artifact}-{version}.jar"
        assert pin.maven_path().parts[: group.count(".") + 1] == tuple(group.split("."))


def test_the_pinned_jars_are_accepted(tmp_path: Path) -> None:
    """Equal content passes; a jar that is not on the list does not matter."""
    pins = [make_pin(tmp_path, "a.jar", b"A"), make_pin(tmp_path, "b.jar", b"B")]
    (tmp_path / "c.jar").write_bytes(b"C")
    verify(tmp_path, pins)


@pytest.mark.parametrize("content", [b"B", b"", b"A" * 2])
def test_a_jar_that_differs_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    """The error names the file, its coordinates and what to do."""
    good, bad = make_pin(tmp_path, "good.jar", b"G"), make_pin(tmp_path, "bad.jar", b"A")
    (tmp_path / "bad.jar").write_bytes(content)
    with pytest.raises(JarRefused, match=r"bad\.jar is not the jar .*org\.example:bad:1.*delete"):
        verify(tmp_path, [good, bad])


def test_a_missing_jar_is_refused_by_name(tmp_path: Path) -> None:
    """Absence is as good as a wrong jar."""
    pin = make_pin(tmp_path, "gone.jar", b"A")
    (tmp_path / "gone.jar").unlink()
    with pytest.raises(JarRefused, match=r"gone\.jar is missing"):
        verify(tmp_path, [pin])
