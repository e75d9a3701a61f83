"""A partition without an owner is found at the second look, by one member only."""

from processor.runtime.ownership import OwnershipWatch


class Group:
    """A group that says what it is told to, and counts the nudges."""

    def __init__(self, *views: dict[str, set[int]] | None) -> None:
        self.views = list(views)
        self.nudges = 0

    def owned(self) -> dict[str, set[int]] | None:
        """The next view."""
        return self.views.pop(0)

    def nudge(self) -> None:
        """Counted."""
        self.nudges += 1


def looks(group: Group, slot: str) -> list[bool]:
    """What each look of `slot` did, for a topic of three partitions."""
    watch = OwnershipWatch(group, slot, 3, lambda partitions: None)
    return [watch.look() for _ in range(len(group.views))]


def test_the_first_slot_makes_the_group_assign_again_at_the_second_look() -> None:
    """One look may fall between two rebalances; two looks do not."""
    orphaned = {"0": {1}, "1": {2}}
    assert looks(Group(orphaned, orphaned, orphaned), "0") == [False, True, False]
    assert looks(Group(orphaned, orphaned), "1") == [False, False]


def test_a_group_that_is_not_stable_or_whole_is_left_alone() -> None:
    """A rebalance under way, other orphans at each look, and a whole group need nothing."""
    orphaned = {"0": {1}, "1": {2}}
    assert not any(looks(Group(orphaned, None, orphaned), "0"))
    assert not any(looks(Group({"0": {1, 2}}, {"0": {0, 2}}), "0"))
    whole = {"0": {0, 1}, "1": {2}}
    assert not any(looks(Group(whole, whole), "0"))
