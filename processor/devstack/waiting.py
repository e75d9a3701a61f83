"""Waiting for a condition with a deadline; the one clock of the dev stack."""

import time
from collections.abc import Callable

POLL_S = 0.03


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S) -> bool:
    """Ask `condition` every `poll_s` seconds; False when `timeout_s` passed without a yes."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(poll_s)
    return True
