"""Arguments that come as an object: the text is the wire's, not a reader's."""

import json
from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.dialects.json_lines import decode
from processor.dialects.object_text import DEPTH_MAX, Unwritable, object_text

EXACT = (
    '{"b":1,"a":{"z":[],"y":{}},"c":[1,"x",null,true,false]}',
    '{"n":1.10,"e":1E5,"big":123456789012345678901234567890,"far":1e400,"low":-0.0}',
    '{"é":"😀","q":"\\"\\\\\\n\\u0001","":0.1}',
)


def text_of(wire: str) -> str:
    """The text of an object as it is read from the wire."""
    return object_text(cast("Mapping[str, object]", decode(wire.encode())))


@pytest.mark.parametrize("text", EXACT)
def test_a_compact_object_is_written_as_it_came(text: str) -> None:
    """Order, digits and characters; nothing is rounded, sorted or escaped."""
    assert text_of(text) == text


def test_white_space_and_needless_escapes_are_no_part_of_the_text() -> None:
    """Two ways to send one object are one text."""
    assert text_of('{ "a" : [ 1.50 , "\\u00e9\\/" ] }') == '{"a":[1.50,"é/"]}'


def test_digits_are_kept_beside_half_a_character() -> None:
    """The reader that joins halves is another one, and as exact."""
    assert text_of('{"a":"\\ud83d","n":1.10}') == '{"a":"\ud83d","n":1.10}'


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({1: 2}, "malformed_event"),
        ({"a": b""}, "malformed_event"),
        ({"a": 10**5000}, "number_out_of_range"),
    ],
)
def test_what_json_cannot_say_is_refused(value: object, reason: str) -> None:
    """Chunks may also come from a program's own objects."""
    with pytest.raises(Unwritable) as caught:
        object_text(cast("Mapping[str, object]", value))
    assert caught.value.reason == reason


@pytest.mark.parametrize("container", ["list", "object"])
def test_depth_is_bounded(container: str) -> None:
    """No input spends the stack."""
    value: object = 1
    for _ in range(DEPTH_MAX - 1):
        value = [value] if container == "list" else {"a": value}
    assert object_text({"a": value}).startswith('{"a":')
    with pytest.raises(Unwritable) as caught:
        object_text({"a": {"a": value} if container == "object" else [value]})
    assert caught.value.reason == "too_deep"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(-(2.0**53), 2.0**53, exclude_min=True, exclude_max=True)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES))
def test_any_object_is_written_as_the_standard_library_does(value: dict[str, object]) -> None:
    """Against an independent writer, from memory and from the wire."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert object_text(value) == text
    assert text_of(text) == text


@pytest.mark.parametrize("number", [2.0**53, -(2.0**53), 1e22, 1.2345678901234568e16])
def test_a_float_that_may_have_lost_an_integer_is_refused(number: float) -> None:
    """Another decoder made it; from the wire itself the digits are still there."""
    with pytest.raises(Unwritable) as caught:
        object_text({"a": number})
    assert caught.value.reason == "number_out_of_range"
    assert text_of(json.dumps({"a": number})) == json.dumps({"a": number}, separators=(",", ":"))
