"""The executor: runs completed calls with your tools, each at most once, and records what came of it."""

from processor.executor.context import ToolContext
from processor.executor.signals import (
    Happened,
    NotHappened,
    NotSent,
    OutcomeUnknown,
    ToolFailed,
)
from processor.executor.tools import ToolSet, tool

__all__ = [
    "Happened",
    "NotHappened",
    "NotSent",
    "OutcomeUnknown",
    "ToolContext",
    "ToolFailed",
    "ToolSet",
    "tool",
]
