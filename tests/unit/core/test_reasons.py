"""Every reason that the fold decides itself is provoked; the others pass through from CallAborted."""

import ast
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

import processor.core
from processor.core.events import RESPONSE_OUTCOMES, Body, ResponseOutcome, StreamEvent
from processor.core.gate import Rules
from processor.core.limits import ENDS_MAX, Limits
from processor.core.reasons import REASONS, REASONS_BY_STAGE, STAGE_OF, Stage
from processor.core.step import REASON_OF_OUTCOME
from tests import builders as b

SMALL = Limits(arguments_bytes_max=8, fragments_max=3, open_calls_max=1)
SCHEMA = b.one_rule(validate=lambda _: "/amount: type")


class Case(NamedTuple):
    """Events of one call that end in a rejection."""

    reason: str
    events: list[StreamEvent]
    limits: Limits = Limits()
    rules: Rules | None = None


def text(arguments: bytes | str, reason: str, *, rules: Rules | None = None) -> Case:
    """A call whose whole text is refused."""
    return Case(reason, b.call_events([arguments]), rules=rules)


def bodies(reason: str, *given: Body, limits: Limits | None = None) -> Case:
    """A call of contiguous events."""
    return Case(reason, b.numbered(given), limits or Limits())


START = b.started()
CASES = [
    Case("missing_start", b.call_events()[1:]),
    bodies("identity_conflict", START, b.started(tool="other")),
    Case("sequence_gap", [*b.call_events()[:2], *b.call_events()[3:]]),
    Case("sequence_conflict", [*b.call_events()[:3], StreamEvent(1, b.delta("other"))]),
    bodies("fragment_after_end", START, b.done("{}"), b.delta("}")),
    bodies("malformed_event", START, b.aborted("no such reason")),
    bodies("too_large", START, b.delta('{"a":'), b.delta("1234"), limits=SMALL),
    bodies("too_large", START, b.done('{"a":123}'), limits=SMALL),
    bodies("too_many_fragments", START, *[b.delta("")] * 4, limits=SMALL),
    bodies("too_many_fragments", START, *[b.done("{}")] * (3 + ENDS_MAX + 1), limits=SMALL),
    bodies("final_copy_mismatch", START, b.delta("{}"), b.done("{ }")),
    bodies("final_copy_mismatch", START, b.done(), b.done("{}")),
    bodies("expired", START, b.delta("{}"), b.expired(1)),
    bodies("expired", START, b.done("{}"), b.expired(0, cause="max_life")),
    bodies("stream_ended", START, b.delta("{}"), b.ended("completed")),
    text("", "empty_arguments"),
    text(" \r\n\t", "empty_arguments"),
    text("{", "invalid_json"),
    text('{"a":1,"a":1}', "duplicate_member"),
    text('{"a":NaN}', "non_finite_number"),
    text('{"a":1e999}', "number_out_of_range"),
    text('{"a":"\\u0000"}', "nul_character"),
    text("[]", "not_an_object"),
    text('{"a":' * 65 + "1" + "}" * 65, "too_deep"),
    text(b'{"a":"\xff"}', "invalid_utf8"),
    text("{}", "schema_mismatch", rules=SCHEMA),
    *(
        bodies(reason, START, b.delta("{}"), b.ended(outcome))
        for outcome, reason in REASON_OF_OUTCOME.items()
    ),
    *(
        bodies(reason, START, b.delta("{}"), b.done(), b.ended(outcome))
        for outcome, reason in REASON_OF_OUTCOME.items()
    ),
]
#: Needs two calls, so it has a test of its own below.
TOO_MANY_CALLS = "too_many_calls"


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{c.reason}" for n, c in enumerate(CASES)])
def test_a_rejection_carries_its_reason_and_stage_and_comes_once(case: Case) -> None:
    """One outcome, of the closed list, with the evidence of the record that decided."""
    rejected = b.only_rejected(b.run(case.events, limits=case.limits, rules=case.rules))
    assert rejected.reason == case.reason
    assert rejected.stage == STAGE_OF[case.reason]
    assert rejected.key == b.key()
    assert rejected.evidence.topic == b.PLACE.topic
    assert rejected.evidence.first_offset == 0
    assert 0 <= rejected.evidence.last_offset < len(case.events)
    assert rejected.evidence.started_at_ms == 1_000
    assert rejected.evidence.ended_at_ms == 1_000 + rejected.evidence.last_offset
    assert rejected.detail


def test_one_call_more_than_the_limit_is_rejected_and_the_open_ones_go_on() -> None:
    """The newcomer is refused; nobody else is harmed, and room is made again by a closed call."""
    fold = b.assembly(SMALL)
    first = b.log(b.call_events(["{}"]))
    other = b.key("call_B")
    second = b.log(b.call_events(["{}"], of=other), of=other, first_offset=50)
    assert b.feed(fold, first[:2]) == []
    rejected = b.only_rejected(b.feed(fold, second))
    assert rejected.reason == TOO_MANY_CALLS
    assert rejected.key == other
    assert fold.open_count == 1
    assert b.only_completed(b.feed(fold, first[2:])).arguments == b"{}"
    assert fold.open_count == 0


@pytest.mark.parametrize("reason", sorted(REASONS))
@pytest.mark.parametrize("prefix", [0, 1, 2, 3])
def test_the_publisher_may_report_any_reason_of_the_list(reason: str, prefix: int) -> None:
    """CallAborted passes the reason on, before the start, while open and after the call's end."""
    before: list[Body] = [START, b.delta("{}"), b.done()]
    events = b.numbered([*before[:prefix], b.aborted(reason)])
    rejected = b.only_rejected(b.run(events))
    assert (rejected.reason, rejected.stage) == (reason, STAGE_OF[reason])
    assert rejected.detail == "reported by the publisher"


def decided_by_core() -> set[str]:
    """Reasons that stand as texts in the files that decide."""
    folder = Path(processor.core.__file__).parent
    found: set[str] = set()
    for file in folder.glob("*.py"):
        if file.name == "reasons.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found & REASONS


def test_exactly_the_reasons_that_core_can_decide_are_provoked_here() -> None:
    """No reason of the fold is left without a case, and no case is about a reason it cannot give."""
    assert {case.reason for case in CASES} | {TOO_MANY_CALLS} == decided_by_core()


def test_the_list_of_reasons_is_closed_and_each_has_one_stage() -> None:
    """A reason stands in one stage; the stages are those of the type, in its order."""
    assert tuple(REASONS_BY_STAGE) == get_args(Stage)
    listed = [reason for reasons in REASONS_BY_STAGE.values() for reason in reasons]
    assert len(listed) == len(set(listed)) == len(REASONS)


def test_every_outcome_of_a_response_but_completed_has_a_reason() -> None:
    """An outcome without one would stop the fold."""
    assert set(REASON_OF_OUTCOME) | {"completed"} == RESPONSE_OUTCOMES
    assert set(REASON_OF_OUTCOME.values()) <= REASONS
    assert set(get_args(ResponseOutcome)) == RESPONSE_OUTCOMES
