"""Waits between tries: longer each time, spread, bounded, the same for the same question."""

from hypothesis import given
from hypothesis import strategies as st

from processor.executor import NotSent, OutcomeUnknown
from processor.executor.backoff import Backoff, spread_of
from tests.unit.executor.runner_rig import SOURCE, Rig, call_of, raising


def test_the_wait_doubles_to_its_bound() -> None:
    """Without spread: 1, 2, 4, 8, 10, 10."""
    backoff = Backoff(first_s=1, most_s=10, spread=lambda name, attempt: 0.0)
    assert [backoff.next_s("a") for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    assert backoff.next_s("b") == 1
    backoff.forget("a")
    assert backoff.next_s("a") == 1


@given(name=st.text(), attempts=st.integers(1, 40))
def test_at_most_half_of_the_wait_is_taken_away(name: str, attempts: int) -> None:
    """And a second look sees the same waits."""
    one, two = Backoff(first_s=1, most_s=60), Backoff(first_s=1, most_s=60)
    full = Backoff(first_s=1, most_s=60, spread=lambda n, a: 0.0)
    for _ in range(attempts):
        wait_s, full_s = one.next_s(name), full.next_s(name)
        assert full_s / 2 <= wait_s <= full_s
        assert wait_s == two.next_s(name)


def test_calls_that_fail_together_do_not_come_back_together() -> None:
    """A thousand calls fall into all of ten slices of time."""
    slices = {int(spread_of(f"acme/req_{n}:call_1", 1) * 10) for n in range(1000)}
    assert slices == set(range(10))


def test_what_is_remembered_is_bounded() -> None:
    """A forgotten call begins again."""
    backoff = Backoff(first_s=1, most_s=60, spread=lambda name, attempt: 0.0)
    for number in range(10_001):
        backoff.next_s(f"call {number}")
    assert (backoff.next_s("call 0"), backoff.next_s("call 10000")) == (1, 2)


def test_a_call_that_was_given_back_waits_longer_each_time() -> None:
    """Through the ledger: not handed out before its time."""
    for error in (NotSent(), OutcomeUnknown("busy")):
        rig = Rig(raising(error, "read_only"))
        rig.run(call_of())
        rig.run(call_of())
        rig.now_ms += 999
        assert rig.ledger.redrive(SOURCE.topic, ["refund"], 10, 30) == []
        rig.now_ms += 1001
        assert rig.ledger.redrive(SOURCE.topic, ["refund"], 10, 30) == [SOURCE]
