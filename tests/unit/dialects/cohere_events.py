"""Builders of synthetic Cohere v2 events."""

from tests.unit.dialects.wires import Chunk

BEGIN: Chunk = {"type": "message-start", "id": "cohere-0001", "delta": {"message": {}}}


def message_end(finish: str | None = "TOOL_CALL", **delta: object) -> Chunk:
    """The end of the response."""
    return {"type": "message-end", "delta": {"finish_reason": finish, **delta}}


def call_event(kind: str, index: int | None, of: Chunk | None = None) -> Chunk:
    """An event of one call; without an index it has none."""
    event: Chunk = {"type": f"tool-call-{kind}"}
    if index is not None:
        event["index"] = index
    if of is not None:
        event["delta"] = {"message": {"tool_calls": of}}
    return event


def start(
    index: int | None, call_id: str | None, tool: str | None = "x", arguments: object = ""
) -> Chunk:
    """The start of a call; what is None is left out."""
    function = {"name": tool, "arguments": arguments}
    of: Chunk = {
        "type": "function",
        "function": {k: v for k, v in function.items() if v is not None},
    }
    return call_event("start", index, of if call_id is None else {"id": call_id, **of})


def delta(index: int | None, arguments: object, **more: object) -> Chunk:
    """A fragment."""
    return call_event("delta", index, {"function": {"arguments": arguments, **more}})


def end(index: int | None) -> Chunk:
    """The end of a call."""
    return call_event("end", index)


def cohere_call(call_id: str, index: int, *fragments: str) -> list[Chunk]:
    """All events of one well-formed call."""
    return [start(index, call_id), *(delta(index, text) for text in fragments), end(index)]
