"""Bounds of a stretch of the log as people write them: a time, how long ago, or offsets."""

import re
from datetime import UTC, datetime
from typing import Final

from processor.audit.verify_plan import Bound
from processor.core.errors import Misuse

_OFFSETS: Final = re.compile(r"\d{1,6}:\d{1,14}(,\d{1,6}:\d{1,14})*")
_AGO: Final = re.compile(r"(\d{1,9})(s|m|h|d)")
_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_bound(option: str, text: str | None, now_ms: int) -> Bound:
    """A bound from `PARTITION:OFFSET,...`, `30m`, or ISO 8601 (UTC unless it says otherwise).

    Raises: `Misuse` naming the option and the three forms.
    """
    if text is None:
        return Bound()
    if _OFFSETS.fullmatch(text):
        pairs = [pair.split(":") for pair in text.split(",")]
        offsets = {int(partition): int(offset) for partition, offset in pairs}
        if len(offsets) < len(pairs):
            raise Misuse(f"{option} names a partition twice")
        return Bound(offsets=offsets)
    return Bound(time_ms=read_time_ms(option, text, now_ms))


def read_time_ms(option: str, text: str, now_ms: int) -> int:
    """Epoch milliseconds from `30m` (ago) or ISO 8601. Raises: `Misuse`."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _MS[ago[2]])
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return max(0, int(time.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise Misuse(
            f"{option} is a time (2026-12-01T10:00Z), how long ago (90s, 30m, 24h, 7d), or, where"
            " offsets are taken, PARTITION:OFFSET[,PARTITION:OFFSET]"
        ) from None
