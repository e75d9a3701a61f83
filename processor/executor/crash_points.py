"""Named places at which a test may kill a process of this room; in production they do nothing."""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Final

from processor.core.errors import Misuse

POINTS: Final = ("after_claim", "after_begin", "after_effect", "after_finish", "before_commit")
RELAY_POINTS: Final = ("after_take", "after_publish", "after_mark", "after_marked")
METER_POINTS: Final = ("before_record", "after_record", "after_dead_letters")
_ALL: Final = POINTS + RELAY_POINTS + METER_POINTS
CrashPoint = Callable[[str], None]

_AT: Final = "TOOLCALLS_CRASH_AT"
_ALLOWED: Final = "TOOLCALLS_ALLOW_CRASH_POINTS"


def never_crash(point: str) -> None:
    """The crash point of production: nothing."""
    del point


def crash_point_of(environment: Mapping[str, str]) -> CrashPoint:
    """The crash point that the environment asks for.

    TOOLCALLS_CRASH_AT=<point> kills this process by SIGKILL there, and counts only together with
    TOOLCALLS_ALLOW_CRASH_POINTS=1.

    Raises: `Misuse` for an unknown point, or for one without the permission.
    """
    wanted = environment.get(_AT)
    if not wanted:
        return never_crash
    if environment.get(_ALLOWED) != "1":
        raise Misuse(f"{_AT} is set, but {_ALLOWED} is not 1: unset it, this is no test")
    if wanted not in _ALL:
        raise Misuse(f"no crash point is named {wanted}; known: {', '.join(_ALL)}")

    def crash(point: str) -> None:
        if point == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return crash
