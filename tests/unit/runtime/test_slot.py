"""A slot that the group still holds is waited for, within a bound."""

import pytest

from processor.runtime.errors import ClientFatal, SlotHeld
from processor.runtime.slot import RETRY_S, when_free


class Held:
    """A process whose slot is held for the first `times` tries, and a clock that it moves."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.tries = 0
        self.noted = 0
        self.now_s = 0.0

    def run(self) -> None:
        """One try."""
        self.tries += 1
        if self.tries <= self.times:
            raise SlotHeld("held")

    def note(self) -> None:
        """The slot was held."""
        self.noted += 1

    def pause(self, seconds: float) -> None:
        """Move the clock."""
        self.now_s += seconds

    def wait(self, wait_s: float, *, stop: bool = False) -> None:
        """Run when the slot is free."""
        when_free(
            self.run,
            lambda: stop,
            self.note,
            wait_s=wait_s,
            clock=lambda: self.now_s,
            pause=self.pause,
        )


def test_a_held_slot_is_tried_again_until_it_is_free() -> None:
    """Each refused try is noted."""
    held = Held(3)
    held.wait(60)
    assert (held.tries, held.noted, held.now_s) == (4, 3, 3 * RETRY_S)


def test_a_slot_that_stays_held_ends_the_wait_with_the_error() -> None:
    """Another process runs there; the exit status says so."""
    held = Held(100)
    with pytest.raises(SlotHeld):
        held.wait(5 * RETRY_S)
    assert held.tries == 6


def test_a_stop_request_ends_the_wait() -> None:
    """Nothing was begun, so there is nothing to end."""
    held = Held(100)
    held.wait(60, stop=True)
    assert held.tries == 1


def test_any_other_error_is_not_tried_again() -> None:
    """Only a held slot is free some time later."""
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise ClientFatal("no")

    with pytest.raises(ClientFatal):
        when_free(
            fail,
            lambda: False,
            lambda: None,
            wait_s=60,
            clock=lambda: 0.0,
            pause=lambda seconds: None,
        )
    assert len(tries) == 1
