"""Open transactions as Kafka shows them: a partition's last stable offset lies below its end."""

from collections.abc import Iterable, Sequence
from typing import Final

from processor.runtime.kafka import (
    Consumer,
    KafkaException,
    TopicPartition,
    ending,
    make_log_reader,
)
from processor.runtime.leftovers import Place
from processor.runtime.settings import RuntimeSettings

_ASK_S: Final = 10.0


class KafkaStableEnds:
    """The `StableEnds` of some topics. Its two clients are made at the first question."""

    def __init__(self, settings: RuntimeSettings, topics: Sequence[str]) -> None:
        self._settings = settings
        self._topics = topics
        self._clients: tuple[Consumer, Consumer] | None = None

    def open_at(self, places: Iterable[Place] | None = None) -> dict[Place, int]:
        """See `StableEnds`. Raises: what `ending` makes of the client's error."""
        if self._clients is None:
            self._clients = (
                make_log_reader(self._settings, committed=True),
                make_log_reader(self._settings, committed=False),
            )
        stable, whole = self._clients
        try:
            return {
                place: at
                for place in (self._all(stable) if places is None else places)
                if (at := _end(stable, place)) < _end(whole, place)
            }
        except KafkaException as e:
            raise ending(e, "ask for open transactions") from e

    def _all(self, client: Consumer) -> list[Place]:
        return [
            Place(topic, partition)
            for topic in self._topics
            for partition in client.list_topics(topic, _ASK_S).topics[topic].partitions
        ]


def _end(client: Consumer, place: Place) -> int:
    """The end that this client's isolation level shows; the stable one is asked first."""
    return client.get_watermark_offsets(TopicPartition(place.topic, place.partition), _ASK_S)[1]
