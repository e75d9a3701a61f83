"""Settings files, logs and places of the parts, without starting one."""

from dataclasses import replace
from pathlib import Path

import pytest

from processor.core.errors import Misuse
from processor.devstack.errors import AddressTaken, PackageMissing
from processor.devstack.kafka import Kafka, checked_properties
from processor.devstack.part import LOG_LINES, died, log_size, log_tail
from processor.devstack.places import (
    ServiceUser,
    cache_directory,
    copy_readable,
    default_directory,
    package_folder,
    postgres_home,
)
from processor.devstack.state import fresh_state

STRANGER = ServiceUser("stranger", 54_321, 54_321)


def test_a_callers_broker_setting_wins_over_ours(tmp_path: Path) -> None:
    """Every setting is on one line of its own; the caller's value replaces the default."""
    state = replace(fresh_state(), kafka_properties={"offsets.topic.num.partitions": "7"})
    (tmp_path / "kafka" / "data").mkdir(parents=True)
    assert Kafka(tmp_path, state, "").prepare() is None
    lines = (tmp_path / "kafka" / "server.properties").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    assert len(settings) == len(lines)
    assert settings["offsets.topic.num.partitions"] == "7"
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:{state.kafka_port}"


@pytest.mark.parametrize("properties", [{"": "1"}, {"a b": "1"}, {"a=b": "1"}, {"a": "1\nb=2"}])
def test_a_broker_setting_that_is_none_is_refused(properties: dict[str, str]) -> None:
    """A name or value that would become another line of the file."""
    with pytest.raises(Misuse, match="broker setting"):
        checked_properties(properties)


def test_the_end_of_a_log_belongs_to_the_last_start(tmp_path: Path) -> None:
    """Earlier lines are left out, and at most `LOG_LINES` are shown."""
    log = tmp_path / "log"
    log.write_text("old\n")
    offset = log_size(log)
    with log.open("a") as file:
        file.writelines(f"line {n}\n" for n in range(100))
    assert log_tail(log, offset).splitlines() == [f"line {n}" for n in range(100 - LOG_LINES, 100)]
    log.write_text("old\n")
    assert log_tail(log, offset) == "(the log is empty)"
    assert log_tail(tmp_path / "none") == "(no log)"


def test_a_taken_port_is_told_from_other_deaths(tmp_path: Path) -> None:
    """Only that one is worth another try with another port."""
    part = Kafka(tmp_path, fresh_state(), "")
    part.log.write_text("java.net.BindException: Address already in use\n")
    assert isinstance(died(part, 0), AddressTaken)
    part.log.write_text("OutOfMemoryError\n")
    error = died(part, 0)
    assert not isinstance(error, AddressTaken)
    assert str(part.log) in str(error)
    assert "OutOfMemoryError" in str(error)


def test_the_environment_names_the_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own variable first, then the desktop's, then the home."""
    monkeypatch.setenv("HOME", "/home-of-nobody")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("TOOLCALLS_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert str(default_directory()) == "/home-of-nobody/.local/state/toolcall-processor/dev"
    assert str(cache_directory()) == "/caches/toolcall-processor"
    monkeypatch.setenv("TOOLCALLS_CACHE_DIR", "/elsewhere")
    monkeypatch.setenv("TOOLCALLS_DEV_DIR", "/data")
    assert (str(cache_directory()), str(default_directory())) == ("/elsewhere", "/data")


def test_postgres_lives_where_its_user_can_go(tmp_path: Path) -> None:
    """In the stack's folder; for root's service user elsewhere when a folder above is closed."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert postgres_home(closed / "dev", None) == closed / "dev" / "postgres"
    away = postgres_home(closed / "dev", STRANGER)
    assert not away.is_relative_to(tmp_path)
    assert away != postgres_home(closed / "dev2", STRANGER)
    assert postgres_home(Path("/"), STRANGER) == Path("/postgres")


def test_a_copy_for_another_user_can_be_read_and_run_by_all(tmp_path: Path) -> None:
    """Whatever the modes of the original; and it is there completely or not at all."""
    source = tmp_path / "source"
    (source / "bin").mkdir(parents=True, mode=0o700)
    for name, mode in (("tool", 0o700), ("data", 0o600)):
        (source / "bin" / name).write_text(name)
        (source / "bin" / name).chmod(mode)
    (source / "link").symlink_to("bin/data")
    copy_readable([source], tmp_path / "copy")
    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "copy").rglob("*")}
    assert modes.pop("source") == 0o755
    assert modes == {"bin": 0o755, "tool": 0o755, "data": 0o644, "link": 0o644}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "source"]


def test_a_missing_package_is_named_with_its_remedy() -> None:
    """The dev stack is an extra; without it the error says how to get it."""
    with pytest.raises(PackageMissing, match=r"no_such_package.*\[devstack\]"):
        package_folder("no_such_package")
