"""Builders of messages made of content blocks, in the two dialects that have them."""

from typing import Protocol

from tests.unit.dialects.verdicts import verdicts
from tests.unit.dialects.wires import Chunk

MESSAGE_ID = "msg_0001"


class MessageWire(Protocol):
    """How a dialect writes the events of a message."""

    dialect: str

    def start(self) -> Chunk:
        """The message starts."""
        ...

    def head(self, index: int, call_id: object, name: object = "lookup_order") -> Chunk:
        """A call starts."""
        ...

    def text(self, index: int, text: str = "Checking.") -> list[Chunk]:
        """A whole block of text."""
        ...

    def providers(self, index: int, call_id: str) -> Chunk:
        """A call starts that the provider executes."""
        ...

    def fragment(self, index: object, text: object) -> Chunk:
        """A piece of arguments."""
        ...

    def stop(self, index: int) -> Chunk:
        """A block stops."""
        ...

    def reason(self, word: str) -> Chunk:
        """Why the message stops."""
        ...

    def last(self) -> Chunk:
        """What ends the message."""
        ...


class AnthropicWire:
    """Events of Anthropic Messages."""

    dialect = "anthropic"

    def start(self, message_id: object = MESSAGE_ID) -> Chunk:
        """The message starts."""
        usage = {"input_tokens": 61, "output_tokens": 1}
        of: Chunk = {"id": message_id, "model": "claude-test", "content": [], "usage": usage}
        return {"type": "message_start", "message": of}

    def head(self, index: int, call_id: object, name: object = "lookup_order") -> Chunk:
        """A call starts."""
        return self.block(index, "tool_use", id=call_id, name=name, input={})

    def block(self, index: int, kind: str, **more: object) -> Chunk:
        """A block of any type starts."""
        of = {"type": kind, **more}
        return {"type": "content_block_start", "index": index, "content_block": of}

    def delta(self, index: object, kind: str, **more: object) -> Chunk:
        """A delta of any type."""
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}

    def text(self, index: int, text: str = "Checking.") -> list[Chunk]:
        """A whole block of text."""
        delta = self.delta(index, "text_delta", text=text)
        return [self.block(index, "text", text=""), delta, self.stop(index)]

    def providers(self, index: int, call_id: str) -> Chunk:
        """A call starts that the provider executes."""
        return self.block(index, "server_tool_use", id=call_id, name="web_search", input={})

    def fragment(self, index: object, text: object) -> Chunk:
        """A piece of arguments."""
        return self.delta(index, "input_json_delta", partial_json=text)

    def stop(self, index: int) -> Chunk:
        """A block stops."""
        return {"type": "content_block_stop", "index": index}

    def reason(self, word: str) -> Chunk:
        """Why the message stops."""
        usage = {"output_tokens": 18}
        return {"type": "message_delta", "delta": {"stop_reason": word}, "usage": usage}

    def last(self) -> Chunk:
        """What ends the message."""
        return {"type": "message_stop"}


class BedrockWire:
    """Events of Bedrock ConverseStream, as botocore yields them."""

    dialect = "bedrock-converse"

    def start(self) -> Chunk:
        """The message starts."""
        return {"messageStart": {"role": "assistant"}}

    def head(self, index: int, call_id: object, name: object = "lookup_order") -> Chunk:
        """A call starts."""
        return self.block(index, toolUseId=call_id, name=name)

    def block(self, index: int, **tool: object) -> Chunk:
        """A block of a tool starts."""
        return {"contentBlockStart": {"contentBlockIndex": index, "start": {"toolUse": tool}}}

    def delta(self, index: object, **of: object) -> Chunk:
        """A delta of any kind."""
        return {"contentBlockDelta": {"contentBlockIndex": index, "delta": of}}

    def text(self, index: int, text: str = "Checking.") -> list[Chunk]:
        """A whole block of text, which has no start."""
        return [self.delta(index, text=text), self.stop(index)]

    def providers(self, index: int, call_id: str) -> Chunk:
        """A call starts that the provider executes."""
        return self.block(index, toolUseId=call_id, name="web_search", type="server_tool_use")

    def fragment(self, index: object, text: object) -> Chunk:
        """A piece of arguments."""
        return self.delta(index, toolUse={"input": text})

    def stop(self, index: int) -> Chunk:
        """A block stops."""
        return {"contentBlockStop": {"contentBlockIndex": index}}

    def reason(self, word: str) -> Chunk:
        """Why the message stops."""
        return {"messageStop": {"stopReason": word}}

    def last(self) -> Chunk:
        """What ends the message."""
        usage = {"inputTokens": 61, "outputTokens": 18, "totalTokens": 79}
        return {"metadata": {"usage": usage, "metrics": {"latencyMs": 100}}}


ANTHROPIC = AnthropicWire()
BEDROCK = BedrockWire()
WIRES: tuple[MessageWire, ...] = (ANTHROPIC, BEDROCK)


def call_of(wire: MessageWire, call_id: str, index: int, *fragments: str) -> list[Chunk]:
    """The events of one well-formed call."""
    pieces = [wire.fragment(index, text) for text in fragments]
    return [wire.head(index, call_id), *pieces, wire.stop(index)]


def message(wire: MessageWire, *inner: Chunk, reason: str = "tool_use") -> list[Chunk]:
    """A whole message with these events inside."""
    return [wire.start(), *inner, wire.reason(reason), wire.last()]


def said(wire: MessageWire, *inner: Chunk, reason: str = "tool_use") -> dict[str, str]:
    """The verdicts of a whole message with these events inside."""
    return verdicts(wire.dialect, message(wire, *inner, reason=reason))
