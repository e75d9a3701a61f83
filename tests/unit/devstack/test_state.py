"""The state file, the lock, and whose directory it is."""

from dataclasses import replace
from pathlib import Path

import pytest

from processor.core.errors import Misuse
from processor.devstack import down, status
from processor.devstack.errors import DevStackFailed
from processor.devstack.locks import hold
from processor.devstack.processes import Process
from processor.devstack.state import (
    LOCK_FILE,
    STATE_FILE,
    fresh_state,
    locked,
    read_state,
    write_state,
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """The state survives the file unchanged, with and without processes."""
    for state in (
        fresh_state(),
        replace(fresh_state(), kafka=Process(7, "b:1"), kafka_properties={"a.b": "c"}),
    ):
        write_state(tmp_path, state)
        assert read_state(tmp_path) == state


def test_the_state_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """It holds the password: mode 0600, also when it is replaced."""
    for _ in range(2):
        write_state(tmp_path, fresh_state())
        assert (tmp_path / STATE_FILE).stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [STATE_FILE]


def test_every_stack_has_a_password_of_its_own() -> None:
    """No default password exists."""
    passwords = {fresh_state().password for _ in range(20)}
    assert len(passwords) == 20
    assert all(len(p) >= 32 for p in passwords)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 99}', '{"version": 1}'])
def test_an_unreadable_state_file_is_named(tmp_path: Path, text: str) -> None:
    """The error names the file and the way out."""
    (tmp_path / STATE_FILE).write_text(text)
    with pytest.raises(DevStackFailed, match="toolcalls dev down") as caught:
        read_state(tmp_path)
    assert str(tmp_path / STATE_FILE) in str(caught.value)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    """`up` never settles in a folder with content, and leaves it as it is."""
    (tmp_path / "kafka").mkdir()
    with pytest.raises(Misuse, match="not empty"), locked(tmp_path):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["kafka"]


def test_down_leaves_a_directory_of_something_else_alone(tmp_path: Path) -> None:
    """Without our lock file there is nothing to end and nothing is removed."""
    (tmp_path / "kafka").mkdir()
    assert down(tmp_path) is False
    assert (tmp_path / "kafka").is_dir()


def test_down_removes_only_what_a_stack_makes(tmp_path: Path) -> None:
    """A file that somebody put there stays, and so does the folder."""
    with locked(tmp_path):
        write_state(tmp_path, fresh_state())
    (tmp_path / "kafka").mkdir()
    (tmp_path / "notes").write_text("mine")
    assert down(tmp_path) is True
    assert [p.name for p in tmp_path.iterdir()] == ["notes"]


def test_down_works_without_a_readable_state_file(tmp_path: Path) -> None:
    """A broken file must not keep a stack alive."""
    directory = tmp_path / "dev"
    with locked(directory):
        (directory / STATE_FILE).write_text("{")
    assert down(directory) is True
    assert not directory.exists()


def test_two_commands_do_not_work_at_once(tmp_path: Path) -> None:
    """The lock is exclusive, and free again afterwards."""
    path = tmp_path / LOCK_FILE
    with hold(path), pytest.raises(DevStackFailed, match="another command"), hold(path, 0):
        pass
    with hold(path, 0):
        pass


def test_a_lock_file_that_was_removed_is_not_held(tmp_path: Path) -> None:
    """After `down` removed the file, the next command locks a new one, not the deleted one."""
    path = tmp_path / LOCK_FILE
    with hold(path):
        path.unlink()
        with hold(path, 0):
            assert path.exists()


def test_status_of_nothing_is_stopped_and_makes_nothing(tmp_path: Path) -> None:
    """Asking changes nothing."""
    found = status(tmp_path / "dev")
    assert (found.kafka.state, found.postgres.state) == ("stopped", "stopped")
    assert found.endpoints is None
    assert not (tmp_path / "dev").exists()
