"""The executor: runs completed calls with your tools, each at most once, and records what came of it."""

from processor.executor.context import ToolContext
from processor.executor.signals import NotSent, ToolFailed
from processor.executor.tools import ToolSet, tool

__all__ = ["NotSent", "ToolContext", "ToolFailed", "ToolSet", "tool"]
