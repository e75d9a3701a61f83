"""Offsets move only over what is done."""

from hypothesis import given
from hypothesis import strategies as st

from processor.executor.source import Progress


def progress_at(partition: int = 0, next_offset: int = 10) -> Progress:
    """One partition that was committed there."""
    progress = Progress()
    progress.assign(partition, next_offset, fresh=False)
    return progress


def test_an_open_delivery_holds_back_what_is_behind_it() -> None:
    """And lets go of all of it at once."""
    progress = progress_at()
    for offset in (10, 11, 15):
        progress.start(0, offset)
    progress.finish(0, 11)
    progress.finish(0, 15)
    assert progress.due() == {}
    progress.finish(0, 10)
    assert progress.due() == {0: 16}
    progress.committed({0: 16})
    assert progress.due() == {}


def test_a_fresh_position_is_due_at_once() -> None:
    """A restart must not decide anew where the group begins."""
    progress = Progress()
    progress.assign(3, 7, fresh=True)
    assert progress.due() == {3: 7}


def test_marks_for_a_partition_that_is_gone_are_ignored() -> None:
    """Its next owner reads again; the ledger knows what ran."""
    progress = progress_at()
    progress.start(0, 10)
    progress.forget(0)
    progress.finish(0, 10)
    progress.committed({0: 11})
    assert progress.due() == {}
    progress.start(0, 12)
    assert progress.due() == {}


@given(st.permutations(range(8)), st.lists(st.integers(1, 4), min_size=8, max_size=8))
def test_in_any_order_of_endings_only_a_finished_prefix_is_due(
    order: list[int], gaps: list[int]
) -> None:
    """The next offset is one after the last of the prefix, whatever the gaps between records."""
    offsets = [10 + sum(gaps[:n]) for n in range(8)]
    progress = progress_at()
    for offset in offsets:
        progress.start(0, offset)
    done: set[int] = set()
    for index in order:
        progress.finish(0, offsets[index])
        done.add(index)
        prefix = next((n for n in range(9) if n not in done), 8)
        expected = {0: offsets[prefix - 1] + 1} if prefix else {}
        assert progress.due() == expected
