"""What damage can do to a message of content blocks, and what it cannot.

Neither dialect numbers its events: `tests/fuzz/invisible.py` has the table of what that means.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.invisible import possible_texts
from tests.golden.replay import events_of, stream
from tests.property.test_dialects_streams import CALLS, SIZES, damages, interleaved, texts
from tests.unit.dialects.messages import ANTHROPIC, BEDROCK, WIRES, MessageWire, call_of, message
from tests.unit.dialects.verdicts import verdicts
from tests.unit.dialects.wires import Chunk, sse

both = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire.dialect))


def calls_of(wire: MessageWire, sent: dict[str, list[str]]) -> list[list[Chunk]]:
    """The events of each call, and of a text and a tool of the provider beside them."""
    calls = [call_of(wire, call_id, n, *sent[call_id]) for n, call_id in enumerate(sent)]
    providers = [wire.providers(8, "srv_A"), wire.fragment(8, '{"p":1}'), wire.stop(8)]
    return [*calls, wire.text(9), providers]


def texts_after(wire: MessageWire, chunks: list[Chunk], order: list[int]) -> dict[str, set[str]]:
    """What each call may have when the chunks come in `order`; Bedrock's ends by two events."""
    pieces = [piece_of(wire, chunk) for chunk in chunks]
    said = [{CALLS[index]: text} if index < len(CALLS) else {} for index, text in pieces]
    has_reason, seen = wire is ANTHROPIC, list[int]()
    for at in order:
        has_reason = has_reason or "messageStop" in chunks[at]
        if chunks[at] == wire.last() and has_reason:
            break
        seen.append(at)
    return possible_texts(wire.dialect, said, seen)


def piece_of(wire: MessageWire, chunk: Chunk) -> tuple[int, str]:
    """Block and text of a fragment of arguments; no text for any other event."""
    of = json.loads(json.dumps(chunk))
    if wire is ANTHROPIC:
        return of.get("index", 0), of.get("delta", {}).get("partial_json", "")
    payload = of.get("contentBlockDelta", {"contentBlockIndex": 0, "delta": {}})
    return payload["contentBlockIndex"], payload["delta"].get("toolUse", {}).get("input", "")


@both
@given(data=st.data())
@settings(max_examples=300)
def test_a_call_completes_with_all_of_its_own_fragments_or_not_at_all(
    wire: MessageWire, data: st.DataObject
) -> None:
    """After any damage a completed text is what arrived for that call, and never another's."""
    sent = {call_id: data.draw(texts(mark)) for call_id, mark in zip(CALLS, "abc", strict=True)}
    chunks = message(wire, *data.draw(interleaved(calls_of(wire, sent))))
    assert verdicts(wire.dialect, chunks) == {c: "".join(sent[c]) for c in CALLS}
    order = data.draw(damages(len(chunks)))
    texts_of = texts_after(wire, chunks, order)
    for call_id, verdict in verdicts(wire.dialect, [chunks[at] for at in order]).items():
        assert not verdict.startswith("{") or {verdict} == texts_of[call_id]


@both
@given(data=st.data())
@settings(max_examples=200)
def test_only_a_damaged_fragment_changes_the_arguments_of_a_completed_call(
    wire: MessageWire, data: st.DataObject
) -> None:
    """Starts, stops, reasons and blocks of others can cost a call, and never change it."""
    sent = {call_id: data.draw(texts(mark)) for call_id, mark in zip(CALLS, "abc", strict=True)}
    chunks = message(wire, *data.draw(interleaved(calls_of(wire, sent))))
    order = data.draw(damages(len(chunks)))
    whole = {call_id: "".join(fragments) for call_id, fragments in sent.items()}
    texts_of = texts_after(wire, chunks, order)
    for call_id, verdict in verdicts(wire.dialect, [chunks[at] for at in order]).items():
        if call_id in whole and texts_of[call_id] == {whole[call_id]}:
            assert not verdict.startswith("{") or verdict == whole[call_id]


@both
@given(data=st.data())
def test_a_call_whose_first_bytes_are_lost_never_completes_unless_they_were_all(
    wire: MessageWire, data: st.DataObject
) -> None:
    """The rest of one JSON object is never an object of its own."""
    fragments = data.draw(texts('a{}"\\:,'))
    call = call_of(wire, "call_A", 0, *fragments[1:])
    (verdict,) = verdicts(wire.dialect, message(wire, *call)).values()
    assert verdict in {"invalid_json", "not_an_object"} or (verdict, len(fragments)) == ("{}", 1)


@both
@given(data=st.data())
def test_a_message_cut_anywhere_completes_nothing(wire: MessageWire, data: st.DataObject) -> None:
    """But for Bedrock's last event, which only tells the usage."""
    sent = {call_id: data.draw(texts(mark)) for call_id, mark in zip(CALLS, "abc", strict=True)}
    chunks = message(wire, *data.draw(interleaved(calls_of(wire, sent))))
    kept = chunks[: data.draw(st.integers(0, len(chunks) - 1 - (wire is BEDROCK)))]
    assert not any(v.startswith("{") for v in verdicts(wire.dialect, kept).values())


@both
@given(sizes=SIZES, form=st.sampled_from(("sse", "lines", "array")), data=st.data())
def test_every_framing_gives_the_same_events(
    wire: MessageWire, sizes: list[int], form: str, data: st.DataObject
) -> None:
    """Server-sent events, JSON lines, a JSON array, cut anywhere: one stream."""
    sent = {call_id: data.draw(texts("é😀")) for call_id in CALLS}
    chunks = message(wire, *data.draw(interleaved(calls_of(wire, sent))))
    if form == "sse":
        framed = sse(chunks)
    elif form == "lines":
        framed = "".join(json.dumps(c, ensure_ascii=False) + "\n" for c in chunks).encode()
    else:
        framed = json.dumps(chunks, indent=1).encode()
    direct = stream(wire.dialect)
    told = [event for chunk in chunks for event in direct.observe(chunk)] + direct.end()
    assert events_of(wire.dialect, framed, sizes) == told
