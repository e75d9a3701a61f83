"""Makes a failing schedule short: leaves out what it does not need, and simplifies what is left.

Rules:
    Halves first, then single steps, until nothing more can go (delta debugging, Zeller 1999).
    A smaller schedule counts when it fails at all: a shorter road to another bug is as welcome.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.schedule import FaultStep, Schedule, Step, WriteStep

Fails = Callable[[Schedule], bool]


def shrink(schedule: Schedule, fails: Fails, *, runs_max: int = 2_000) -> Schedule:
    """The shortest failing schedule found with at most `runs_max` runs."""
    left = runs_max

    def tried(candidate: Schedule) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(candidate)

    changed = True
    while changed and left > 0:
        changed = False
        for candidate in _calmer(schedule):
            if tried(candidate):
                schedule, changed = candidate, True
                break
        size = max(1, len(schedule.steps) // 2)
        while size and left > 0:
            schedule, dropped = _drop(schedule, size, tried)
            changed = changed or dropped
            size //= 2
        for index, step in enumerate(schedule.steps):
            for smaller in _smaller(step):
                steps = (*schedule.steps[:index], smaller, *schedule.steps[index + 1 :])
                candidate = replace(schedule, steps=steps)
                if tried(candidate):
                    schedule, changed = candidate, True
                    break
    return schedule


def _drop(schedule: Schedule, size: int, fails: Fails) -> tuple[Schedule, bool]:
    """Leave out `size` steps at a time, from the last ones on."""
    dropped = False
    at = len(schedule.steps) - size
    while at >= 0:
        candidate = schedule.without(set(range(at, at + size)))
        if fails(candidate):
            schedule, dropped = candidate, True
        at -= size
    return schedule, dropped


def _calmer(schedule: Schedule) -> Iterator[Schedule]:
    if schedule.turns:
        yield replace(schedule, turns=0)
    if schedule.partitions > 1:
        yield replace(schedule, partitions=schedule.partitions - 1)
    if any(schedule.skew_ms.values()):
        yield replace(schedule, skew_ms=dict.fromkeys(schedule.skew_ms, 0))


def _smaller(step: Step) -> Iterator[Step]:
    if isinstance(step, FaultStep):
        if step.times > 1:
            yield replace(step, times=1)
        if step.nth > 1:
            yield replace(step, nth=1)
            yield replace(step, nth=step.nth // 2)
            yield replace(step, nth=step.nth - 1)
        if step.fault.grace:
            yield replace(step, fault=replace(step.fault, grace=0))
    elif isinstance(step, WriteStep):
        if step.ending is not None:
            yield replace(step, ending=None)
        if len(step.lines) > 1:
            half = len(step.lines) // 2
            yield replace(step, lines=step.lines[:half])
            yield replace(step, lines=step.lines[half:])
            for at in range(len(step.lines)):
                yield replace(step, lines=step.lines[:at] + step.lines[at + 1 :])
    elif step.kind != "start" and step.at_ms:
        yield replace(step, at_ms=step.at_ms // 2)
