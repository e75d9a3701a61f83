"""The tools of the demo. Each effect is one line in a file, so that effects can be counted.

Point `toolcalls execute --tools` at this file's path; TOOLCALLS_DEMO_EFFECTS names the effects file.
"""

import json
import os
from pathlib import Path

from processor.executor import ToolContext, tool


def _record_effect(tool_name: str, context: ToolContext) -> None:
    """Append one line; appending is atomic for a line this short (POSIX write with O_APPEND)."""
    line = json.dumps({"tool": tool_name, "key": context.idempotency_key}) + "\n"
    with Path(os.environ["TOOLCALLS_DEMO_EFFECTS"]).open("a") as file:
        file.write(line)


@tool(
    effect_class="idempotent",
    schema={
        "type": "object",
        "properties": {"order_id": {"type": "string"}},
        "required": ["order_id"],
        "additionalProperties": False,
    },
)
def lookup_order(order_id: str, context: ToolContext) -> dict[str, str]:
    """Say where an order is."""
    _record_effect("lookup_order", context)
    return {"order_id": order_id, "state": "shipped"}


@tool(
    effect_class="idempotent",
    schema={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
def get_weather(city: str, context: ToolContext) -> dict[str, str | int]:
    """Say how warm it is."""
    _record_effect("get_weather", context)
    return {"city": city, "celsius": 14}


@tool(
    effect_class="at_most_once",
    # Short, so that the lease of a killed executor is soon over.
    timeout_s=2,
    schema={
        "type": "object",
        "properties": {
            "order_id": {"type": "string"},
            "amount_cents": {"type": "integer", "minimum": 1},
        },
        "required": ["order_id", "amount_cents"],
        "additionalProperties": False,
    },
)
def refund_order(order_id: str, amount_cents: int, context: ToolContext) -> dict[str, str | int]:
    """Pay money back: an effect that can be neither undone nor asked about."""
    _record_effect("refund_order", context)
    return {"order_id": order_id, "refunded_cents": amount_cents}
