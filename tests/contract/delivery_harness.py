"""A ledger with its outbox and its usage book, in memory and in Postgres."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from processor.ledger.outbox import Outbox, OutboxEvent
from processor.ledger.postgres_outbox import PostgresOutbox
from processor.ledger.postgres_pool import PostgresSettings
from processor.ledger.postgres_usage import PostgresUsage
from processor.ledger.usage import UsageBook
from tests.contract.ledger_harness import Harness, MemoryHarness, PostgresHarness, open_harness


class Delivery(NamedTuple):
    """One ledger and what hangs on it."""

    harness: Harness
    outbox: Outbox
    book: UsageBook

    def take_all(self) -> list[OutboxEvent]:
        """Every event, batch by batch, marked as published."""
        events: list[OutboxEvent] = []
        while True:
            with self.outbox.batch(100, 1_000_000) as batch:
                events += batch.events
                batch.done([event.id for event in batch.events])
                if not batch.events:
                    return events


@contextmanager
def open_delivery(kind: str, request: pytest.FixtureRequest) -> Generator[Delivery]:
    """The ledger of this kind; Postgres with a database of its own."""
    with open_harness(kind, request) as harness:
        if isinstance(harness, MemoryHarness):
            yield Delivery(harness, harness.memory.outbox, harness.memory.usage)
            return
        assert isinstance(harness, PostgresHarness)
        settings = PostgresSettings(harness._database_url)
        with PostgresOutbox(settings) as outbox, PostgresUsage(settings) as book:
            yield Delivery(harness, outbox, book)
