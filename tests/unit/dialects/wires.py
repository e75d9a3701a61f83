"""Builders of synthetic chunks: a test names only what it is about."""

import json
from collections.abc import Iterable, Mapping

Chunk = dict[str, object]

RESPONSE_ID = "chatcmpl-0001"


def entry(
    index: int | None = 0,
    call_id: str | None = None,
    name: str | None = None,
    arguments: object = None,
    **more: object,
) -> Chunk:
    """One entry of `tool_calls`; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    of: Chunk = {"index": index, "id": call_id, **more}
    of["function"] = {k: v for k, v in function.items() if v is not None}
    return {k: v for k, v in of.items() if v is not None}


def chat(
    *entries: Chunk, finish: str | None = None, choice: int = 0, response_id: str = RESPONSE_ID
) -> Chunk:
    """One chunk of a Chat stream."""
    delta: Chunk = {"tool_calls": list(entries)} if entries else {}
    choices = [{"index": choice, "delta": delta, "finish_reason": finish}]
    return {"id": response_id, "object": "chat.completion.chunk", "choices": choices}


def chat_call(call_id: str, index: int, *fragments: str, name: str = "lookup_order") -> list[Chunk]:
    """Head and fragments of one well-formed call."""
    head = chat(entry(index, call_id, name, ""))
    return [head, *(chat(entry(index, arguments=text)) for text in fragments)]


def item(call_id: str, text: str, status: str | None, name: str = "lookup_order") -> Chunk:
    """The item of a function call."""
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": text,
        "status": status,
    }


def lifecycle(kind: str, status: str, output: Iterable[Chunk] = ()) -> Chunk:
    """An event of the response as a whole."""
    response = {"id": "resp_0001", "status": status, "output": list(output)}
    return {"type": f"response.{kind}", "response": response}


def item_event(kind: str, index: int, of: Chunk) -> Chunk:
    """`output_item.added` or `.done`."""
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": of}


def text_event(kind: str, index: int, call_id: str, text: str) -> Chunk:
    """`function_call_arguments.delta` or `.done`."""
    field = "delta" if kind == "delta" else "arguments"
    return {
        "type": f"response.function_call_arguments.{kind}",
        "output_index": index,
        "item_id": f"fc_{call_id}",
        field: text,
    }


def responses_call(call_id: str, index: int, *fragments: str) -> list[Chunk]:
    """All events of one well-formed call."""
    whole = "".join(fragments)
    return [
        item_event("added", index, item(call_id, "", "in_progress")),
        *(text_event("delta", index, call_id, text) for text in fragments),
        text_event("done", index, call_id, whole),
        item_event("done", index, item(call_id, whole, "completed")),
    ]


def numbered(chunks: Iterable[Mapping[str, object]], first: int = 0) -> list[Chunk]:
    """The events with the vendor's numbers."""
    return [{**chunk, "sequence_number": n} for n, chunk in enumerate(chunks, first)]


def response(*calls: list[Chunk], output: Iterable[Chunk] = ()) -> list[Chunk]:
    """A whole response with its calls one after the other."""
    inner = [chunk for call in calls for chunk in call]
    begin = [lifecycle("created", "in_progress"), lifecycle("in_progress", "in_progress")]
    return numbered([*begin, *inner, lifecycle("completed", "completed", output)])


def sse(chunks: Iterable[object], end: str = "\n") -> bytes:
    """The chunks as server-sent events."""
    lines = (f"data: {json.dumps(chunk)}{end}{end}" for chunk in chunks)
    return "".join(lines).encode()
