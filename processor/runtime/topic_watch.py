"""Watches that the input topic stays what it was: not made again, and not given more partitions.

Rules:
    Positions belong to one topic id, and keys to one partition count. A restart refuses another one;
    this finds it while the process runs, and ends it in the same way.
    A failure to ask is not an answer.
"""

import threading
from collections.abc import Callable
from typing import Final

from processor.core.errors import ProcessorError
from processor.runtime.errors import RestoreRefused
from processor.runtime.restore import TopicFacts

TOPIC_WATCH_INTERVAL_S: Final = 2.0


class TopicWatch:
    """A thread that asks every few seconds; `end` is told once what the process must end with.

    `ask` returns None while the topic is not found: it may be on its way to be made again.
    """

    def __init__(
        self,
        topic: str,
        facts: TopicFacts,
        ask: Callable[[], TopicFacts | None],
        end: Callable[[ProcessorError], None],
        *,
        interval_s: float = TOPIC_WATCH_INTERVAL_S,
    ) -> None:
        self._topic = topic
        self._facts = facts
        self._ask = ask
        self._end = end
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic", daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; does not wait for a look under way."""
        self._stop.set()

    def look(self) -> bool:
        """One look; True when the topic is another one, which `end` was told."""
        try:
            found = self._ask()
        except ProcessorError:
            return False
        if found is None or found == self._facts:
            return False
        self._end(self._refusal(found))
        return True

    def _refusal(self, found: TopicFacts) -> RestoreRefused:
        topic, facts = self._topic, self._facts
        if found.topic_id != facts.topic_id:
            return RestoreRefused(
                f"topic_recreated: {topic} now has topic id {found.topic_id}, this process reads"
                f" {facts.topic_id}. The topic was deleted and made again: delete the group's offsets"
                " and start it with --start earliest"
            )
        return RestoreRefused(
            f"partitions_changed: {topic} now has {found.partitions} partitions, it had"
            f" {facts.partitions} when this process began. Keys have moved between partitions: drain"
            " the topic with the old count, then use a new topic"
        )

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            if self.look():
                return
