"""The group as seen through a real broker, also through one that stands still."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from processor.devstack import status
from processor.runtime.errors import Unreachable
from processor.runtime.group_view import KafkaGroupView
from processor.runtime.settings import RuntimeSettings
from tests.integration.assembler_rig import rig, wait_until

pytestmark = pytest.mark.integration


@contextmanager
def frozen(stack: Path) -> Generator[None]:
    """The broker of this run stands still; for a moment only, it is everybody's."""
    pid = status(stack).kafka.pid
    if pid is None:
        pytest.skip("the broker is not ours to freeze")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_each_slot_is_seen_with_its_partitions(kafka_bootstrap: str, topic_prefix: str) -> None:
    """The names are the slots, and together they have every partition."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        view = KafkaGroupView(
            RuntimeSettings(kafka_bootstrap, made.input_topic, group=made.group), ask_s=20
        )
        # A broker that has just begun says that it is loading its groups.
        wait_until(lambda: _answers(view.owned), "the broker's groups")
        assert view.owned() is None
        for slot in ("0", "one.1"):
            made.start(slot)

        def shared() -> bool:
            owned = view.owned() or {}
            partitions = sorted(p for held in owned.values() for p in held)
            return set(owned) == {"0", "one.1"} and partitions == [0, 1, 2]

        wait_until(shared, "both slots with partitions")


def test_an_answer_that_comes_after_the_time_limit_does_not_end_the_process(
    kafka_bootstrap: str, stack_directory: Path
) -> None:
    """The client's newer question aborts the process then; a frozen broker shows it each time."""
    view = KafkaGroupView(RuntimeSettings(kafka_bootstrap, "events", group="nobody"), ask_s=0.3)
    with frozen(stack_directory), pytest.raises(Unreachable):
        view.owned()
    wait_until(lambda: _answers(view.owned), "the broker's answer")


def _answers(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except Unreachable:
        return False
    return True
