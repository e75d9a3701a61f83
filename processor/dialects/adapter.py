"""What a dialect is: a pure adapter that turns the chunks of one response into events of its calls.

Rules:
    An adapter never raises on bad data but by the two errors named here; both refuse calls.
    It knows no bytes: framing and JSON are read before it.
"""

from typing import ClassVar, Protocol

from processor.dialects.fields import Chunk
from processor.dialects.usage import CounterNames


class TooManyCalls(Exception):
    """The response has more parts than are kept track of; carries no text."""


class Adapter(Protocol):
    """One dialect: feeds the calls of one response from its chunks. Pure, not thread-safe."""

    counter_names: ClassVar[CounterNames]

    def observe(self, chunk: Chunk) -> None:
        """One decoded chunk. Raises: `Malformed`, `TooManyCalls`."""
        ...

    def damaged(self) -> None:
        """A chunk of the stream could not be read."""
        ...

    def sentinel(self) -> None:
        """The wire's own end mark, `[DONE]`, which proves no success by itself."""
        ...

    def end(self, *, cancelled: bool) -> None:
        """The input is over: every call that has not ended gets its end."""
        ...
