"""How long a call waits before it is tried again: longer each time, and not all calls at once.

Rules:
    The wait doubles from `first_s` to `most_s`; a part of it is taken away by chance.
    Chance comes from the call and the number of the try, so a test and a second look see the same wait.
    What is remembered is bounded; a forgotten call, as after a restart, begins again at `first_s`.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

Spread = Callable[[str, int], float]

_REMEMBERED_MAX: Final = 10_000
_DOUBLINGS_MAX: Final = 30


def spread_of(name: str, attempt: int) -> float:
    """A number from 0 to 1 that looks like chance and is the same for the same question."""
    digest = hashlib.sha256(f"{attempt}:{name}".encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32


class Backoff:
    """Counts the tries of calls by name. Safe to use from several threads."""

    def __init__(self, *, first_s: float, most_s: float, spread: Spread = spread_of) -> None:
        self._first_s = first_s
        self._most_s = max(first_s, most_s)
        self._spread = spread
        self._lock = threading.Lock()
        self._attempts: OrderedDict[str, int] = OrderedDict()

    def next_s(self, name: str) -> float:
        """Count a try of `name`; the seconds to wait, half of the full wait to all of it."""
        with self._lock:
            attempt = self._attempts.pop(name, 0) + 1
            self._attempts[name] = attempt
            if len(self._attempts) > _REMEMBERED_MAX:
                self._attempts.popitem(last=False)
        doubled_s = self._first_s * 2.0 ** min(attempt - 1, _DOUBLINGS_MAX)
        return min(self._most_s, doubled_s) * (1 - self._spread(name, attempt) / 2)

    def forget(self, name: str) -> None:
        """It is over."""
        with self._lock:
            self._attempts.pop(name, None)
