"""Mistral: what differs from the Chat form that it follows."""

import pytest

from processor.core.events import ArgumentsDelta, ArgumentsDone
from tests.golden.replay import stream
from tests.unit.dialects.verdicts import events, verdicts
from tests.unit.dialects.wires import Chunk, chat, entry, sse

A = '{"a":1}'
FINISH = chat(finish="tool_calls")


def of(*chunks: Chunk) -> dict[str, str]:
    """The verdicts of a stream that ends well."""
    return verdicts("mistral", [*chunks, FINISH])


def test_an_object_is_the_whole_arguments_with_the_digits_of_the_wire() -> None:
    """In the order of the wire, compact, nothing rounded."""
    text = '{"b":1.10,"a":12345678901234567890123,"c":{"é":[]}}'
    wire = sse([chat(entry(0, "aBcD12345", "x", "HERE")), FINISH])
    response = stream("mistral")
    told = response.observe_bytes(wire.replace(b'"HERE"', text.encode())) + response.end()
    assert [event.event.body for event in told][1:3] == [
        ArgumentsDelta(text.encode()),
        ArgumentsDone(),
    ]


def test_an_empty_object_says_no_arguments() -> None:
    """It is on the wire, so it is the text."""
    assert of(chat(entry(0, "aBcD12345", "x", {}))) == {"aBcD12345": "{}"}


@pytest.mark.parametrize(
    "forms",
    [
        ({"a": 1}, {"a": 1}),
        ({"a": 1}, " "),
        (" ", {"a": 1}),
        ('{"x":', {"a": 1}, "}"),
        ([1],),
        (1,),
    ],
)
def test_an_object_beside_anything_else_is_refused(forms: tuple[object, ...]) -> None:
    """One object or fragments of a text; the last two are neither."""
    entries = [entry(0, "aBcD12345" if not n else None, "x", f) for n, f in enumerate(forms)]
    assert of(*map(chat, entries)) == {"aBcD12345": "arguments_not_text"}


def test_an_object_without_an_id_waits_for_it_and_never_joins_a_text() -> None:
    """What is held is held in its form too."""
    whole = entry(0, None, "x", {"a": 1})
    assert of(chat(whole), chat(entry(0, "aBcD12345"))) == {"aBcD12345": A}
    found = of(chat(entry(0, None, "x", '{"x":')), chat(entry(0, "aBcD12345", None, {"a": 1})))
    assert found == {"aBcD12345": "arguments_not_text"}


@pytest.mark.parametrize(
    ("value", "reason"), [({1: 2}, "malformed_event"), ({"a": "\ud83d"}, "invalid_utf8")]
)
def test_an_object_that_has_no_text_is_refused(value: object, reason: str) -> None:
    """From a program's own objects as from the wire."""
    assert of(chat(entry(0, "aBcD12345", "x", value))) == {"aBcD12345": reason}


def test_the_word_null_is_no_id() -> None:
    """Its fragments belong to the only call; between two calls they belong to none."""
    head, rest = chat(entry(0, "aBcD12345", "x", A[:3])), chat(entry(0, "null", None, A[3:]))
    assert of(head, rest) == {"aBcD12345": A}
    other = chat(entry(0, "eFgH67890", "y", A))
    assert of(head, other, rest) == {
        "aBcD12345": "ambiguous_identity",
        "eFgH67890": "ambiguous_identity",
    }


@pytest.mark.parametrize("index", [0, None])
def test_whole_calls_need_no_index_of_their_own(index: int | None) -> None:
    """The ids name them."""
    entries = [entry(index, "aBcD12345", "x", A), entry(index, "eFgH67890", "y", {"b": 2})]
    assert of(chat(*entries)) == {"aBcD12345": A, "eFgH67890": '{"b":2}'}


def test_a_whole_call_that_comes_twice_is_refused() -> None:
    """Two texts are no one object."""
    assert of(chat(entry(0, "aBcD12345", "x", A)), chat(entry(0, "aBcD12345", "x", A))) == {
        "aBcD12345": "invalid_json"
    }


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("length", "truncated"),
        ("error", "response_failed"),
        ("model_length", "unexpected_finish_reason"),
    ],
)
def test_any_finish_but_a_success_refuses_a_whole_call(finish: str, reason: str) -> None:
    """A whole entry is no proof by itself."""
    chunk = chat(entry(0, "aBcD12345", "x", A), finish=finish)
    assert verdicts("mistral", [chunk]) == {"aBcD12345": reason}


def test_a_call_without_a_finish_is_not_proven() -> None:
    """Nor by the end mark."""
    response = stream("mistral")
    told = response.observe_bytes(sse([chat(entry(0, "aBcD12345", "x", A))]) + b"data: [DONE]\n\n")
    assert ArgumentsDone() not in [event.event.body for event in told]


def test_a_flat_error_refuses_also_after_a_finish() -> None:
    """What follows an error is not believed."""
    error: Chunk = {"object": "error", "message": "synthetic", "code": 500}
    call = chat(entry(0, "aBcD12345", "x", A))
    assert of(call, error) == of(call, FINISH, error) == {"aBcD12345": "stream_error"}


def test_the_events_are_of_the_dialect_that_was_named() -> None:
    """Not of the one whose rules they share."""
    (started, *_) = events("mistral", [chat(entry(0, "aBcD12345", "x", A)), FINISH])
    assert getattr(started.event.body, "dialect", None) == "mistral"
