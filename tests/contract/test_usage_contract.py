"""One suite for every usage book: facts with revisions, one charge a call, totals, gaps."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from processor.core.errors import Misuse
from processor.core.usage import ResponseUsage
from processor.ledger.port import Outcome, Source, Usage
from processor.ledger.usage import Dimension, Gap, Selection, UsageReport
from tests.contract.delivery_harness import Delivery, open_delivery
from tests.contract.ledger_harness import SUCCEEDED, begun, claim_for, key, owned

DAY_MS = 1_764_547_200_000  # 2025-12-01T00:00:00Z
EVERYTHING = Selection()
BY: tuple[Dimension, ...] = ("day", "tenant", "model", "tool")
USAGE = ResponseUsage(
    tenant="acme",
    request_id="req_1001",
    response_id="resp_1001",
    dialect="openai-responses",
    model="model-a",
    input_tokens=100,
    output_tokens=0,
    provider={"usage.input_tokens": 100},
)


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.integration)])
def delivery(request: pytest.FixtureRequest) -> Iterator[Delivery]:
    """Each ledger in turn."""
    with open_delivery(str(request.param), request) as opened:
        yield opened


def report(usage: ResponseUsage = USAGE, at_ms: int = DAY_MS) -> UsageReport:
    """A report as it was read."""
    return UsageReport(usage, at_ms, Source("toolcalls.usage.v1", 0, 1))


def test_absent_is_not_zero_and_zero_is_kept(delivery: Delivery) -> None:
    """A sum over nothing is None; a reported 0 is 0."""
    assert delivery.book.record([report()]) == ["first"]
    (total,) = delivery.book.usage_totals(BY, EVERYTHING)
    assert (total.day, total.tenant, total.model) == ("2025-12-01", "acme", "model-a")
    assert (total.responses, total.input_tokens, total.output_tokens) == (1, 100, 0)
    assert (total.total_tokens, total.reasoning_tokens) == (None, None)
    assert (total.no_input, total.no_output) == (0, 0)


def test_repetition_adds_nothing(delivery: Delivery) -> None:
    """In one batch, in another one, from another place of the topic."""
    assert delivery.book.record([report(), report()]) == ["first", "repeat"]
    elsewhere = replace(report(at_ms=DAY_MS + 9), source=Source("toolcalls.usage.v1", 2, 9))
    assert delivery.book.record([elsewhere]) == ["repeat"]
    (total,) = delivery.book.usage_totals((), EVERYTHING)
    assert (total.responses, total.corrected, total.input_tokens) == (1, 0, 100)


def test_every_order_of_repetition_leaves_the_newest_report(delivery: Delivery) -> None:
    """A topic that is read again from the start must not undo a correction."""
    corrected = replace(USAGE, input_tokens=120)
    reports = [report(), report(corrected), report(replace(USAGE, input_tokens=None))]
    assert delivery.book.record(reports) == ["first", "corrected", "nothing_new"]
    assert delivery.book.record(reports) == ["repeat", "repeat", "repeat"]
    (total,) = delivery.book.usage_totals((), EVERYTHING)
    assert (total.responses, total.corrected, total.input_tokens) == (1, 1, 120)


def test_a_late_counter_is_added_and_an_absent_one_takes_nothing_away(
    delivery: Delivery,
) -> None:
    """`late` names what was unknown; `corrected` is another number."""
    late = replace(USAGE, input_tokens=None, total_tokens=150, provider={})
    assert delivery.book.record([report(), report(late)]) == ["first", "late"]
    (total,) = delivery.book.usage_totals((), EVERYTHING)
    assert (total.input_tokens, total.total_tokens, total.corrected) == (100, 150, 0)
    other_vendor_number = replace(USAGE, provider={"usage.input_tokens": 101})
    assert delivery.book.record([report(other_vendor_number)]) == ["corrected"]


def test_a_correction_counts_on_the_day_of_the_first_report(delivery: Delivery) -> None:
    """Late reports do not move a response from one day to another."""
    later_ms = DAY_MS + 3 * 86_400_000
    delivery.book.record([report(), report(replace(USAGE, output_tokens=7), later_ms)])
    (total,) = delivery.book.usage_totals(("day",), EVERYTHING)
    assert (total.day, total.output_tokens) == ("2025-12-01", 7)
    first_day = Selection(from_ms=DAY_MS, to_ms=DAY_MS + 1)
    assert len(delivery.book.usage_totals(("day",), first_day)) == 1
    assert delivery.book.usage_totals(("day",), Selection(from_ms=DAY_MS + 1)) == []
    assert delivery.book.usage_totals(("day",), Selection(to_ms=DAY_MS)) == []


def test_totals_tell_apart_what_was_asked_and_choose_a_tenant(delivery: Delivery) -> None:
    """Two tenants, two models, one of them unknown."""
    others = [
        replace(USAGE, tenant="globex", input_tokens=None),
        replace(USAGE, response_id="resp_2", model=None),
    ]
    delivery.book.record([report(u) for u in (USAGE, *others)])
    by_tenant = delivery.book.usage_totals(("tenant",), EVERYTHING)
    assert [(t.tenant, t.responses, t.input_tokens, t.no_input) for t in by_tenant] == [
        ("acme", 2, 200, 0),
        ("globex", 1, None, 1),
    ]
    by_model = delivery.book.usage_totals(("model",), Selection(tenant="acme"))
    assert [(t.model, t.responses) for t in by_model] == [("model-a", 1), (None, 1)]


def test_a_success_is_charged_once_at_the_price_of_its_tool(delivery: Delivery) -> None:
    """A second delivery, a repeated settlement and a new price change nothing."""
    harness = delivery.harness
    delivery.book.set_price("refund", "0.10", "EUR", "2025-12")
    claim = claim_for(harness)
    own = begun(harness, claim)
    assert harness.ledger.finish(own, SUCCEEDED).ok
    assert harness.ledger.finish(own, SUCCEEDED).ok
    delivery.book.set_price("refund", "9", "EUR", "2026-01")
    assert harness.ledger.claim(claim).kind == "replay"
    (total,) = delivery.book.charge_totals(("tenant", "tool"), EVERYTHING)
    assert (total.tenant, total.tool, total.calls) == ("acme", "refund", 1)
    assert (total.amount, total.currency, total.unpriced) == ("0.10", "EUR", 0)


def test_a_reported_cost_wins_over_the_price_and_currencies_are_not_added(
    delivery: Delivery,
) -> None:
    """An estimate never overwrites a report; a call without either has no amount."""
    harness = delivery.harness
    delivery.book.set_price("refund", "1", "EUR", "2025-12")
    claim = claim_for(harness)
    cost = Usage("cost", "USD", "reported", "0.25")
    harness.ledger.finish(begun(harness, claim), replace(SUCCEEDED, usage=(cost,)))
    for number, tool in ((1002, "refund"), (1003, "weather")):
        other = replace(claim, key=key(number), tool=tool)
        harness.ledger.finish(begun(harness, other), SUCCEEDED)
    totals = delivery.book.charge_totals((), EVERYTHING)
    assert [(t.currency, t.calls, t.amount, t.unpriced) for t in totals] == [
        ("EUR", 1, "1", 0),
        ("USD", 1, "0.25", 0),
        (None, 1, None, 1),
    ]


@pytest.mark.parametrize("quantity", ["-1", "NaN"])
def test_a_cost_that_is_none_never_keeps_a_call_from_ending(
    delivery: Delivery, quantity: str
) -> None:
    """The effect has happened; its charge is then what the price list says, here nothing."""
    harness = delivery.harness
    cost = Usage("cost", "EUR", "reported", quantity)
    own = begun(harness, claim_for(harness))
    assert harness.ledger.finish(own, replace(SUCCEEDED, usage=(cost,))).ok
    (total,) = delivery.book.charge_totals((), EVERYTHING)
    assert (total.calls, total.amount, total.unpriced) == (1, None, 1)


def test_a_doubt_settled_by_a_person_is_charged_and_a_failure_is_not(delivery: Delivery) -> None:
    """The charge belongs to the success, whoever finds it out."""
    harness = delivery.harness
    claim = claim_for(harness)
    own = begun(harness, claim)
    harness.ledger.release(own, not_sent=False)
    assert delivery.book.charge_totals((), EVERYTHING) == []
    assert harness.ledger.resolve("acme", claim.key.idempotency_key, own.fence, "succeeded", "me")
    other = replace(claim, key=key(1002))
    harness.ledger.finish(begun(harness, other), Outcome("failed", error_class="no"))
    (total,) = delivery.book.charge_totals((), EVERYTHING)
    assert total.calls == 1


def test_a_charge_outlives_its_call(delivery: Delivery) -> None:
    """Pruning the ledger must not change a total."""
    harness = delivery.harness
    claim = claim_for(harness)
    harness.ledger.finish(begun(harness, claim), SUCCEEDED)
    harness.pass_deadline(claim.key)
    assert harness.ledger.prune(margin_s=0) == 1
    (total,) = delivery.book.charge_totals((), EVERYTHING)
    assert total.calls == 1


def test_gaps_name_calls_without_usage_and_the_reverse(delivery: Delivery) -> None:
    """What is young is not missing yet; what has both is no gap."""
    harness = delivery.harness
    claim = claim_for(harness)
    for number in (1001, 1002):
        owned(claim, harness.ledger.claim(replace(claim, key=key(number))))
    delivery.book.record([report(), report(replace(USAGE, response_id="resp_9"))])
    harness.now_ms += 1
    gaps = delivery.book.gaps(EVERYTHING, grace_s=0, limit=10)
    assert [_named(gap) for gap in gaps] == [
        ("calls_without_usage", "acme", "req_1002", "resp_1002", 1),
        ("usage_without_calls", "acme", "req_1001", "resp_9", 0),
    ]
    assert delivery.book.gaps(Selection(tenant="globex"), grace_s=0, limit=10) == []
    young = delivery.book.gaps(EVERYTHING, grace_s=3600, limit=10)
    assert [gap.kind for gap in young] == ["usage_without_calls"]


def test_a_wrong_price_is_refused(delivery: Delivery) -> None:
    """Neither below zero nor in a made-up currency."""
    for amount, currency in (("-1", "EUR"), ("1", "euro"), ("1", "E1R")):
        with pytest.raises(Misuse):
            delivery.book.set_price("refund", amount, currency, "2025-12")


def _named(gap: Gap) -> tuple[str, str, str, str, int]:
    return gap.kind, gap.tenant, gap.request_id, gap.response_id, gap.calls
