"""What damage can do to a message of content blocks, and what it cannot.

Neither dialect numbers its events. A fragment that is lost, repeated or swapped inside its own call
is invisible if the rest still parses; a call whose every fragment is lost looks like one without
arguments. It holds that a completed text is made of the call's own fragments, in the order in which
they came, and of all of them that came before the message's end.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def arrived_of(wire: MessageWire, chunks: list[Chunk]) -> dict[str, str]:
    """What came for each call before the message's own end; Bedrock's ends by two events."""
    came: dict[str, str] = dict.fromkeys(CALLS, "")
    has_reason = wire is ANTHROPIC
    for chunk in chunks:
        has_reason = has_reason or "messageStop" in chunk
        if chunk == wire.last() and has_reason:
            break
        index, text = piece_of(wire, chunk)
        if index < len(CALLS):
            came[CALLS[index]] += text
    return came


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
    arrived = [chunks[at] for at in data.draw(damages(len(chunks)))]
    came = arrived_of(wire, arrived)
    for call_id, verdict in verdicts(wire.dialect, arrived).items():
        assert not verdict.startswith("{") or verdict == (came[call_id] or "{}")


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
    arrived = [chunks[at] for at in order]
    untouched = arrived_of(wire, arrived)
    for call_id, verdict in verdicts(wire.dialect, arrived).items():
        if untouched.get(call_id) == whole.get(call_id):
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
