"""Nothing is committed while a transaction of an earlier life may still be open."""

from collections.abc import Iterable

import pytest

from processor.runtime.errors import RestoreRefused
from processor.runtime.leftovers import BROKER_SCAN_S, Leftovers, Place

ONE, TWO = Place("completed", 0), Place("rejected", 3)


class Told:
    """Answers one after the other, the last one for ever; each question takes a second."""

    def __init__(self, *answers: dict[Place, int]) -> None:
        self._answers = list(answers)
        self.asked: list[list[Place] | None] = []

    def open_at(self, places: Iterable[Place] | None = None) -> dict[Place, int]:
        """The next answer."""
        self.asked.append(None if places is None else list(places))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def clock(self) -> float:
        """Seconds."""
        return float(len(self.asked))


def test_nothing_open_is_one_question() -> None:
    """The usual start."""
    told = Told({})
    Leftovers(told, told.clock, wait_s=8).await_ended()
    assert told.asked == [None]


def test_what_was_open_at_the_start_is_waited_for_and_nothing_else() -> None:
    """A transaction that begins later, behind the old one's end, is another slot's business."""
    told = Told({ONE: 10, TWO: 5}, {ONE: 10, TWO: 7}, {ONE: 12})
    Leftovers(told, told.clock, wait_s=8).await_ended()
    assert told.asked == [None, [ONE, TWO], [ONE]]


def test_what_stays_open_longer_than_any_transaction_is_refused_by_name() -> None:
    """With the place, and what a person is to do."""
    told = Told({ONE: 10, TWO: 5}, {ONE: 10})
    with pytest.raises(RestoreRefused, match=r"hanging_transaction: completed\[0\] at offset 10"):
        Leftovers(told, told.clock, wait_s=8).await_ended()
    assert told.clock() > 8 + BROKER_SCAN_S
