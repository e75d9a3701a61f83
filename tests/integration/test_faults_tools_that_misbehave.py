"""Tools that end in ways a tool should not: one call may suffer, the executor and the others not."""

import signal
from pathlib import Path

import pytest

from tests.integration.assembler_rig import wait_until
from tests.integration.executor_host import SECRET, Host, host

pytestmark = [pytest.mark.integration, pytest.mark.faults]

STOP_S = 45.0

#: Of each kind, the tools and the reason that the history gives for their end.
REASONS = {
    "plain": {
        "odd": "raised:Odd my_tools.py:",
        "sealed": "result_unreadable",
        "retry_never": "not_sent",
        "retry_far": "not_sent",
    },
    "async": {
        "async_exit": "raised:SystemExit my_tools.py:",
        "async_cancelled": "raised:CancelledError my_tools.py:",
        "async_odd": "raised:Odd my_tools.py:",
        "async_blocking": "timed_out",
    },
    "transactional": {
        "transactional_exit": "raised:SystemExit my_tools.py:",
        "transactional_swallow": "undone:25P02",
        "transactional_deferred": "undone:23503",
        "transactional_cut": "raised:AdminShutdown my_tools.py:",
        "transactional_endless": "timed_out",
    },
}


def give_reason(made: Host, tool: str, reason: str) -> bool:
    """True when the history of the tool's call has the reason, or the process has ended."""
    given = any(why.startswith(reason) for why in made.reasons(tool))
    return given or made.process.poll() is not None


@pytest.mark.parametrize("kind", sorted(REASONS))
def test_a_misbehaving_tool_harms_its_own_call_only_and_its_words_stay_secret(
    kafka_bootstrap: str, database: str, topic_prefix: str, tmp_path: Path, kind: str
) -> None:
    """The process lives, plain and async tools go on being served, nothing secret is logged."""
    with host(kafka_bootstrap, database, f"{topic_prefix}done", tmp_path) as made:
        for number, (tool, reason) in enumerate(REASONS[kind].items(), start=10):
            made.produce(tool, number)
            wait_until(lambda t=tool, r=reason: give_reason(made, t, r), f"{tool}: {reason}")  # type: ignore[misc]  # bound to this turn
        served = [made.serves("good", 2), made.serves("good_async", 3)]
        assert made.process.poll() is None, made.log[-1_000:].replace(SECRET, "SECRET")
        assert served == [True, True]
        assert SECRET not in made.log
        assert "Traceback" not in made.log


def test_an_error_class_that_is_no_word_is_replaced(
    kafka_bootstrap: str, database: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A number, a sentence and a long text: failed, and neither stored nor logged as they are."""
    tools = ("failed_number", "failed_sentence", "failed_long")
    with host(kafka_bootstrap, database, f"{topic_prefix}done", tmp_path) as made:
        for number, tool in enumerate(tools, start=10):
            made.produce(tool, number)
        for tool in tools:
            wait_until(lambda t=tool: made.state(t) == "failed", f"the end of {tool}")  # type: ignore[misc]  # bound to this turn
        assert [made.error_class(tool) for tool in tools] == ["tool_failed"] * 3
        assert SECRET not in made.log
        assert "x" * 100 not in made.log


def test_tools_that_never_return_do_not_keep_the_executor_from_ending(
    kafka_bootstrap: str, database: str, topic_prefix: str, tmp_path: Path
) -> None:
    """After SIGTERM and the drain time the process ends; the calls are left to their leases."""
    with host(kafka_bootstrap, database, f"{topic_prefix}done", tmp_path) as made:
        for number, tool in enumerate(
            ("endless", "transactional_endless", "async_blocking"), start=10
        ):
            made.produce(tool, number)
            wait_until(lambda t=tool: made.has_begun(t), f"the start of {tool}")  # type: ignore[misc]  # bound to this turn
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(STOP_S) == 0
        assert "calls_left_running" in made.log
