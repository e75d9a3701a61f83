"""Bounds of a stretch of the log, as people write them."""

import pytest

from processor.audit.verify_plan import Bound
from processor.cli.bounds import read_bound, read_time_ms
from processor.core.errors import Misuse

NOW_MS = 1_764_550_000_000


def test_a_bound_is_a_time_how_long_ago_or_offsets() -> None:
    """Without an offset of its own a time is UTC."""
    assert read_bound("--from", None, NOW_MS) == Bound()
    assert read_bound("--from", "0:15,12:0", NOW_MS) == Bound(offsets={0: 15, 12: 0})
    assert read_bound("--from", "90s", NOW_MS) == Bound(time_ms=NOW_MS - 90_000)
    assert read_bound("--from", "7d", NOW_MS) == Bound(time_ms=NOW_MS - 7 * 86_400_000)
    assert read_time_ms("--since", "2026-01-01T00:00", NOW_MS) == 1_767_225_600_000
    assert read_time_ms("--since", "2026-01-01T01:00+01:00", NOW_MS) == 1_767_225_600_000
    assert read_time_ms("--since", "999999999d", NOW_MS) == 0


@pytest.mark.parametrize("text", ["", "yesterday", "0:1,0:2", "1:-1", "5w", "9999999999:1"])
def test_anything_else_is_refused_by_the_name_of_its_option(text: str) -> None:
    """One sentence, no guess."""
    with pytest.raises(Misuse, match="--from"):
        read_bound("--from", text, NOW_MS)
