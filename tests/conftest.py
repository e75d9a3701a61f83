"""Shared fixtures: the real Kafka and Postgres, started only when a test asks for them."""

import itertools
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from processor.devstack import up

# No test asserts a time: on a busy machine an example may take any.
settings.register_profile(
    "no_deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("no_deadline")

SESSION_TOKEN = secrets.token_hex(3)
REAL_PARTS = frozenset({"kafka_bootstrap", "database_url", "database"})
STOP_TIMEOUT_S = 60.0
GUARD = """
import sys
from pathlib import Path
from processor.devstack import down
sys.stdin.read()
down(Path(sys.argv[1]))
"""
KEPT_VARIABLES = frozenset({"TOOLCALLS_CACHE_DIR"})
_EXTERNAL = {
    "kafka": os.environ.get("TOOLCALLS_KAFKA_BOOTSTRAP") or None,
    "postgres": os.environ.get("TOOLCALLS_DATABASE_URL") or None,
}
_numbers = itertools.count(1)


def pytest_configure() -> None:
    """Take every setting of the caller's shell away, so a test sees only what it sets itself."""
    for name in [n for n in os.environ if n.startswith("TOOLCALLS_")]:
        if name not in KEPT_VARIABLES:
            del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that uses a real part is an integration test, marked or not."""
    for item in items:
        if REAL_PARTS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the seed of the session, also when quiet."""
    seed = config.getoption("randomly_seed", None)
    if seed is None:
        return
    terminalreporter.write_line(f"session seed: {seed} (repeat with --randomly-seed={seed})")


@pytest.fixture(scope="session")
def session_seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run, printed at its end; for tests that draw their own data."""
    return int(str(pytestconfig.getoption("randomly_seed")))


@pytest.fixture(scope="session")
def stack_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of the run's dev stack; nothing of it outlives the run, even a killed one.

    A guard process waits for the end of a pipe that only this process holds, then ends the stack.
    """
    directory = tmp_path_factory.mktemp("stack") / "dev"
    with subprocess.Popen(
        [sys.executable, "-c", GUARD, str(directory)],
        stdin=subprocess.PIPE,
        start_new_session=True,
        cwd=Path(__file__).parents[1],
    ) as guard:
        yield directory
        assert guard.stdin
        guard.stdin.close()
        assert guard.wait(STOP_TIMEOUT_S) == 0


@pytest.fixture(scope="session")
def kafka_bootstrap(stack_directory: Path) -> str:
    """The address of a real broker: `$TOOLCALLS_KAFKA_BOOTSTRAP`, else one of this run."""
    external = _EXTERNAL["kafka"]
    return external or up(stack_directory, only="kafka").kafka_bootstrap


@pytest.fixture(scope="session")
def database_url(stack_directory: Path) -> str:
    """The address of a real Postgres: `$TOOLCALLS_DATABASE_URL`, else one of this run."""
    external = _EXTERNAL["postgres"]
    return external or up(stack_directory, only="postgres").database_url


@pytest.fixture
def database(database_url: str) -> Iterator[str]:
    """The address of an empty database of this test alone."""
    name = f"test_{SESSION_TOKEN}_{next(_numbers)}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    try:
        yield urlunsplit(urlsplit(database_url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> str:
    """A prefix for the topics, groups and transactional ids of this test alone."""
    test = re.sub(r"[^a-z0-9]+", "-", str(request.node.name).lower()).strip("-")[:60]
    return f"{SESSION_TOKEN}-{next(_numbers)}-{test}-"
