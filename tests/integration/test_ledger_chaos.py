"""A short part of `make chaos`: killed and frozen executors over the same keys."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.faults]


def test_killed_and_frozen_executors_keep_the_promise_of_every_class(
    database: str, session_seed: int
) -> None:
    """Unsure effects at most once, keyed and transactional ones once, every call understood."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.integration.ledger_chaos", "--database-url", database),
            *("--keys", "12", "--processes", "12", "--seed", str(session_seed)),
            *("--limit-s", "90"),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
