"""Gemini and Ollama: what a loss, a repetition or a swap of one chunk can do, and what it cannot.

Neither numbers its chunks: `tests/fuzz/invisible.py` has the table of what the wire cannot show. All
else is shown: a first part, an end, or the end of the candidate that is lost, repeated or moved
never gives a call other arguments.
"""

import json
from typing import Literal, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from processor.core.outcomes import CallCompleted
from tests.fuzz.invisible import Part, compact, possible_texts, texts_of_parts
from tests.golden.replay import events_of, fold
from tests.property.test_dialects_streams import SIZES, damages
from tests.unit.dialects.value_wires import (
    CLOSE,
    gemini,
    head,
    leaf,
    leaves,
    ollama,
    ollama_call,
    whole,
)
from tests.unit.dialects.verdicts import events, verdicts
from tests.unit.dialects.wires import Chunk, sse

CALLS = ("call_A", "call_B", "call_C")
Dialect = Literal["gemini", "ollama"]
DIALECTS = st.sampled_from(cast("tuple[Dialect, ...]", ("gemini", "ollama")))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(-1e9, 1e9)
    | st.text('é😀"\\\n', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("é😀b", max_size=3), inner),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text("ab", max_size=3), VALUES, max_size=3)


def whole_calls(dialect: Dialect, sent: list[tuple[str | None, Chunk]]) -> list[Chunk]:
    """A stream with these calls, one a chunk, and its clean end."""
    if dialect == "gemini":
        return [*(gemini(whole(i, args=a)) for i, a in sent), gemini(finish="STOP")]
    return [*(ollama(ollama_call(i, arguments=a)) for i, a in sent), ollama(done=True)]


@given(dialect=DIALECTS, data=st.data())
@settings(max_examples=300)
def test_a_whole_call_with_an_id_completes_with_its_own_arguments_or_not_at_all(
    dialect: Dialect, data: st.DataObject
) -> None:
    """One chunk lost, repeated, swapped or moved; a repeated one adds no call."""
    sent = {call_id: cast("Chunk", data.draw(OBJECTS)) for call_id in CALLS}
    chunks = whole_calls(dialect, [*sent.items()])
    texts = {call_id: compact(value) for call_id, value in sent.items()}
    assert verdicts(dialect, chunks) == texts
    order = data.draw(damages(len(chunks)))
    texts_of = possible_texts(dialect, [texts], order)
    for call_id, verdict in verdicts(dialect, [chunks[at] for at in order]).items():
        assert not verdict.startswith("{") or {verdict} == texts_of[call_id]


@given(dialect=DIALECTS, data=st.data())
def test_whole_calls_without_ids_complete_as_they_came(
    dialect: Dialect, data: st.DataObject
) -> None:
    """Each has the arguments of one entry that arrived before the end, in that order."""
    sent = [cast("Chunk", data.draw(OBJECTS)) for _ in CALLS]
    chunks = whole_calls(dialect, [(None, value) for value in sent])
    order = data.draw(damages(len(chunks)))
    end = order.index(len(sent)) if len(sent) in order else 0
    outcomes = fold(events(dialect, [chunks[at] for at in order]))
    completed = [o for o in outcomes if isinstance(o, CallCompleted)]
    assert [o.arguments.decode() for o in completed] == [compact(sent[at]) for at in order[:end]]
    assert all(o.key.call_id.startswith("~call:") for o in completed)


def parts_of(draw: st.DrawFn, call_id: str, mark: str) -> list[Part]:
    """Head, texts under a few names in one to three pieces each, and an end, bare or a leaf."""
    found = [Part("head", gemini(head(call_id)), (call_id, ""))]
    for name in draw(st.lists(st.sampled_from("xyz"), unique=True, max_size=3)):
        pieces = draw(st.lists(st.text(mark, max_size=2), min_size=1, max_size=3))
        for left, text in enumerate(reversed(pieces), 1 - len(pieces)):
            piece = leaf(f"$.{name}", text, goes_on=left < 0)
            found.append(Part("leaf", gemini(leaves(piece)), (name, text)))
    if draw(st.booleans()):
        return [*found, Part("close", gemini(CLOSE))]
    last = gemini(leaves(leaf("$.end", mark), goes_on=False))
    return [*found, Part("close", last, ("end", mark))]


@st.composite
def streams_of_parts(draw: st.DrawFn) -> list[Part]:
    """Three calls one after the other, and the candidate's end."""
    calls = [parts_of(draw, call_id, mark) for call_id, mark in zip(CALLS, "abc", strict=True)]
    return [part for call in calls for part in call] + [Part("finish", gemini(finish="STOP"))]


@given(data=st.data())
@settings(max_examples=1_000)
def test_a_call_in_parts_completes_with_other_arguments_only_where_the_wire_cannot_show_it(
    data: st.DataObject,
) -> None:
    """Leaves alone, or chunks of one kind that change places: then with all that came for it."""
    sent = data.draw(streams_of_parts())
    assert verdicts("gemini", [part.chunk for part in sent]) == texts_of_parts(
        sent, range(len(sent))
    )
    order = data.draw(damages(len(sent)))
    texts = texts_of_parts(sent, order)
    for call_id, verdict in verdicts("gemini", [sent[at].chunk for at in order]).items():
        assert not verdict.startswith("{") or verdict == texts[call_id]


@given(
    dialect=DIALECTS, data=st.data(), sizes=SIZES, form=st.sampled_from(("sse", "array", "lines"))
)
def test_every_framing_gives_the_same_events(
    dialect: Dialect, data: st.DataObject, sizes: list[int], form: str
) -> None:
    """Server-sent events, one array, or lines, cut anywhere: one stream."""
    chunks = whole_calls(dialect, [(i, cast("Chunk", data.draw(OBJECTS))) for i in (*CALLS, None)])
    framed = {
        "sse": sse(chunks, "\r\n"),
        "array": json.dumps(chunks, indent=1).encode(),
        "lines": "".join(compact(chunk) + "\n" for chunk in chunks).encode(),
    }
    assert events_of(dialect, framed[form], sizes) == events(dialect, chunks)
