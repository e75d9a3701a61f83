"""What `toolcalls execute` tells the executor, without starting one."""

import secrets
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from processor import app
from processor.cli.main import build_app
from processor.core.errors import Misuse
from processor.executor import host

TOOLS = '''
from processor.executor import tool

@tool(effect_class="read_only")
def lookup(order: str) -> str:
    """Say the order's state."""
    return "shipped"
'''


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[host.HostSettings]:
    """The settings of every executor that would have been started; no signal is touched."""
    found: list[host.HostSettings] = []

    def take(settings: host.HostSettings, *others: object, **parts: object) -> None:
        del others, parts
        found.append(settings)

    def leave_the_signals(stop: app.StopRequest) -> None:
        del stop

    monkeypatch.setattr(host, "run_executor", take)
    monkeypatch.setattr(app.StopRequest, "install", leave_the_signals)
    return found


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """A file with one decorated function."""
    path = tmp_path / "order_tools.py"
    path.write_text(TOOLS)
    return str(path)


def execute(tools: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run the verb; its status and what it said."""
    result = CliRunner().invoke(
        build_app(),
        ["execute", "--tools", tools, "--kafka-bootstrap", "127.0.0.1:1", *arguments],
        env={"TOOLCALLS_DATABASE_URL": "postgresql://127.0.0.1:1/none", **environment},
    )
    return result.exit_code, result.output


def margins(started: list[host.HostSettings]) -> list[float]:
    """The lease margin of each start."""
    return [settings.runner.lease_margin_s for settings in started]


def test_the_lease_margin_comes_from_option_environment_or_default(
    started: list[host.HostSettings], tools: str
) -> None:
    """Ten seconds unless told; an option wins over the variable."""
    assert execute(tools)[0] == 0
    assert execute(tools, TOOLCALLS_LEASE_MARGIN_S="2.5")[0] == 0
    assert execute(tools, "--lease-margin-s", "0.5", TOOLCALLS_LEASE_MARGIN_S="2.5")[0] == 0
    assert margins(started) == [10.0, 2.5, 0.5]


@pytest.mark.parametrize("wrong", ["0.4", "0", "-1", "86401", "inf", "nan", "soon"])
def test_a_lease_margin_outside_its_range_is_refused(
    started: list[host.HostSettings], tools: str, wrong: str
) -> None:
    """Nothing starts; what is no number of seconds is refused like what is too small."""
    assert execute(tools, "--lease-margin-s", wrong)[0] != 0
    assert started == []


def test_an_empty_slot_is_refused(started: list[host.HostSettings], tools: str) -> None:
    """It would make every process the same member, or none a static one."""
    result = CliRunner().invoke(
        build_app(),
        ["execute", "--tools", tools, "--kafka-bootstrap", "h:1", "--slot", ""],
        env={"TOOLCALLS_DATABASE_URL": "postgresql://127.0.0.1:1/none"},
    )
    assert isinstance(result.exception, Misuse)
    assert "--slot is empty" in str(result.exception)
    assert started == []


def test_a_module_in_the_current_directory_is_found_or_its_file_is_proposed(
    started: list[host.HostSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `python -m` would find it."""
    name = f"tools_{secrets.token_hex(4)}"
    (tmp_path / f"{name}.py").write_text(TOOLS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert execute(name)[0] == 0
    assert len(started) == 1
    result = CliRunner().invoke(
        build_app(),
        ["execute", "--tools", f"{name}_not", "--kafka-bootstrap", "h:1"],
        env={"TOOLCALLS_DATABASE_URL": "postgresql://127.0.0.1:1/none"},
    )
    assert f"--tools {name}_not.py" in str(result.exception)


def test_the_drain_time_comes_from_its_option(started: list[host.HostSettings], tools: str) -> None:
    """Thirty seconds unless told."""
    assert execute(tools)[0] == 0
    assert execute(tools, "--drain-s", "1.5")[0] == 0
    assert [settings.worker.drain_s for settings in started] == [30.0, 1.5]
