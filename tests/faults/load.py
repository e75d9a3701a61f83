"""The load of one run: a seeded log of calls, whole and broken ones, written at a steady pace.

Rules:
    Written by one idempotent producer past the proxies: the input is what the topic says it is,
    whatever happens to the processes under test; a broker that is away only makes it late.
"""

import random
import threading
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tests.integration.assembler_rig import Record, random_log

#: Records between two looks at the clock.
_SLICE: Final = 200
_FLUSH_S: Final = 90.0


class Load:
    """Writes `calls` calls drawn from `seed`, spread over `seconds`, on a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, seed: int, calls: int, seconds: float) -> None:
        self._topic = topic
        self._records: list[Record] = random_log(seed, calls)
        self._pause_s = seconds * _SLICE / max(1, len(self._records))
        self._failures: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    @property
    def count(self) -> int:
        """Records that the topic will hold."""
        return len(self._records)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """True while records are still to be written."""
        return self._thread.is_alive()

    def pause(self, seconds: float) -> None:
        """Wait a little, for a thread that looks at several things in turn."""
        self._stop.wait(seconds)

    def finish(self) -> None:
        """Wait until everything is written and acknowledged."""
        self._thread.join(_FLUSH_S * 2)
        assert not self._thread.is_alive(), "the load was not written in time"
        assert not self._failures, f"the load was not written: {self._failures[0]}"

    def _run(self) -> None:
        rng = random.Random(len(self._records))
        for place in range(0, len(self._records), _SLICE):
            for key, value in self._records[place : place + _SLICE]:
                self._produce(key, value)
            self._producer.poll(0)
            self._stop.wait(self._pause_s * rng.uniform(0.2, 1.8))
        if self._producer.flush(_FLUSH_S):
            self._failures.append("not flushed")

    def _produce(self, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            self._failures.append(error.name())
