"""The simulation finds what it is there for: every deliberate bug breaks a promise in few seeds."""

import pytest

from tests.simulation.bugs import BUGS, GoesOnAfterALateAnswer, TrustsANewMemberId
from tests.simulation.found import LATE_OFFSETS, SILENT_LOSS
from tests.simulation.run import simulate
from tests.simulation.schedule import draw

#: A bug that hides longer than this would not be found by a run of the tests.
SEEDS_MAX = 400
#: Too rare for so few seeds; a schedule of its own finds it.
RARE = frozenset({GoesOnAfterALateAnswer.__name__, TrustsANewMemberId.__name__})
#: How a promise is broken, by the first word of what the oracle says.
BROKEN = ("doubled:", "invented:", "lost:", "partition", "stuck:")


@pytest.mark.parametrize("name", sorted(set(BUGS) - RARE))
def test_a_deliberate_bug_breaks_a_promise_within_a_few_hundred_seeds(name: str) -> None:
    """Lost, doubled, invented, a wrong position, or a partition that stands still."""
    parts = BUGS[name]
    for seed in range(1, SEEDS_MAX + 1):
        failure = simulate(draw(seed), parts()).failure
        if failure is not None and failure.startswith(BROKEN):
            return
    raise AssertionError(f"{name} was not caught within {SEEDS_MAX} seeds")


def test_a_request_that_lands_in_the_next_transaction_moves_the_position_back() -> None:
    """Going on after a late answer doubles outputs; ending the process holds the promise."""
    failure = simulate(LATE_OFFSETS, GoesOnAfterALateAnswer()).failure
    assert failure is not None
    assert failure.startswith("doubled:")
    assert simulate(LATE_OFFSETS).failure is None


def test_a_member_that_was_thrown_out_in_a_callback_commits_what_is_another_ones() -> None:
    """The new member id gives it away: without a look at it, positions go back."""
    failure = simulate(SILENT_LOSS, TrustsANewMemberId()).failure
    assert failure is not None
    assert failure.startswith(BROKEN)
    assert simulate(SILENT_LOSS).failure is None
