"""Structured logs: one JSON object per line on standard error, ids allowed, content never.

Rules:
    A log line carries names, numbers, ids and reasons. It never carries arguments, results, keys
    of other systems or a client's endless error: repeats of one name are counted, not printed.
"""

import logging
import re
import sys
from collections import Counter
from typing import Final, cast

import structlog

#: Every power of this many repeats of one client error is printed, so a loop stays a few lines.
_REPEAT_FACTOR: Final = 10
_INFO: Final = 20
_NUMBER: Final = re.compile(r"\d+")


def make_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger that writes JSON lines to standard error and has no global configuration."""
    logger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_INFO),
    )
    return cast("structlog.stdlib.BoundLogger", logger.bind(component=name))


class RepeatFilter:
    """Says which occurrence of a repeating name is worth a line: 1st, 10th, 100th, ..."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def count(self, name: str) -> int | None:
        """Count one more; the total when it is worth a line, else None."""
        self._seen[name] += 1
        total = self._seen[name]
        while total % _REPEAT_FACTOR == 0:
            total //= _REPEAT_FACTOR
        return self._seen[name] if total == 1 else None


class ThinRepeats(logging.Filter):
    """Lets the 1st, 10th, 100th, ... of equal lines through; numbers in them do not count.

    For a client's own lines about a broker that is not there: one each second, without end.
    """

    def __init__(self) -> None:
        super().__init__()
        self._repeats = RepeatFilter()

    def filter(self, record: logging.LogRecord) -> bool:
        """True when the line is worth showing."""
        return self._repeats.count(_NUMBER.sub("#", record.getMessage())) is not None
