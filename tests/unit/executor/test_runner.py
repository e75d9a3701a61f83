"""One call from delivery to settlement: what may run."""

from decimal import Decimal

import pytest

from processor.core.outcomes import EffectClass
from processor.executor import ToolContext, ToolSet
from processor.executor.crash_points import POINTS
from processor.executor.runner import Ran, RunnerSettings
from processor.policy.catalogue import parse_catalogue
from tests.unit.executor.runner_rig import (
    CLASSES,
    NOW_MS,
    Rig,
    call_of,
    refunds,
)


@pytest.mark.parametrize("effect_class", CLASSES)
def test_a_call_runs_once_and_its_repetition_gets_the_stored_result(
    effect_class: EffectClass,
) -> None:
    """The tool sees ids, fence and trace; the second delivery runs nothing."""
    ran: list[tuple[str, ToolContext]] = []
    rig = Rig(refunds(ran, effect_class))  # type: ignore[arg-type]  # the list takes more
    call = call_of()
    assert rig.run(call) == Ran("settled", "succeeded")
    assert rig.run(call) == Ran("settled", "replay")
    assert [order for order, _ in ran] == ["ORDER-1001"]
    context = ran[0][1]
    assert context.idempotency_key == "req_1001:call_1"
    assert (context.fence, context.headers) == (rig.view(call).fence, {"traceparent": "00-1-2-01"})
    assert rig.result(call).body == b'{"order":"ORDER-1001"}'
    assert rig.passed == list(POINTS[:4])


def test_async_tools_run_with_a_time_limit() -> None:
    """A coroutine function is awaited on the process's loop."""
    tools = ToolSet()

    @tools.tool(effect_class="at_most_once")
    async def refund(order: str) -> str:
        return order

    rig = Rig(tools)
    assert rig.run(call_of()) == Ran("settled", "succeeded")
    assert rig.result(call_of()).body == b'"ORDER-1001"'
    rig.runner.close()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (b'{"order":5}', "schema_mismatch"),
        (b'{"order":"ORDER-1001","x":1}', "schema_mismatch"),
        (b"{}", "schema_mismatch"),
        (b'{"order":"ORDER-1001","context":1}', "schema_mismatch"),
        (b'{"order":"ORDER-1001"', "invalid_json"),
        (b'{"order":"a","order":"b"}', "duplicate_member"),
        (b"", "empty_arguments"),
        (b"[]", "not_an_object"),
    ],
)
def test_arguments_that_the_tool_does_not_take_fail_and_never_run(
    arguments: bytes, reason: str
) -> None:
    """Catalogue schema, the function's signature and strict JSON, just before execution."""
    ran: list[object] = []
    catalogue = parse_catalogue(
        "version: 1\ntools:\n  refund: {schema: {properties: {order: {type: string}}}}"
    )
    rig = Rig(refunds(ran), catalogue=catalogue)
    call = call_of(arguments)
    assert rig.run(call) == Ran("settled", "failed")
    assert rig.result(call).error_class == reason
    assert rig.view(call).begun == 0
    assert ran == []


def test_numbers_arrive_exact_when_the_tool_asks_for_it() -> None:
    """Integers of any size, fractions as Decimal."""
    tools = ToolSet()
    seen: list[object] = []

    @tools.tool(decimals=True)
    def refund(arguments: dict[str, object]) -> None:
        seen.append(arguments)

    Rig(tools).run(call_of(b'{"n":12345678901234567890,"amount":0.10}'))
    assert seen == [{"n": 12345678901234567890, "amount": Decimal("0.10")}]


def test_free_text_goes_only_to_tools_that_take_it() -> None:
    """And JSON does not go to them."""
    tools = ToolSet()
    seen: list[str] = []

    @tools.tool(name="note", arguments="text")
    def note(arguments: str) -> None:
        seen.append(arguments)

    ran: list[object] = []
    for declaration in refunds(ran):
        tools.add(declaration)
    rig = Rig(tools)
    assert rig.run(call_of(b"two words", tool="note", arguments_format="text")).word == "succeeded"
    other = call_of(b"two words", number=2, arguments_format="text")
    assert rig.run(other).word == "failed"
    assert rig.result(other).error_class == "unsupported_call_type"
    assert rig.run(call_of(number=3, tool="note")).word == "failed"
    assert (seen, ran) == (["two words"], [])


def test_same_key_with_other_arguments_is_a_conflict() -> None:
    """Recorded, not executed."""
    ran: list[object] = []
    rig = Rig(refunds(ran))
    rig.run(call_of())
    assert rig.run(call_of(b'{"order":"ORDER-2002"}')) == Ran("settled", "conflict")
    assert len(ran) == 1
    assert rig.view(call_of()).conflicts == 1


def test_a_tool_of_another_executor_is_left_alone_unless_told_otherwise() -> None:
    """Failing it would take the call from the group that serves it."""
    call = call_of(tool="nobody")
    rig = Rig(refunds([]))
    assert rig.run(call) == Ran("skipped", "unknown_tool")
    assert rig.ledger.show("acme", call.key.idempotency_key) is None
    sole = Rig(refunds([]), settings=RunnerSettings(unknown_tools="fail"))
    assert sole.run(call) == Ran("settled", "failed")
    assert sole.result(call).error_class == "unknown_tool"


def test_a_call_released_before_its_response_ended_never_runs_an_unsure_tool() -> None:
    """The assembler's catalogue said one thing, ours says another: the careful one wins."""
    ran: list[object] = []
    rig = Rig(refunds(ran, "at_most_once"))
    call = call_of(effect_class="idempotent", release="call_end")
    assert rig.run(call) == Ran("settled", "failed")
    assert rig.result(call).error_class == "released_too_early"
    safe = Rig(refunds(ran, "idempotent"))
    assert safe.run(call) == Ran("settled", "succeeded")


def test_a_call_past_its_deadline_never_runs() -> None:
    """A replay of an old topic starts nothing."""
    ran: list[object] = []
    rig = Rig(refunds(ran), settings=RunnerSettings(call_deadline_s=60))
    rig.now_ms = NOW_MS + 60_000
    assert rig.run(call_of()) == Ran("settled", "expired")
    assert ran == []
