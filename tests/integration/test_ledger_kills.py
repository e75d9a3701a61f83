"""A short part of `make kills`: one executor killed at every point for every effect class."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.executor_kills import CLASSES, POINTS

pytestmark = [pytest.mark.integration, pytest.mark.faults]


def test_the_effects_after_a_kill_are_those_that_the_class_promises(database: str) -> None:
    """Counted in a table that the ledger does not know; a doubt is a promise of its own."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.integration.executor_kills"),
            *("--database-url", database, "--kills", str(len(POINTS))),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" yes\n") == len(CLASSES) * len(POINTS)
