"""What the official SDK makes of the wire is read as the wire itself."""

import json

import pytest
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from processor.dialects.stream import KeyedEvent
from tests.golden.replay import events_of, stream
from tests.golden.test_streams import data_of

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
NAMES = ("parallel-interleaved", "single-call", "unicode-escapes-split", "text-and-call")


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("name", NAMES)
def test_objects_of_the_sdk_give_the_events_of_the_bytes(dialect: str, name: str) -> None:
    """Only the fields that the wire carried, as the publisher passes them on."""
    data = data_of(f"{dialect}/{name}")
    of, told = stream(dialect), list[KeyedEvent]()
    for line in data.decode().splitlines():
        text = line.removeprefix("data: ")
        if text == line or text == "[DONE]":
            continue
        chunk = json.loads(text)
        made = (
            ChatCompletionChunk.model_validate(chunk)
            if dialect == "openai-chat"
            else EVENT.validate_python(chunk)
        )
        told += of.observe(made.model_dump(mode="json", exclude_unset=True, by_alias=True))
    assert told + of.end() == events_of(dialect, data)
