"""Repeats are thinned out, so that a client's error loop stays a few lines."""

import logging

from processor.telemetry.logging import RepeatFilter, ThinRepeats


def test_the_first_tenth_and_hundredth_occurrence_are_worth_a_line() -> None:
    """Each name is counted for itself."""
    repeats = RepeatFilter()
    told = [repeats.count("_TRANSPORT") for _ in range(1_000)]
    assert [total for total in told if total is not None] == [1, 10, 100, 1_000]
    assert repeats.count("_RESOLVE") == 1


def test_lines_that_differ_only_in_numbers_are_repeats() -> None:
    """Ports and durations change from line to line of one loop."""
    thin = ThinRepeats()
    lines = [
        f"127.0.0.1:{port}: Connect failed after {port % 7} ms" for port in range(9_000, 9_050)
    ]
    records = [logging.makeLogRecord({"msg": line}) for line in lines]
    assert sum(thin.filter(record) for record in records) == 2
