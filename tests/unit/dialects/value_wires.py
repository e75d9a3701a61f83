"""Builders of synthetic chunks for the dialects whose arguments are values: Gemini and Ollama."""

from collections.abc import Mapping
from typing import cast

from tests.unit.dialects.wires import Chunk


def gemini(
    *calls: Mapping[str, object],
    finish: str | None = None,
    candidate: int | None = 0,
    response_id: str | None = "gemini-resp-0001",
) -> Chunk:
    """One chunk with these functionCall parts; what is None is left out."""
    of: Chunk = {"index": candidate, "finishReason": finish}
    if calls:
        of["content"] = {"role": "model", "parts": [{"functionCall": call} for call in calls]}
    chunk: Chunk = {
        "candidates": [{k: v for k, v in of.items() if v is not None}],
        "responseId": response_id,
    }
    return {k: v for k, v in chunk.items() if v is not None}


def whole(call_id: str | None = "call_A", name: str | None = "f", **more: object) -> Chunk:
    """A call that comes whole; `args` is among `more` if it has any."""
    of: Chunk = {"id": call_id, "name": name, **more}
    return {k: v for k, v in of.items() if v is not None}


def head(call_id: str | None = "call_A", name: str = "f") -> Chunk:
    """The first part of a call whose leaves follow."""
    return {**whole(call_id, name), "willContinue": True}


def leaves(*of: Mapping[str, object], goes_on: bool = True) -> Chunk:
    """The next part of the open call."""
    return {"partialArgs": list(of), **({"willContinue": True} if goes_on else {})}


def leaf(path: str, value: object, *, goes_on: bool = False) -> Chunk:
    """One leaf; the kind of the value is told by its type."""
    kinds: dict[type, str] = {bool: "boolValue", str: "stringValue", type(None): "nullValue"}
    of: Chunk = {"jsonPath": path, kinds.get(type(value), "numberValue"): value}
    return {**of, "willContinue": True} if goes_on else of


#: What ends a call whose leaves have come.
CLOSE: Chunk = {}


def ollama(*calls: Mapping[str, object], done: bool = False, reason: str | None = "stop") -> Chunk:
    """One line with these calls; the last line has a reason."""
    message: Chunk = {"role": "assistant", "content": ""}
    if calls:
        message["tool_calls"] = list(calls)
    line: Chunk = {"model": "test", "message": message, "done": done}
    if done and reason is not None:
        line["done_reason"] = reason
    return line


def ollama_call(
    call_id: str | None = "call_A",
    name: str | None = "f",
    arguments: object = None,
    index: int | None = None,
) -> Chunk:
    """One entry of `tool_calls`."""
    function = {"index": index, "name": name, "arguments": arguments}
    of = {"id": call_id, "function": {k: v for k, v in function.items() if v is not None}}
    return cast("Chunk", {k: v for k, v in of.items() if v is not None})
