"""An observer that writes log lines and counts; the counts are for metrics to read."""

from collections import Counter
from collections.abc import Sequence

import structlog

from processor.core.identity import CallKey
from processor.telemetry.logging import RepeatFilter

#: Verdicts and states that somebody has to look at.
_ALARMING = frozenset({"conflict", "in_doubt", "paused"})


class LogObserver:
    """See `Observer`. `counts` holds (what, tool or empty, word) -> how often.

    `listed` names the tools of the catalogue: a model may ask for any name, and only these are counted
    by name when nobody here serves them.
    """

    def __init__(
        self, log: structlog.stdlib.BoundLogger, listed: frozenset[str] = frozenset()
    ) -> None:
        self._log = log
        self._listed = listed
        self._repeats = RepeatFilter()
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def started(self, group: str, slot: str | None, tools: Sequence[str]) -> None:
        """See `Observer.started`."""
        self._log.info("executor_started", group=group, slot=slot, tools=list(tools))

    def verdict(self, key: CallKey, tool: str, kind: str) -> None:
        """See `Observer.verdict`."""
        self.counts["verdict", tool, kind] += 1
        if kind in _ALARMING:
            self._log.error(f"claim_{kind}", tool=tool, **_ids(key))
        elif kind != "claimed":
            self._log.info(f"claim_{kind}", tool=tool, **_ids(key))

    def ended(self, key: CallKey, tool: str, state: str, why: str | None, seconds: float) -> None:
        """See `Observer.ended`."""
        self.counts["ended", tool, state] += 1
        line = self._log.error if state in _ALARMING else self._log.info
        line(f"call_{state}", tool=tool, why=why, seconds=round(seconds, 4), **_ids(key))

    def delayed(self, key: CallKey, tool: str, code: str) -> None:
        """See `Observer.delayed`."""
        self.counts["delayed", tool, code] += 1
        total = self._repeats.count(f"delayed {code}")
        if total is not None:
            self._log.warning("ledger_not_answering", code=code, total=total, **_ids(key))

    def bad_record(self, topic: str, partition: int, offset: int, code: str) -> None:
        """See `Observer.bad_record`."""
        self.counts["bad_record", "", code] += 1
        self._log.error(
            "completed_record_unreadable",
            topic=topic,
            partition=partition,
            offset=offset,
            code=code,
        )

    def client_error(self, name: str) -> None:
        """See `Observer.client_error`."""
        self.counts["client_error", "", name] += 1
        total = self._repeats.count(name)
        if total is not None:
            self._log.warning("kafka_client_error", name=name, total=total)

    def skipped(self, key: CallKey, tool: str) -> None:
        """See `Observer.skipped`."""
        named = tool if tool in self._listed else "_other"
        self.counts["skipped", named, ""] += 1
        total = self._repeats.count(f"skipped {named}")
        if total is not None:
            self._log.warning(
                "call_skipped",
                tool=named,
                why="this executor group does not serve the tool",
                total=total,
                **_ids(key),
            )

    def left_running(self, calls: int) -> None:
        """See `Observer.left_running`."""
        self.counts["left_running", "", ""] += calls
        self._log.warning("calls_left_running", calls=calls, why="the drain time is over")

    @property
    def calls_left_running(self) -> int:
        """Calls that still run although the executor has ended."""
        return self.counts["left_running", "", ""]


def _ids(key: CallKey) -> dict[str, str]:
    return {
        "tenant": key.tenant,
        "request_id": key.request_id,
        "response_id": key.response_id,
        "call_id": key.call_id,
    }
