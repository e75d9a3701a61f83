"""The whole assembler in memory: whatever goes wrong, its outputs equal a pure fold of the topic."""

import time

import pytest

from processor.testing import Fault
from tests.simulation.bugs import SpeaksWhileItRestores
from tests.simulation.found import FOUND
from tests.simulation.run import Result, simulate
from tests.simulation.schedule import FaultStep, Schedule, draw
from tests.simulation.search import search

FIRST_SEEDS = range(1, 151)
FRESH_S = 10.0
FRESH_RUNS_MAX = 2_000


@pytest.mark.parametrize("schedule", FOUND, ids=lambda schedule: str(schedule.seed))
def test_what_once_broke_a_promise_holds_it(schedule: Schedule) -> None:
    """A schedule that has found a bug is run for ever."""
    assert simulate(schedule).failure is None


def test_the_first_seeds_hold_every_promise_and_meet_every_fault_and_ending() -> None:
    """Nothing lost, doubled, invented or left open; a plan that nothing comes of proves nothing."""
    seen = search(FIRST_SEEDS)
    assert seen.failing is None, str(seen.failing)
    assert seen.runs == len(FIRST_SEEDS)
    assert set(seen.fired) == {
        "cut",
        "fail_after",
        "fail_before",
        "fail_in_flight",
        "freeze_after",
        "freeze_before",
        "hang",
        "kill_after",
        "kill_before",
        "kill_in_flight",
        "refuse",
        "slow",
    }
    assert set(seen.endings) >= {
        "commit_refused",
        "commit_unknown",
        "killed",
        "slot_fenced",
        "stopped",
    }


def test_fresh_seeds_hold_every_promise_too(session_seed: int) -> None:
    """As many as a few seconds allow, other ones in every session."""
    until_s = time.monotonic() + FRESH_S
    first = (session_seed + 1) * FRESH_RUNS_MAX
    seen = search(range(first, first + FRESH_RUNS_MAX), going_on=lambda: time.monotonic() < until_s)
    assert seen.failing is None, str(seen.failing)
    assert seen.runs > 0


def test_a_schedule_does_the_same_twice() -> None:
    """Turns, faults and time come from the schedule alone, so a seed can be given to somebody."""

    def told(result: Result) -> tuple[object, ...]:
        return result.failure, result.fired, result.endings, result.turns, result.simulated_ms

    for seed in range(1, 20):
        assert told(simulate(draw(seed))) == told(simulate(draw(seed)))


def test_a_failing_schedule_is_made_short_and_can_be_read() -> None:
    """What a bug does not need is left out, and the steps are numbered lines."""
    failing = search(range(1, 200), parts=SpeaksWhileItRestores).failing
    assert failing is not None
    assert len(failing.schedule.steps) <= 4
    text = str(failing)
    assert "  1. " in text
    assert f"make simulate SEED={failing.schedule.seed}" in text


def test_a_step_says_what_happens_to_whom_and_when() -> None:
    """One line for people."""
    step = FaultStep("1", "commit_transaction", 2, Fault("freeze_before", 14_000, 3), times=3)
    assert str(step) == (
        "slot 1: freeze_before at commit_transaction number 2 and the 2 after it, for 14000 ms,"
        " its client's own thread 3 turns late"
    )
