"""A client call that ignores its time limit, as librdkafka 2.16 does when the broker was away.

Seen on a real broker: killed for 9 s, `send_offsets_to_transaction(..., 8)` of four producers in
24 had not returned after 30 s and more. The loop went on polling, so the group kept the member.
"""

import threading
import time
from typing import cast

import pytest

from processor.core.errors import ProcessorError
from processor.runtime.committer import Committer, Transaction
from processor.runtime.crash_points import never_crash
from processor.runtime.kafka import Producer, TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.faults]

TIMEOUT_S = 0.1
PATIENCE_S = 20.0


class StuckProducer:
    """A transactional producer whose offsets request is never answered."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def init_transactions(self, timeout_s: float) -> None:
        """Answered."""

    def begin_transaction(self) -> None:
        """Local, as in the client."""

    def produce(self, *arguments: object, **keywords: object) -> None:
        """Taken."""

    def poll(self, timeout_s: float) -> int:
        """No events."""
        del timeout_s
        return 0

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], group_metadata: object, timeout_s: float
    ) -> None:
        """Never answered, whatever the limit."""
        del offsets, group_metadata, timeout_s
        self.released.wait()

    def commit_transaction(self, timeout_s: float) -> None:
        """Reached only after the release."""


def test_a_commit_that_outlives_its_time_limit_ends_the_wait_with_an_error() -> None:
    """`wait` raises, so a stop request and a revocation end and the supervisor restarts."""
    producer = StuckProducer()
    committer = Committer(
        cast("Producer", producer), never_crash, timeout_s=TIMEOUT_S, clock=time.monotonic
    )
    committer.start()
    committer.submit(Transaction([], [TopicPartition("events", 0, 1)], object))
    raised: list[ProcessorError] = []

    def wait() -> None:
        try:
            committer.wait()
        except ProcessorError as e:
            raised.append(e)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(PATIENCE_S)
    ended = not waiting.is_alive()
    producer.released.set()
    committer.stop()
    assert ended
    assert raised
