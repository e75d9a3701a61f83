"""Waits for a slot that the group still holds for another process (KIP-848 only).

Rules:
    The broker refuses a newcomer with a static name until the earlier member has left or its session
    is over: 45 s by default, so a killed slot would otherwise end and be restarted again and again.
    The wait has a bound: a slot that is still held then belongs to a process that runs.
"""

from collections.abc import Callable
from typing import Final

from processor.runtime.errors import SlotHeld

#: Longer than the broker's default session of 45 s.
SLOT_WAIT_S: Final = 60
#: Between two tries; a refused try costs the broker a joining and a few metadata requests.
RETRY_S: Final = 1.0


def when_free(
    run: Callable[[], None],
    should_stop: Callable[[], bool],
    note: Callable[[], None],
    *,
    wait_s: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> None:
    """Run a process of the loop, again and again while its slot is held; `note` each such time.

    Raises: `SlotHeld` when it is still held after `wait_s` seconds; whatever else `run` raises.
    """
    give_up_s = clock() + wait_s
    while True:
        try:
            run()
        except SlotHeld:
            if should_stop():
                return
            if clock() >= give_up_s:
                raise
            note()
        else:
            return
        pause(RETRY_S)
