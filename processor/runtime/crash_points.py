"""Named places at which a test may kill the process; in production they do nothing.

Rules:
    The kill is SIGKILL to ourselves: no handler, no flush, exactly what a lost host looks like.
"""

import os
import signal
from collections.abc import Callable
from typing import Final

from processor.core.errors import Misuse

#: The points of one commit, in their order.
COMMIT_POINTS: Final = (
    "before_begin",
    "after_begin",
    "after_produce",
    "after_send_offsets",
    "after_commit",
)
#: The points outside of a commit.
OTHER_POINTS: Final = ("mid_restore", "after_fold")
POINTS: Final = frozenset((*COMMIT_POINTS, *OTHER_POINTS))

CrashPoint = Callable[[str], None]


def never_crash(point: str) -> None:
    """The crash point of production: nothing."""
    del point


def crash_at(spec: str) -> CrashPoint:
    """A crash point that kills at `point` or `point:n`, n being the n-th passage, from 1.

    Raises: `Misuse` for a point that does not exist.
    """
    point, _, count = spec.partition(":")
    if point not in POINTS:
        raise Misuse(f"no crash point is named {point}; known: {', '.join(sorted(POINTS))}")
    if count and not (count.isdecimal() and int(count) > 0):
        raise Misuse(f"the passage of crash point {point} must be a number from 1")
    remaining = int(count or "1")

    def crash(passed: str) -> None:
        nonlocal remaining
        if passed == point:
            remaining -= 1
            if remaining <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return crash
