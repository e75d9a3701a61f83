"""Above its bound a process reads one partition at a time, in turns; never none."""

from processor.runtime.back_pressure import IDLE_S, TURN_S, PartitionValve


def closed_valve() -> PartitionValve:
    """A valve of 100 bytes that has seen more."""
    valve = PartitionValve(100)
    valve.weighed(101, 0, 0)
    return valve


def test_below_the_bound_everything_is_read() -> None:
    """Up to the bound, and again below the lower mark only."""
    valve = PartitionValve(100)
    valve.weighed(100, 0, 0)
    assert not valve.paused({0, 1}, (), 0)
    valve.weighed(101, 0, 0)
    assert valve.paused({0, 1}, (), 0)
    valve.weighed(81, 0, 0)
    assert valve.paused({0, 1}, (), 0)
    valve.weighed(80, 0, 0)
    assert not valve.paused({0, 1}, (), 0)


def test_one_partition_is_read_at_a_time_and_all_get_their_turn() -> None:
    """A turn ends when it is over, however much comes."""
    valve, turns = closed_valve(), list[int]()
    for now_s in range(40):
        (turn,) = {3, 5, 9} - valve.paused({3, 5, 9}, turns[-1:], now_s * IDLE_S / 2)
        if turn not in turns[-1:]:
            turns.append(turn)
    assert turns == [3, 5, 9, 3]
    assert valve.paused({3, 5, 9}, (), 40 + TURN_S)


def test_an_idle_partition_gives_its_turn_on() -> None:
    """Nothing came of it for a while."""
    valve = closed_valve()
    assert valve.paused({0, 1}, (), 0) == {1}
    assert valve.paused({0, 1}, {0}, IDLE_S / 2) == {1}
    assert valve.paused({0, 1}, {1}, IDLE_S * 2) == {0}


def test_a_single_partition_and_one_that_is_left_are_read_on() -> None:
    """Otherwise nothing would ever be freed."""
    valve = closed_valve()
    assert not valve.paused({7}, (), 0)
    assert valve.paused({0, 1}, (), 0) == {1}
    assert valve.paused({1, 2}, (), 0) == {2}


def test_weighing_takes_a_small_part_of_the_time() -> None:
    """The longer it takes, the seldomer it is done."""
    valve = PartitionValve(100)
    assert valve.is_due(0)
    valve.weighed(0, 0, 0.01)
    assert not valve.is_due(0.5)
    assert valve.is_due(1.02)
