"""LangChain's `AIMessageChunk` as a Chat Completions chunk, whatever model is behind it.

Rules (langchain-core `messages/ai.py`, `messages/tool.py`; langchain-openai `chat_models/base.py`):
    A message has `response_metadata`, its chunk `tool_call_chunks` too; nothing is imported.
    `tool_call_chunks` are the pieces of the wire. `tool_calls` and `invalid_tool_calls` are parsed
    from each piece alone, halves of objects put right, and are never read.
    An id that LangChain made for its own run is no id of the response.
    A success is the provider's own word only: `finish_reason` as it stands, and the words below of
    those that name it otherwise. Every other word goes on unchanged, and the dialect refuses it.
    `chunk_position` proves nothing: "last" also ends a stream that was cut.
    Counters are passed on for the OpenAI form only; other providers' are increments, no totals.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeGuard, cast

Mapped = Mapping[str, object]

_RUN_IDS: Final = ("lc_", "run-")
_FINISH: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason")
#: Words of success of other providers, and the one of Chat's form.
_SUCCESS: Final = {
    "STOP": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
}
#: LangChain's counters, and where Chat's form keeps them.
_COUNTERS: Final = (
    ("input_tokens", "prompt_tokens"),
    ("output_tokens", "completion_tokens"),
    ("total_tokens", "total_tokens"),
)
_DETAILS: Final = (
    ("input_token_details", "cache_read", "prompt_tokens_details", "cached_tokens"),
    ("output_token_details", "reasoning", "completion_tokens_details", "reasoning_tokens"),
)


class MessageChunk(Protocol):
    """What is read of a LangChain chunk."""

    id: object
    tool_call_chunks: Sequence[Mapped]
    response_metadata: Mapped


def is_message(chunk: object) -> bool:
    """True for a LangChain message of any kind, known by what it has."""
    return hasattr(chunk, "response_metadata") and hasattr(chunk, "additional_kwargs")


def is_message_chunk(chunk: object) -> TypeGuard[MessageChunk]:
    """True for the message kind whose pieces of calls can be read."""
    return is_message(chunk) and hasattr(chunk, "tool_call_chunks")


def as_chat_chunk(chunk: MessageChunk) -> Mapped:
    """One chunk in the Chat form; the dialect of its stream is `openai-chat`."""
    told = chunk.response_metadata
    delta: dict[str, object] = {"tool_calls": [_entry(piece) for piece in chunk.tool_call_chunks]}
    shaped: dict[str, object] = {"choices": [{"index": 0, "delta": delta, **_finish(told)}]}
    if isinstance(chunk.id, str) and not chunk.id.startswith(_RUN_IDS):
        shaped["id"] = chunk.id
    model = told.get("model_name") or told.get("model")
    if model is not None:
        shaped["model"] = model
    usage: object = getattr(chunk, "usage_metadata", None)
    if isinstance(usage, Mapping) and told.get("model_provider") in (None, "openai"):
        shaped["usage"] = _usage(cast("Mapped", usage))
    return shaped


def _entry(piece: Mapped) -> Mapped:
    return {
        "index": piece.get("index"),
        "id": piece.get("id"),
        "type": "function",
        "function": {"name": piece.get("name"), "arguments": piece.get("args")},
    }


def _finish(told: Mapped) -> Mapped:
    words = [told[name] for name in _FINISH if told.get(name)]
    if not words:
        return {}
    # Two of them that differ are a contradiction, and no word that the dialect knows.
    word = words[0] if all(word == words[0] for word in words) else "contradiction"
    return {"finish_reason": _SUCCESS.get(word, word) if isinstance(word, str) else word}


def _usage(of: Mapped) -> Mapped:
    found: dict[str, object] = {
        theirs: of[ours] for ours, theirs in _COUNTERS if of.get(ours) is not None
    }
    for ours, inner, theirs, name in _DETAILS:
        details = of.get(ours)
        value = cast("Mapped", details).get(inner) if isinstance(details, Mapping) else None
        if value is not None:
            found[theirs] = {name: value}
    return found
