"""The low-water mark: the smallest offset from which the tracked keys can be built again.

Rules:
    `low` is the first record that some tracked key still needs: a closed key its last record, any
    other its first one.
    A restart at `low` must reach the state of a process that never stopped. It would not, if it
    took a repeated first event for the first one, or counted other open calls than were open.
    Each such case leaves a span (cause, decision] in which `low` may not lie; `low` falls back to
    the cause. Spans that touch are one span. They are rare, and forgotten once `low` has passed.
    A restarted fold needs no spans of the life before: its own log begins at `low`.
"""

from typing import NamedTuple


class LowWater(NamedTuple):
    """Where a restart begins: the next offset to read, and the log time just before it."""

    offset: int
    log_time_ms: int


class _Span(NamedTuple):
    cause: LowWater
    decision_offset: int


class Spans:
    """The offsets at which a restart may not begin, each with the place to begin at instead."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: list[_Span] = []

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, cause: LowWater, decision_offset: int) -> None:
        """Forbid `low` in (cause, decision_offset]; `cause` is never below a `low` already given.

        Cost: linear in the spans.
        """
        apart: list[_Span] = []
        for span in self._spans:
            if span.cause.offset <= decision_offset and cause.offset <= span.decision_offset:
                cause = min(cause, span.cause)
                decision_offset = max(decision_offset, span.decision_offset)
            else:
                apart.append(span)
        apart.append(_Span(cause, decision_offset))
        self._spans = apart

    def settle(self, low: LowWater) -> LowWater:
        """Move `low` back out of its span, and drop the spans that lie wholly below it.

        Cost: linear in the spans.
        """
        self._spans = [span for span in self._spans if span.decision_offset >= low.offset]
        for span in self._spans:
            if span.cause.offset < low.offset:
                return span.cause
        return low
