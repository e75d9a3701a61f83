"""Objects of vendors' SDKs are read by the method they have, and only what the wire carried."""

import math
import warnings
from enum import StrEnum

import pytest
from openai._models import construct_type
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseFunctionCallArgumentsDeltaEvent
from pydantic import BaseModel, ConfigDict

from processor.publisher.chunks import UnreadableChunk, as_mapping, is_raw

SECRET = "sk-canary-0002"


def test_an_object_of_the_openai_sdk_gives_the_wire_form_back() -> None:
    """Members that the wire did not carry are not invented."""
    wire: dict[str, object] = {
        "type": "response.function_call_arguments.delta",
        "item_id": "fc_A",
        "output_index": 0,
        "delta": "{",
        "sequence_number": 4,
        "obfuscation": "kept although the SDK does not know it",
    }
    sent = ResponseFunctionCallArgumentsDeltaEvent.model_validate(wire)
    assert as_mapping(sent) == wire


def test_a_value_of_an_unexpected_type_is_passed_on_without_a_warning_that_quotes_it() -> None:
    """The serializer's warnings quote values; servers do send other types than the SDK expects."""
    wire: dict[str, object] = {"id": "chatcmpl-1", "choices": SECRET, "created": "yesterday"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # As the SDK itself builds objects of a stream: without validation.
        assert as_mapping(construct_type(value=wire, type_=ChatCompletionChunk)) == wire


class Word(StrEnum):
    """An enumeration of an SDK."""

    STOP = "STOP"


class Parsed(BaseModel):
    """An object with values that JSON has no form for."""

    model_config = ConfigDict(extra="allow")
    finish: Word | None = None
    args: dict[str, object] | None = None


def test_a_number_that_is_none_never_becomes_null() -> None:
    """The serializer's JSON form writes null for an overflow: other arguments than the wire's."""
    args: dict[str, object] = {"x": math.inf, "y": [{"z": -math.inf}]}
    assert as_mapping(Parsed(args=args)) == {"args": args}


def test_an_enumeration_is_the_word_of_the_wire() -> None:
    """Also inside of a list of objects."""
    read = as_mapping(Parsed.model_validate({"candidates": [{"finish": Word.STOP}]}))
    assert read == {"candidates": [{"finish": "STOP"}]}
    assert type(as_mapping(Parsed(finish=Word.STOP))["finish"]) is str


def test_an_event_that_wraps_its_chunk_is_that_chunk() -> None:
    """With other fields beside it, it is a chunk of its own that has some data."""
    chunk: dict[str, object] = {"id": "1", "choices": ["x"]}
    assert as_mapping(Parsed.model_validate({"data": chunk})) == chunk
    others: list[dict[str, object]] = [
        {"data": chunk, "choices": ["x"]},
        {"data": "text", "id": "1"},
    ]
    for wire in others:
        assert as_mapping(Parsed.model_validate(wire)) == wire


def test_a_mapping_is_taken_as_it_is() -> None:
    """No copy is made."""
    wire: dict[str, object] = {"type": "ping"}
    assert as_mapping(wire) is wire


class WithToDict:
    """An SDK's object without pydantic."""

    def to_dict(self) -> dict[str, object]:
        """The wire form."""
        return {"type": "ping"}


class Broken:
    """An object whose own method fails with a text that quotes content."""

    def to_dict(self) -> dict[str, object]:
        """Fail."""
        raise ValueError(SECRET)


def test_an_object_with_to_dict_is_read_by_it() -> None:
    """Not every SDK is made of pydantic models."""
    assert as_mapping(WithToDict()) == {"type": "ping"}


@pytest.mark.parametrize("chunk", [SECRET, 7, None, [SECRET], Broken()])
def test_anything_else_is_refused_by_its_type_alone(chunk: object) -> None:
    """The refusal names the type, never the value."""
    with pytest.raises(UnreadableChunk, match=type(chunk).__name__) as caught:
        as_mapping(chunk)
    assert SECRET not in str(caught.value)


def test_bytes_of_every_kind_are_raw() -> None:
    """Text is not: its encoding was lost."""
    assert [is_raw(c) for c in (b"x", bytearray(b"x"), memoryview(b"x"), "x")] == [
        True,
        True,
        True,
        False,
    ]
