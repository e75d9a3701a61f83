"""The one place of this room that reads the machine's clocks; everything else is handed them."""

import time
from collections.abc import Callable

#: Epoch milliseconds, for `StreamEvent.at_ms`.
WallClock = Callable[[], int]
#: Seconds that never run backwards, for the bound `block_ms`.
Monotonic = Callable[[], float]


def wall_ms() -> int:
    """Epoch milliseconds of this machine."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds since an arbitrary start."""
    return time.monotonic()
