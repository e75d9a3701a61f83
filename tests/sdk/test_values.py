"""Arguments that an SDK has parsed before we see them: the wire's value, or a refusal.

Rules:
    Equal means the same RFC 8785 value; the digits may differ. What no object shows any more is in
    `INVISIBLE`, and is the reason why the raw bytes are the recommended way for these two SDKs.
"""

import json
from decimal import Decimal

import pytest

from processor.core.outcomes import CallCompleted
from processor.dialects.stream import DialectError
from tests.sdk.clients import Gemini, Ollama
from tests.sdk.conftest import Opened
from tests.sdk.published import Told, told_by, told_by_bytes
from tests.sdk.server import ModelServer

SDKS = [Gemini.name, Ollama.name]
VALUES = [
    '{"x":1.0}',
    '{"x":1e5}',
    '{"x":0.1}',
    '{"x":-0}',
    '{"x":-0.0}',
    '{"x":1e400}',
    '{"x":-1e400}',
    '{"x":[{"y":1e400}]}',
    '{"x":NaN}',
    '{"x":1e22}',
    '{"x":9007199254740993}',
    '{"x":123456789012345678901234567890}',
    '{"x":12345678901234567.89}',
    '{"x":"\\ud83d"}',
    '{"x":"\\ud83d\\ude00"}',
    '{"x":"\\u0000"}',
    '{"x":null,"y":true,"z":"2024-01-01T00:00:00Z"}',
    '{"snake_case":{"camelCase":1}}',
    "[]",
    '"text"',
    "null",
]
#: What the SDK makes of a value, and no object shows: text on the wire, and what we complete.
INVISIBLE = {
    '{"x":1,"x":2}': ('{"x":2}', "of a member that comes twice the last is kept"),
    '{"a":{"x":1,"x":2}}': ('{"a":{"x":2}}', "also further in"),
    '{"x":0.1234567890123456789}': ('{"x":0.12345678901234568}', "the nearest double"),
    '{"x":1e-400}': ('{"x":0.0}', "the nearest double"),
}
LEAVES = ["3", "3.0", "0.1", "-0", "1e22", "1e400", "9007199254740993", "12345678901234567.89"]


def gemini_wire(arguments: str) -> bytes:
    """One whole call."""
    call = '{"functionCall":{"name":"lookup_order","args":%s}}'.replace("%s", arguments)
    of = '{"content":{"parts":[%s],"role":"model"},"finishReason":"STOP","index":0}'.replace(
        "%s", call
    )
    return f'data: {{"candidates":[{of}],"responseId":"resp_1"}}\n\n'.encode()


def ollama_wire(arguments: str) -> bytes:
    """One call, and the line that ends the response."""
    call = '{"function":{"name":"lookup_order","arguments":%s}}'.replace("%s", arguments)
    of = '{"role":"assistant","content":"","tool_calls":[%s]}'.replace("%s", call)
    end = (
        '{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}'
    )
    return f'{{"model":"m","message":{of},"done":false}}\n{end}\n'.encode()


def leaf_wire(number: str) -> bytes:
    """One call in parts, with one number among its leaves."""
    parts = (
        '{"name":"lookup_order","willContinue":true}',
        '{"partialArgs":[{"jsonPath":"$.x","numberValue":%s}],"willContinue":true}'.replace(
            "%s", number
        ),
        "{}",
    )
    chunks = [
        '{"content":{"parts":[{"functionCall":%s}]},"index":0'.replace("%s", part)
        + (',"finishReason":"STOP"}' if part == "{}" else "}")
        for part in parts
    ]
    return "".join(f'data: {{"candidates":[{of}]}}\n\n' for of in chunks).encode()


def wire(name: str, arguments: str) -> bytes:
    """A whole response of the dialect of an SDK."""
    return gemini_wire(arguments) if name == Gemini.name else ollama_wire(arguments)


def published(sdk: Opened, server: ModelServer, name: str, data: bytes) -> Told:
    """What the publisher makes of the SDK's objects."""
    of = sdk(name)
    model, _ = server.put(of.dialect, data)
    return told_by(of.dialect, of.open(model))


def value(call: CallCompleted) -> object:
    """The arguments as a value whose numbers are compared by value; -0 is 0 in RFC 8785."""
    return json.loads(call.arguments, parse_float=lambda text: Decimal(text) + 0)


@pytest.mark.parametrize("name", SDKS)
@pytest.mark.parametrize("arguments", VALUES)
def test_a_parsed_value_is_equal_or_refused(
    name: str, arguments: str, sdk: Opened, model_server: ModelServer
) -> None:
    """Never other arguments: above all no null where the wire had an overflow or NaN."""
    data = wire(name, arguments)
    told = published(sdk, model_server, name, data)
    try:
        raw = told_by_bytes(sdk(name).dialect, data)
    except DialectError:
        assert not told.completed
        return
    if told.completed:
        assert [value(one) for one in told.completed] == [value(one) for one in raw.completed]


@pytest.mark.parametrize("name", SDKS)
@pytest.mark.parametrize("arguments", INVISIBLE)
def test_what_no_object_shows_is_known(
    name: str, arguments: str, sdk: Opened, model_server: ModelServer
) -> None:
    """The limit of objects, as the documents state it: a change of an SDK shows here."""
    told = published(sdk, model_server, name, wire(name, arguments))
    assert [one.arguments.decode() for one in told.completed] == [INVISIBLE[arguments][0]]


@pytest.mark.parametrize("number", LEAVES)
def test_a_number_among_the_leaves_is_equal_or_refused(
    number: str, sdk: Opened, model_server: ModelServer
) -> None:
    """Google's SDK makes a float of every one: an integer is one again, a rounded one is refused."""
    data = leaf_wire(number)
    told = published(sdk, model_server, Gemini.name, data)
    raw = told_by_bytes("gemini", data)
    if told.completed:
        assert [value(one) for one in told.completed] == [value(one) for one in raw.completed]
    is_exact = number in ("3", "3.0", "0.1", "-0")
    assert bool(told.completed) == is_exact


@pytest.mark.parametrize("name", SDKS)
def test_an_integer_keeps_all_its_digits(name: str, sdk: Opened, model_server: ModelServer) -> None:
    """Beyond 2^53 too: refusing would be wrong here, since nothing is lost."""
    arguments = '{"x":9007199254740993}'
    told = published(sdk, model_server, name, wire(name, arguments))
    assert [one.arguments.decode() for one in told.completed] == [arguments]


def test_without_an_id_a_repeated_call_is_two_calls(sdk: Opened, model_server: ModelServer) -> None:
    """Ollama's SDK drops the id by which the bytes show a repeat: the documents say so."""
    of = '{"id":"call_A","function":{"name":"lookup_order","arguments":{"x":1}}}'
    line = (
        '{"model":"m","message":{"role":"assistant","content":"","tool_calls":[%s]},"done":false}'
    )
    end = (
        '{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}'
    )
    data = "\n".join([line.replace("%s", of)] * 2 + [end, ""]).encode()
    assert len(told_by_bytes("ollama", data).completed) == 1
    assert len(published(sdk, model_server, Ollama.name, data).completed) == 2
