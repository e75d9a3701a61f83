"""A relay observer that writes log lines and counts; the counts are for metrics to read."""

from collections import Counter

import structlog

from processor.ledger.outbox import OutboxEvent
from processor.telemetry.logging import RepeatFilter


class LogRelayObserver:
    """See `RelayObserver`. `counts` holds (what, word) -> how often. Ids and words only."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._repeats = RepeatFilter()
        self.counts: Counter[tuple[str, str]] = Counter()

    def started(self, topic: str) -> None:
        """Ledger and Kafka answer."""
        self._log.info("relay_started", topic=topic)

    def stopped(self) -> None:
        """The relay ends because it was asked to, or was idle for long enough."""
        self._log.info("relay_stopped", published=self.counts["published", ""])

    def published(self, events: int) -> None:
        """See `RelayObserver.published`."""
        self.counts["published", ""] += events

    def failing(self, code: str) -> None:
        """See `RelayObserver.failing`."""
        self.counts["failing", code] += 1
        total = self._repeats.count(f"failing {code}")
        if total is not None:
            self._log.warning("results_not_published", code=code, total=total)

    def body_left_out(self, event: OutboxEvent) -> None:
        """See `RelayObserver.body_left_out`."""
        self.counts["body_left_out", ""] += 1
        self._log.warning("result_body_left_out", **_ids(event))

    def untold(self, event: OutboxEvent, why: str) -> None:
        """See `RelayObserver.untold`."""
        self.counts["untold", why] += 1
        self._log.error("result_untold", why=why, state=event.state, **_ids(event))

    def client_error(self, name: str) -> None:
        """The Kafka client reported an error from which it recovers by itself."""
        self.counts["client_error", name] += 1
        total = self._repeats.count(name)
        if total is not None:
            self._log.warning("kafka_client_error", name=name, total=total)


def _ids(event: OutboxEvent) -> dict[str, object]:
    return {
        "tenant": event.tenant,
        "idempotency_key": event.idempotency_key,
        "fence": event.fence,
    }
