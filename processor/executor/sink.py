"""A topic that somebody writes to who keeps the records until they are confirmed."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from processor.codec.headers import Headers

#: How the client names a record that is larger than it, or the topic, takes.
TOO_LARGE_CODE: Final = "MSG_SIZE_TOO_LARGE"


class SinkRecord(NamedTuple):
    """One record for a sink; its partition follows from the key (murmur2)."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class RecordSink(Protocol):
    """A topic to write to. Used from one thread."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    def publish(self, records: Sequence[SinkRecord]) -> list[str | None]:
        """Send and wait: for each record None when it is confirmed, else the client's error name.

        Bounded by the sink's delivery timeout. Raises: an error of `executor.errors` when the client
        cannot go on.
        """
        ...
