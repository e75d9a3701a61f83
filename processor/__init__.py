"""Tool-call stream processor: raw LLM stream events in, calls that are safe to act on out."""

__version__ = "0.1.0"
