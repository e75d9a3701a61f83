"""One suite for every outbox: what is told, once handed out, in which order, and under which id."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from processor.ledger.port import Begin, Outcome, Source
from tests.contract.delivery_harness import Delivery, open_delivery
from tests.contract.ledger_harness import SUCCEEDED, begun, claim_for, key, owned

AGAIN = Source("toolcalls.completed.v1", 0, 77)


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.integration)])
def delivery(request: pytest.FixtureRequest) -> Iterator[Delivery]:
    """Each ledger in turn."""
    with open_delivery(str(request.param), request) as opened:
        yield opened


def test_a_settled_call_is_told_once_with_its_ids_and_its_answer(delivery: Delivery) -> None:
    """Result, key, tool and the key to use next; then the outbox is empty."""
    harness = delivery.harness
    own = begun(harness, claim_for(harness))
    harness.ledger.finish(own, SUCCEEDED)
    (event,) = delivery.take_all()
    assert (event.key, event.tool, event.told_state) == (key(), "refund", "succeeded")
    assert (event.body, event.retry, event.repeat_of) == (SUCCEEDED.body, "never", None)
    assert event.event_id == f"acme/req_1001/resp_1001/call_1/succeeded/{own.fence}"
    assert delivery.take_all() == []
    assert delivery.outbox.waiting().events == 0


def test_a_failure_is_told_with_its_word_and_without_a_body(delivery: Delivery) -> None:
    """`new_key`: the application may decide to try again as a new call."""
    harness = delivery.harness
    own = begun(harness, claim_for(harness))
    harness.ledger.finish(own, Outcome("failed", error_class="card_declined"))
    (event,) = delivery.take_all()
    assert (event.told_state, event.error_class, event.body) == ("failed", "card_declined", None)
    assert event.retry == "new_key"


def test_what_was_not_marked_is_handed_out_again_under_the_same_id(delivery: Delivery) -> None:
    """An exception gives the whole batch back, also what was marked inside of it."""
    harness = delivery.harness
    harness.ledger.finish(begun(harness, claim_for(harness)), SUCCEEDED)

    first: list[str] = []

    def end_in_the_middle() -> None:
        with delivery.outbox.batch(10, 1000) as batch:
            first.extend(event.event_id for event in batch.events)
            batch.done([event.id for event in batch.events])
            raise LookupError

    with pytest.raises(LookupError):
        end_in_the_middle()
    assert [event.event_id for event in delivery.take_all()] == first


def test_two_relays_never_have_the_same_event_nor_one_call_out_of_order(
    delivery: Delivery,
) -> None:
    """While the first event of a call is being published, its later ones wait for everybody."""
    harness = delivery.harness
    claim = claim_for(harness)
    own = begun(harness, claim)
    assert harness.ledger.release(own, not_sent=False) == "in_doubt"
    other = replace(claim, key=key(1002), source=Source("toolcalls.completed.v1", 2, 42))
    harness.ledger.finish(begun(harness, other), SUCCEEDED)
    with delivery.outbox.batch(1, 1000) as one:
        assert [e.state for e in one.events] == ["in_doubt"]
        harness.ledger.finish(own, SUCCEEDED)
        with delivery.outbox.batch(10, 1000) as two:
            # Of the first call nothing, though its second event is free.
            assert [(e.key, e.state) for e in two.events] == [(key(1002), "succeeded")]
            two.done([e.id for e in two.events])
        one.done([e.id for e in one.events])
    assert [(e.key, e.state) for e in delivery.take_all()] == [(key(), "succeeded")]


def test_a_batch_holds_one_event_of_a_call_and_about_the_asked_bytes(delivery: Delivery) -> None:
    """At least one event, whatever its size."""
    harness = delivery.harness
    claim = claim_for(harness)
    for number in range(1001, 1005):
        own = begun(harness, replace(claim, key=key(number)))
        harness.ledger.finish(own, Outcome("succeeded", body=b"x" * 100))
    with delivery.outbox.batch(10, 1) as batch:
        assert len(batch.events) == 1
    with delivery.outbox.batch(10, 150) as batch:
        assert len(batch.events) == 2
    with delivery.outbox.batch(3, 10_000) as batch:
        assert [e.key for e in batch.events] == [key(n) for n in (1001, 1002, 1003)]


def test_a_call_that_was_sent_again_is_told_again_as_a_repeat(delivery: Delivery) -> None:
    """The one who sent it again waits behind the first answer; nothing ran a second time."""
    harness = delivery.harness
    claim = claim_for(harness)
    own = begun(harness, claim)
    harness.ledger.finish(own, SUCCEEDED)
    (first,) = delivery.take_all()
    assert harness.ledger.claim(replace(claim, source=AGAIN)).kind == "replay"
    (repeat,) = delivery.take_all()
    assert repeat.repeat_of == "toolcalls.completed.v1/0/77"
    assert (repeat.state, repeat.body, repeat.fence) == ("succeeded", SUCCEEDED.body, own.fence)
    assert repeat.event_id == f"{first.event_id}/repeat/toolcalls.completed.v1/0/77"


def test_the_same_record_delivered_again_is_no_repeat(delivery: Delivery) -> None:
    """At-least-once delivery to the executor must not double the results topic."""
    harness = delivery.harness
    claim = claim_for(harness)
    harness.ledger.finish(begun(harness, claim), SUCCEEDED)
    assert harness.ledger.claim(claim).kind == "replay"
    assert len(delivery.take_all()) == 1


@pytest.mark.parametrize("state", ["held", "in_doubt"])
def test_a_call_that_waits_for_a_person_says_so_and_again_when_asked(
    delivery: Delivery, state: str
) -> None:
    """Nobody waits in the dark."""
    harness = delivery.harness
    claim = claim_for(harness)
    own = owned(claim, harness.ledger.claim(claim))
    if state == "held":
        assert harness.ledger.hold(own, "rule_7", "rev_1")
    else:
        assert harness.ledger.begin_effect(own, Begin(lease_s=60)).ok
        assert harness.ledger.release(own, not_sent=False) == "in_doubt"
    assert harness.ledger.claim(replace(claim, source=AGAIN)).kind == state
    events = delivery.take_all()
    assert [(e.told_state, e.retry, e.repeat_of is None) for e in events] == [
        (state, "same_key", True),
        (state, "same_key", False),
    ]


def test_a_call_given_back_is_nobodys_news(delivery: Delivery) -> None:
    """`ready` stands in the outbox, and has no state to tell."""
    harness = delivery.harness
    claim = claim_for(harness, "read_only")
    own = owned(claim, harness.ledger.claim(claim))
    assert harness.ledger.release(own, not_sent=True) == "ready"
    assert [e.told_state for e in delivery.take_all()] == [None]


def test_what_was_never_published_goes_with_the_pruned_call(delivery: Delivery) -> None:
    """A ledger without a relay does not grow for ever."""
    harness = delivery.harness
    claim = claim_for(harness)
    harness.ledger.finish(begun(harness, claim), SUCCEEDED)
    assert delivery.outbox.waiting().events == 1
    harness.pass_deadline(claim.key)
    assert harness.ledger.prune(margin_s=0) == 1
    assert delivery.outbox.waiting().events == 0
