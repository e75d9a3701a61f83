"""Runs many seeds, and makes a failing one short."""

from collections import Counter
from collections.abc import Callable, Iterable

from processor.core._record import record
from tests.simulation.assembler import Parts
from tests.simulation.run import simulate
from tests.simulation.schedule import Schedule, draw
from tests.simulation.shrink import shrink

SHRINK_RUNS_MAX = 600


@record
class Failing:
    """A schedule that fails, and with what."""

    schedule: Schedule
    failure: str

    def __str__(self) -> str:
        """For people: what went wrong, the steps that it takes, how to see it again."""
        return f"{self.failure}\n{self.schedule}\nagain: make simulate SEED={self.schedule.seed}"


class Seen:
    """What a search has come upon so far."""

    def __init__(self) -> None:
        self.runs = 0
        self.turns = 0
        self.simulated_ms = 0
        self.fired: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        self.failing: Failing | None = None


def search(
    seeds: Iterable[int],
    *,
    parts: Callable[[], Parts] = Parts,
    going_on: Callable[[], bool] = lambda: True,
) -> Seen:
    """Run seed after seed up to the first that fails, which is made short."""
    seen = Seen()
    for seed in seeds:
        if not going_on():
            break
        schedule = draw(seed)
        result = simulate(schedule, parts())
        seen.runs += 1
        seen.turns += result.turns
        seen.simulated_ms += result.simulated_ms
        seen.fired += result.fired
        seen.endings += result.endings
        if result.failure is not None:
            seen.failing = shortest(schedule, result.failure, parts)
            break
    return seen


def shortest(schedule: Schedule, failure: str, parts: Callable[[], Parts] = Parts) -> Failing:
    """The schedule made short, failing in the same way."""
    kind = failure.split(" ", 1)[0]

    def fails(candidate: Schedule) -> bool:
        found = simulate(candidate, parts()).failure
        return found is not None and found.split(" ", 1)[0] == kind

    short = shrink(schedule, fails, runs_max=SHRINK_RUNS_MAX)
    return Failing(short, simulate(short, parts()).failure or failure)
