"""One call from delivery to settlement: endings, authorisation, a ledger that does not answer."""

import re
import threading
from collections import deque

import pytest

from processor.core.errors import Indeterminate, Misuse, Transient
from processor.core.identity import CallKey
from processor.core.outcomes import EffectClass
from processor.executor import NotSent, ToolFailed, ToolSet
from processor.executor.ports import AllowAll, AuthoriseRequest, Decision
from processor.executor.runner import Ran, RunnerSettings
from processor.ledger.port import (
    Answer,
    Begin,
    Outcome,
    Owned,
)
from tests.unit.executor.runner_rig import (
    CLASSES,
    SOURCE,
    Rig,
    call_of,
    raising,
    refunds,
)

# --- endings


def test_a_definite_no_of_the_tool_is_a_failure_with_its_own_class() -> None:
    """Stored with its result; a new key may be used."""
    rig = Rig(raising(ToolFailed("card_declined", result={"code": 51}), "at_most_once"))
    call = call_of()
    assert rig.run(call) == Ran("settled", "failed")
    stored = rig.result(call)
    assert (stored.error_class, stored.body, stored.retry) == (
        "card_declined",
        b'{"code":51}',
        "new_key",
    )


@pytest.mark.parametrize("effect_class", CLASSES)
def test_a_request_not_sent_goes_back_whatever_the_class(effect_class: EffectClass) -> None:
    """After its delay it is handed out again."""
    rig = Rig(raising(NotSent(retry_after_s=5), effect_class))
    call = call_of()
    assert rig.run(call) == Ran("parked", "ready")
    assert rig.view(call).begun == 0
    assert rig.ledger.redrive(SOURCE.topic, ["refund"], 10, 30) == []
    rig.now_ms += 5000
    assert rig.ledger.redrive(SOURCE.topic, ["refund"], 10, 30) == [SOURCE]


@pytest.mark.parametrize(
    ("effect_class", "word"),
    [
        ("read_only", "ready"),
        ("idempotent", "ready"),
        ("transactional", "ready"),
        ("reconcilable", "in_doubt"),
        ("at_most_once", "in_doubt"),
    ],
)
def test_any_other_exception_means_that_nobody_knows(effect_class: EffectClass, word: str) -> None:
    """By class: again, or a doubt. Only type and place are kept."""
    rig = Rig(raising(ValueError("canary-1f3e"), effect_class))
    call = call_of()
    assert rig.run(call) == Ran("parked", word)
    last = rig.ledger.history("acme", call.key.idempotency_key)[-1]
    assert re.fullmatch(r"raised:ValueError runner_rig\.py:\d+", str(last.why))


def test_a_tool_that_outlives_its_limit_is_in_doubt_until_it_says_more() -> None:
    """The late result of the same fence settles the doubt."""
    tools = ToolSet()
    go_on, ended = threading.Event(), threading.Event()

    @tools.tool(name="refund", timeout_s=0.01)
    def refund(order: str) -> str:
        go_on.wait(30)
        return order

    rig = Rig(tools)
    call = call_of()
    assert rig.run(call) == Ran("parked", "in_doubt")
    finish = rig.ledger.finish

    def finish_and_tell(owned: Owned, outcome: Outcome) -> Answer:
        answer = finish(owned, outcome)
        ended.set()
        return answer

    rig.ledger.finish = finish_and_tell  # type: ignore[method-assign]  # to hear of the late end
    go_on.set()
    assert ended.wait(30)
    assert rig.view(call).state == "succeeded"


def test_a_coroutine_that_outlives_its_limit_is_cancelled_and_in_doubt() -> None:
    """It may have sent something."""
    tools = ToolSet()

    @tools.tool(name="refund", timeout_s=0.01)
    async def refund(order: str) -> None:
        import asyncio

        await asyncio.Event().wait()

    rig = Rig(tools)
    assert rig.run(call_of()) == Ran("parked", "in_doubt")
    rig.runner.close()


# --- authorisation


class Fixed:
    """An authoriser with one answer, or one exception."""

    def __init__(self, answer: Decision | Exception) -> None:
        self.answer = answer
        self.asked: list[AuthoriseRequest] = []

    def decide(self, request: AuthoriseRequest) -> Decision:
        """See `Authoriser`."""
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_denied_call_never_runs() -> None:
    """The authoriser sees the arguments that would run."""
    ran: list[object] = []
    authoriser = Fixed(Decision("deny", "rule-1", "rev-1"))
    rig = Rig(refunds(ran), authoriser=authoriser)
    call = call_of()
    assert rig.run(call) == Ran("settled", "denied")
    assert rig.result(call).error_class == "not_authorized"
    assert authoriser.asked[0].arguments == {"order": "ORDER-1001"}
    assert ran == []


def test_an_authoriser_that_fails_lets_nothing_run_and_is_asked_again() -> None:
    """Fail closed, and not for ever."""
    ran: list[object] = []
    authoriser = Fixed(RuntimeError("canary"))
    rig = Rig(refunds(ran), authoriser=authoriser)
    call = call_of()
    assert rig.run(call) == Ran("parked", "ready")
    assert ran == []
    authoriser.answer = Decision("allow", "rule-2", "rev-1")
    assert rig.run(call) == Ran("settled", "succeeded")
    assert (rig.view(call).decision_id, rig.view(call).policy_rev) == ("rule-2", "rev-1")


def test_a_held_call_runs_after_a_person_approved_these_arguments() -> None:
    """Held, approved, asked again, begun with the approval."""
    ran: list[object] = []
    rig = Rig(refunds(ran), authoriser=Fixed(Decision("hold", "rule-3", "rev-1")))
    call = call_of()
    assert rig.run(call) == Ran("parked", "held")
    assert rig.run(call) == Ran("parked", "held")
    assert ran == []
    view = rig.view(call)
    assert rig.ledger.decide(
        "acme", call.key.idempotency_key, view.args_hash, "dana", yes=True, ttl_s=60
    )
    assert rig.run(call) == Ran("settled", "succeeded")
    assert len(ran) == 1


def test_a_cancel_request_between_claim_and_begin_is_honoured() -> None:
    """Nothing ran, and the call is cancelled."""
    ran: list[object] = []

    class Cancelling(AllowAll):
        def decide(self, request: AuthoriseRequest) -> Decision:
            rig.ledger.cancel("acme", request.key.idempotency_key, "app")
            return super().decide(request)

    rig = Rig(refunds(ran), authoriser=Cancelling())
    assert rig.run(call_of()) == Ran("settled", "cancelled")
    assert ran == []


# --- a ledger that does not answer


def test_a_claim_without_an_answer_is_asked_again_later() -> None:
    """Nothing ran."""
    ran: list[object] = []
    rig = Rig(refunds(ran))
    rig.ledger.before["claim"] = deque([Transient("down")])
    assert rig.run(call_of()) == Ran("again", "transient")
    assert rig.run(call_of()) == Ran("settled", "succeeded")
    assert len(ran) == 1


@pytest.mark.parametrize("line", ["before", "after"])
def test_a_begin_that_nobody_confirms_leads_to_no_effect(line: str) -> None:
    """Recorded or not: nothing was sent, so the call goes back."""
    ran: list[object] = []
    rig = Rig(refunds(ran))
    getattr(rig.ledger, line)["begin_effect"] = deque([Indeterminate("lost")])
    call = call_of()
    assert rig.run(call) == Ran("parked", "ready")
    assert ran == []
    assert rig.view(call).begun == 0
    assert rig.run(call) == Ran("settled", "succeeded")


def test_a_result_is_offered_until_the_ledger_takes_it() -> None:
    """The effect happened; giving up early would leave a doubt."""
    ran: list[object] = []
    rig = Rig(refunds(ran))
    rig.ledger.before["finish"] = deque([Transient("down"), Indeterminate("lost")] * 3)
    assert rig.run(call_of()) == Ran("settled", "succeeded")
    assert len(ran) == 1


def test_a_ledger_that_stays_away_leaves_the_call_to_its_lease() -> None:
    """After the patience the delivery is kept, and the effect is not repeated."""
    ran: list[object] = []
    rig = Rig(refunds(ran), settings=RunnerSettings(settle_patience_s=2))
    rig.ledger.before["finish"] = deque([Transient("down")] * 1000)
    call = call_of()
    assert rig.run(call) == Ran("again", "transient")
    assert rig.clock.now_s <= 1002
    assert rig.run(call) == Ran("parked", "busy")
    rig.now_ms += 3_600_000
    assert rig.run(call) == Ran("parked", "in_doubt")
    assert len(ran) == 1


def test_a_lease_used_up_by_a_slow_begin_leads_to_no_effect() -> None:
    """The owner checks its own clock as the last act before it sends."""
    ran: list[object] = []
    rig = Rig(refunds(ran))
    in_time = rig.ledger.begin_effect

    def slow(owned: Owned, begin: Begin) -> Answer:
        answer = in_time(owned, begin)
        rig.clock.now_s += begin.lease_s
        return answer

    rig.ledger.begin_effect = slow  # type: ignore[method-assign]  # a stall after the commit
    assert rig.run(call_of()) == Ran("parked", "ready")
    assert ran == []


def test_a_refused_value_ends_the_process() -> None:
    """A missing right or function is nobody's call's fault."""
    rig = Rig(refunds([]))
    rig.ledger.before["claim"] = deque([Misuse("no rights")])
    with pytest.raises(Misuse):
        rig.run(call_of())


def test_every_question_has_an_owner_of_its_own() -> None:
    """So that a lost answer can be looked up without mixing two deliveries."""
    rig = Rig(raising(NotSent(), "at_most_once"))
    rig.run(call_of())
    rig.run(call_of())
    owners = [
        t.by for t in rig.ledger.history("acme", "req_1001:call_1") if t.to_state == "claimed"
    ]
    assert owners == ["slot-0/a/1", "slot-0/a/2"]
    assert CallKey("acme", "req_1001", "resp_1001", "call_1") == call_of().key
