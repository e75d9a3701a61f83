"""Outputs that wait for the next transaction, as the producer will take them.

Rules:
    Only the loop appends; the committer gets a whole outbox and never shares it.
"""

from typing import NamedTuple

from processor.codec.headers import Headers

__all__ = ["Headers", "Outbox", "OutputRecord"]


class OutputRecord(NamedTuple):
    """One record to produce. `partition` None leaves the choice to the partitioner (by key)."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None


Outbox = list[OutputRecord]
