"""Whatever happens to a stream on its way: cuts change nothing, losses complete nothing else.

What is provable differs by dialect: `tests/fuzz/invisible.py` has the table.
"""

import json
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.core.outcomes import CallCompleted
from processor.dialects.registry import DIALECTS
from processor.dialects.stream import DialectError
from tests.fuzz.chunks import chunks_of
from tests.fuzz.invisible import possible_texts
from tests.golden.replay import FIXTURES, Expected, events_of, fold, stream
from tests.golden.test_streams import NAMES, data_of, expected_of
from tests.unit.dialects.cohere_events import BEGIN, cohere_call, message_end
from tests.unit.dialects.verdicts import verdicts
from tests.unit.dialects.wires import Chunk, chat, entry, response, responses_call, sse

CALLS = ("call_A", "call_B", "call_C")
SIZES = st.lists(st.integers(1, 400), max_size=60)


@st.composite
def texts(draw: st.DrawFn, mark: str) -> list[str]:
    """The fragments of one JSON object whose strings hold `mark` only."""
    value = draw(st.dictionaries(st.text(mark, min_size=1, max_size=4), st.text(mark, max_size=6)))
    whole = json.dumps(value)
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(whole) - 1)), max_size=5)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if whole[a:b]]


@st.composite
def interleaved(draw: st.DrawFn, calls: list[list[Chunk]]) -> list[Chunk]:
    """The chunks of several calls in any order that keeps each call's own."""
    left, mixed = [list(call) for call in calls], list[Chunk]()
    while any(left):
        one = draw(st.sampled_from([call for call in left if call]))
        mixed.append(one.pop(0))
    return mixed


@st.composite
def damages(draw: st.DrawFn, count: int) -> list[int]:
    """Positions of the chunks that arrive: one is dropped, repeated, or swapped with another."""
    order = list(range(count))
    at = draw(st.integers(0, count - 1))
    match draw(st.sampled_from(("drop", "repeat", "swap", "move"))):
        case "drop":
            del order[at]
        case "repeat":
            order.insert(draw(st.integers(at, count)), at)
        case "swap":
            other = draw(st.integers(0, count - 1))
            order[at], order[other] = order[other], order[at]
        case _:
            order.insert(draw(st.integers(0, count - 1)), order.pop(at))
    return order


@given(name=st.sampled_from(NAMES), sizes=SIZES)
@settings(max_examples=300)
def test_any_cutting_of_the_bytes_gives_the_same_events(name: str, sizes: list[int]) -> None:
    """Cuts inside lines, line ends, characters and escapes included."""
    dialect = expected_of(name)["dialect"]
    data = data_of(name)
    assert events_of(dialect, data, sizes) == events_of(dialect, data)


@given(sizes=SIZES, form=st.sampled_from(("lf", "crlf", "cr", "lines", "array")), data=st.data())
def test_every_framing_gives_the_same_events(
    sizes: list[int], form: str, data: st.DataObject
) -> None:
    """Server-sent events with any line end, JSON lines, a JSON array: one stream."""
    calls = [responses_call(c, n, *data.draw(texts("é😀"))) for n, c in enumerate(CALLS)]
    chunks = response(data.draw(interleaved(calls)))
    ends = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
    if form in ends:
        framed = sse(chunks, ends[form])
    elif form == "lines":
        framed = "".join(json.dumps(c, ensure_ascii=False) + "\n" for c in chunks).encode()
    else:
        framed = json.dumps(chunks, indent=1).encode()
    direct = stream("openai-responses")
    told = [event for chunk in chunks for event in direct.observe(chunk)] + direct.end()
    assert events_of("openai-responses", framed, sizes) == told


@given(data=st.data())
@settings(max_examples=300)
def test_a_responses_call_completes_with_its_own_text_or_not_at_all(data: st.DataObject) -> None:
    """One chunk lost, repeated, swapped or moved: no call ever completes with another text."""
    sent = {call_id: data.draw(texts(mark)) for call_id, mark in zip(CALLS, "abc", strict=True)}
    calls = [responses_call(c, n, *fragments) for n, (c, fragments) in enumerate(sent.items())]
    chunks = response(data.draw(interleaved(calls)))
    whole = {call_id: "".join(fragments) for call_id, fragments in sent.items()}
    assert verdicts("openai-responses", chunks) == whole
    order = data.draw(damages(len(chunks)))
    texts_of = possible_texts("openai-responses", [whole], order)
    for call_id, verdict in verdicts("openai-responses", [chunks[at] for at in order]).items():
        assert not verdict.startswith("{") or {verdict} == texts_of[call_id]


@pytest.mark.parametrize("dialect", ["mistral", "openai-chat"])
@given(data=st.data())
@settings(max_examples=300)
def test_a_chat_call_completes_with_all_of_its_own_fragments_or_not_at_all(
    dialect: str, data: st.DataObject
) -> None:
    """After any damage a completed text is what arrived for that call, and never another's."""
    sent = {call_id: data.draw(texts(mark)) for call_id, mark in zip(CALLS, "abc", strict=True)}
    calls = [
        [chat(entry(n, c, "x", "")), *(chat(entry(n, arguments=text)) for text in fragments)]
        for n, (c, fragments) in enumerate(sent.items())
    ]
    chunks = [*data.draw(interleaved(calls)), chat(finish="tool_calls")]
    whole = {call_id: "".join(fragments) for call_id, fragments in sent.items()}
    assert verdicts(dialect, chunks) == whole
    said: list[dict[str, str]] = [
        {CALLS[of["index"]]: of["function"].get("arguments", "") for of in _entries(chunk)}
        for chunk in chunks
    ]
    order = data.draw(damages(len(chunks)))
    texts_of = possible_texts(dialect, said, order)
    for call_id, verdict in verdicts(dialect, [chunks[at] for at in order]).items():
        assert not verdict.startswith("{") or {verdict} == texts_of[call_id]


@given(data=st.data())
@settings(max_examples=300)
def test_a_cohere_call_completes_with_all_of_its_own_fragments_or_not_at_all(
    data: st.DataObject,
) -> None:
    """As for Chat; and a call whose start, end or response's start is lost never completes."""
    sent = {call_id: data.draw(texts(mark)) for call_id, mark in zip(CALLS, "abc", strict=True)}
    calls = [cohere_call(c, n, *fragments) for n, (c, fragments) in enumerate(sent.items())]
    chunks = [BEGIN, *data.draw(interleaved(calls)), message_end()]
    whole = {call_id: "".join(fragments) for call_id, fragments in sent.items()}
    assert verdicts("cohere-v2", chunks) == whole
    said = [_fragment(chunk) for chunk in chunks]
    order = data.draw(damages(len(chunks)))
    arrived = [chunks[at] for at in order]
    kinds = [chunk["type"] for chunk in arrived]
    # What follows the response's end is no part of it.
    end = kinds.index("message-end") if "message-end" in kinds else len(kinds)
    texts_of = possible_texts("cohere-v2", said, order[:end])
    for call_id, verdict in verdicts("cohere-v2", arrived).items():
        assert not verdict.startswith("{") or {verdict} == texts_of[call_id]
        assert not verdict.startswith("{") or arrived[0] == BEGIN


def _fragment(chunk: Expected) -> dict[str, str]:
    if chunk["type"] != "tool-call-delta":
        return {}
    text: str = chunk["delta"]["message"]["tool_calls"]["function"]["arguments"]
    return {CALLS[chunk["index"]]: text}


@given(as_object=st.sets(st.sampled_from(CALLS)), data=st.data())
@settings(max_examples=300)
def test_a_call_that_comes_whole_completes_with_its_own_text_or_not_at_all(
    as_object: set[str], data: st.DataObject
) -> None:
    """Mistral: nothing of a whole entry can be lost, and twice it is no object."""
    sent = {
        call_id: "".join(data.draw(texts(mark))) for call_id, mark in zip(CALLS, "abc", strict=True)
    }
    whole = {
        c: json.dumps(json.loads(text), separators=(",", ":")) if c in as_object else text
        for c, text in sent.items()
    }
    chunks = [
        chat(entry(n, c, "x", json.loads(text) if c in as_object else text))
        for n, (c, text) in enumerate(sent.items())
    ]
    chunks.append(chat(finish="tool_calls"))
    assert verdicts("mistral", chunks) == whole
    arrived = [chunks[at] for at in data.draw(damages(len(chunks)))]
    for call_id, verdict in verdicts("mistral", arrived).items():
        assert not verdict.startswith("{") or verdict == whole[call_id]


@given(data=st.data())
def test_a_chat_call_whose_first_bytes_are_lost_never_completes(data: st.DataObject) -> None:
    """The rest of one JSON object is never an object of its own."""
    fragments = data.draw(texts('a{}"\\:,'))
    chunks = [chat(entry(0, "call_A", "x", text)) for text in fragments[1:]]
    head = [] if chunks else [chat(entry(0, "call_A", "x", ""))]
    found = verdicts("openai-chat", [*head, *chunks, chat(finish="stop")])
    assert found["call_A"] in {"invalid_json", "empty_arguments", "not_an_object"}


def _entries(chunk: Expected) -> list[Expected]:
    found: list[Expected] = chunk["choices"][0]["delta"].get("tool_calls", [])
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.lists(st.binary(max_size=200), max_size=8), prefix=st.booleans())
def test_random_bytes_raise_nothing_but_a_dialect_error(
    dialect: str, data: list[bytes], prefix: bool
) -> None:
    """Alone, or behind the beginning of a real stream."""
    of = stream(dialect)
    told = list[object]()
    try:
        if prefix:
            told += of.observe_bytes(data_of(LONGER[dialect][0])[:2_000])
        for piece in data:
            told += of.observe_bytes(piece)
        of.end()
    except DialectError:
        assert not told


WORDS = (
    "id type index item delta choices tool_calls function name arguments response output usage"
    " error status call_id x_groq message content_block input partial_json stop_reason payload"
    " contentBlockIndex start toolUse toolUseId stopReason finish_reason"
    " message done done_reason candidates content parts functionCall args partialArgs jsonPath"
    " stringValue willContinue finishReason responseId promptFeedback"
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS.split()), inner, max_size=5)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=300)
def test_a_field_of_any_other_shape_never_raises_and_leaves_no_call_open(
    dialect: str, data: st.DataObject
) -> None:
    """One value somewhere in one event but the first is replaced by any JSON value."""
    chunks = chunks_of(data_of(data.draw(st.sampled_from(LONGER[dialect]))))
    at = data.draw(st.integers(1, len(chunks) - 1))
    place = data.draw(st.sampled_from(paths_of(chunks[at])))
    chunks[at] = cast("Chunk", replace(chunks[at], place, data.draw(VALUES)))
    of = stream(dialect)
    told = [event for chunk in chunks for event in of.observe(chunk)]
    fold(told + of.end())


def paths_of(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The place of every value inside of `value`."""
    found = [path] if path else []
    for key, inner in _members(value):
        found += paths_of(inner, (*path, key))
    return found


def _members(value: object) -> list[tuple[object, object]]:
    if isinstance(value, dict):
        return list(cast("dict[object, object]", value).items())
    return list(enumerate(cast("list[object]", value))) if isinstance(value, list) else []


def replace(value: object, path: tuple[object, ...], by: object) -> object:
    """A copy of `value` with the place `path` taken by `by`."""
    if not path:
        return by
    changed = [(k, replace(v, path[1:], by) if k == path[0] else v) for k, v in _members(value)]
    return dict(changed) if isinstance(value, dict) else [v for _, v in changed]


def test_the_fixture_folder_is_the_one_that_is_tested() -> None:
    """The names above come from the copies beside the tests."""
    assert (FIXTURES / "streams").is_dir()
    assert isinstance(
        fold(events_of("openai-chat", data_of("openai-chat/single-call")))[0], CallCompleted
    )


#: Of each dialect, the fixtures that have more than one event.
LONGER = {
    dialect: [
        n for n in NAMES if expected_of(n)["dialect"] == dialect and len(chunks_of(data_of(n))) > 1
    ]
    for dialect in DIALECTS
}
