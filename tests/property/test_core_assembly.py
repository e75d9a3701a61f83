"""What no stream may change: cuts, repeats, losses, neighbours and batches."""

import json
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from processor.core.assembly import Assembly
from processor.core.canonical import canonical_bytes, canonical_sha256
from processor.core.events import StreamEvent
from processor.core.identity import CallKey, IdentityError, decode_call_key
from processor.core.limits import Limits
from processor.core.outcomes import CallCompleted, CallRejected, Outcome
from processor.core.strict_json import Parsed, parse_strict
from tests import builders as b
from tests.builders import Record

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=4)


@st.composite
def arguments_texts(draw: st.DrawFn) -> bytes:
    """A JSON object as some model would write it."""
    value = draw(objects)
    return json.dumps(
        value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))
    ).encode()


@st.composite
def cuts_of(draw: st.DrawFn, text: bytes) -> list[bytes]:
    """`text` in any fragments, empty ones and cuts inside a character included."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    edges = [0, *places, len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@st.composite
def whole_calls(draw: st.DrawFn, call_id: str = "call_A") -> list[StreamEvent]:
    """The events of a call that is accepted when nothing happens to it."""
    text = draw(arguments_texts())
    fragments: list[bytes | str] = [*draw(cuts_of(text))]
    copies: list[bytes | str | None] = [
        *draw(st.lists(st.sampled_from([None, text]), min_size=1, max_size=3))
    ]
    return b.call_events(fragments, of=b.key(call_id), copies=copies)


def digest(completed: CallCompleted) -> tuple[object, ...]:
    """What an executor acts on."""
    return (
        completed.key,
        completed.tool,
        completed.arguments,
        completed.arguments_sha256,
        completed.canonical_sha256,
    )


@settings(deadline=None)
@given(st.data(), arguments_texts())
def test_any_chunking_of_a_text_gives_the_same_call(data: st.DataObject, text: bytes) -> None:
    """Where the stream was cut is not part of the call."""
    whole = b.only_completed(b.run(b.call_events([text])))
    cut = b.only_completed(b.run(b.call_events(data.draw(cuts_of(text)))))
    assert digest(cut) == digest(whole)
    assert cut.arguments == text


@settings(deadline=None)
@given(st.data(), whole_calls(), st.sampled_from(["at_most_once", "read_only"]))
def test_any_repetition_of_any_events_is_harmless(
    data: st.DataObject, events: list[StreamEvent], effect_class: str
) -> None:
    """Each event may come again any time after it first came, even after the end."""
    rules = b.one_rule("read_only" if effect_class == "read_only" else "at_most_once")
    log = list(events)
    for _ in range(data.draw(st.integers(1, 8))):
        event = data.draw(st.sampled_from(events))
        first = next(place for place, found in enumerate(log) if found is event)
        log.insert(data.draw(st.integers(first + 1, len(log))), replace(event))
    plain = b.only_completed(b.run(events, rules=rules))
    repeated = b.only_completed(b.run(log, rules=rules))
    assert digest(repeated) == digest(plain)
    assert repeated.evidence.events == plain.evidence.events
    assert repeated.evidence.fragments == plain.evidence.fragments


@settings(deadline=None)
@given(st.data(), whole_calls())
def test_a_call_that_lost_any_one_event_is_never_completed(
    data: st.DataObject, events: list[StreamEvent]
) -> None:
    """It is rejected, or stays open when it was the last one that got lost."""
    lost = data.draw(st.integers(0, len(events) - 1))
    outcomes = b.run(events[:lost] + events[lost + 1 :])
    if lost == len(events) - 1:
        assert outcomes == []
    else:
        reason = "missing_start" if lost == 0 else "sequence_gap"
        assert b.only_rejected(outcomes).reason == reason


def without_place(outcome: Outcome) -> Outcome:
    """The outcome as if its call had been alone on the log."""
    evidence = replace(
        outcome.evidence, first_offset=0, last_offset=0, started_at_ms=0, ended_at_ms=0
    )
    return replace(outcome, evidence=evidence)


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[list[StreamEvent]], list[Record]]:
    """Several calls, some with an event lost, and one log of all their events."""
    calls: list[list[StreamEvent]] = []
    for n in range(draw(st.integers(2, 4))):
        events = draw(whole_calls(f"call_{n}"))
        if draw(st.integers(0, 3)) == 0:
            del events[draw(st.integers(0, len(events) - 1))]
        calls.append(events)
    turns = draw(st.permutations([n for n, events in enumerate(calls) for _ in events]))
    sources = [iter(events) for events in calls]
    log = [
        Record(b.key(f"call_{n}").encode(), next(sources[n]), offset, 1_000)
        for offset, n in enumerate(turns)
    ]
    return calls, log


@settings(deadline=None)
@given(interleaved())
def test_interleaved_calls_are_what_each_is_alone(
    drawn: tuple[list[list[StreamEvent]], list[Record]],
) -> None:
    """Nothing of one call reaches another, whatever the order between them."""
    calls, log = drawn
    together = {outcome.key: without_place(outcome) for outcome in b.feed(b.assembly(), log)}
    alone: dict[CallKey, Outcome] = {}
    for n, events in enumerate(calls):
        of = b.key(f"call_{n}")
        for outcome in b.feed(b.assembly(), b.log(events, of=of)):
            assert outcome.key not in alone
            alone[outcome.key] = without_place(outcome)
    assert together == alone


@settings(deadline=None)
@given(interleaved(), st.sets(st.integers(0, 60)))
def test_the_fold_does_not_see_where_batches_end(
    drawn: tuple[list[list[StreamEvent]], list[Record]], ends: set[int]
) -> None:
    """A commit between two records asks for the low-water mark and changes nothing."""
    _, log = drawn
    plain, batched = b.assembly(), b.assembly()
    expected = b.feed(plain, log)
    said: list[Outcome] = []
    for offset, record in enumerate(log):
        if offset in ends:
            batched.low_water(offset)
        said += b.feed(batched, [record])
    assert said == expected
    assert b.tracked_state(batched) == b.tracked_state(plain)


ids = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=20).filter(
    lambda text: text not in {"None", "null", "undefined"}
)


@given(st.tuples(ids, ids.filter(lambda text: ":" not in text), ids, ids))
def test_a_key_is_read_back_from_its_text(parts: tuple[str, str, str, str]) -> None:
    """Encoding is one to one."""
    key = CallKey(*parts)
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        return
    assert decode_call_key(encoded) == key
    assert encoded.count(b"/") == 3


@given(
    st.binary(max_size=40)
    | st.lists(
        st.sampled_from([b"a", b"/", b"%", b"2F", b"%25", b":", b"\xc3\xa9"]), max_size=14
    ).map(b"".join)
)
def test_bytes_are_refused_or_are_the_one_text_of_their_key(data: bytes) -> None:
    """No two texts are read as one key, and nothing but `IdentityError` is raised."""
    try:
        key = decode_call_key(data)
    except IdentityError:
        return
    assert key.encode() == data


PIECES = [
    *("{", "}", "[", "]", '"a"', ":", ",", "1", "-0", "1e5", "0.1", "NaN", "null", " ", "\x00"),
    *("1e-999999999999999999999", "9" * 400, '"\\u0000"', '"\\ud800"', "\ufeff"),
]
json_like = st.lists(st.sampled_from(PIECES), max_size=12).map(
    lambda parts: "".join(parts).encode()
)


@settings(max_examples=500)
@given(st.binary(max_size=40) | json_like | arguments_texts(), st.booleans())
def test_no_text_makes_the_parser_raise_and_what_it_accepts_python_reads_alike(
    text: bytes,
    decimals: bool,
) -> None:
    """An accepted text is what `json.loads` makes of it; every exact one has a canonical form."""
    parsed = parse_strict(text, depth_max=8, decimals=decimals)
    if isinstance(parsed, Parsed):
        assert json.loads(text) == parse_strict(text, depth_max=8).value  # type: ignore[union-attr]
    if isinstance(parsed, Parsed) and not decimals:
        assert (canonical_sha256(parsed) is None) is not parsed.exact


@given(arguments_texts())
def test_the_canonical_form_is_a_fixed_point(text: bytes) -> None:
    """Canonical bytes parse to the same meaning and are their own canonical form."""
    parsed = parse_strict(text, depth_max=64)
    if isinstance(parsed, Parsed) and parsed.exact:
        canonical = canonical_bytes(parsed)
        again = parse_strict(canonical, depth_max=64)
        assert isinstance(again, Parsed)
        # A double of 17 digits is written as an integer, and as one it is too wide to be exact.
        assert not again.exact or again.value == parsed.value
        assert not again.exact or canonical_bytes(again) == canonical


@settings(max_examples=200, deadline=None)
@given(whole_calls(), st.integers(1, 60))
def test_a_small_limit_rejects_and_never_cuts(events: list[StreamEvent], bytes_max: int) -> None:
    """Arguments over the limit are refused whole; within it they are given out whole."""
    fold: Assembly = b.assembly(Limits(arguments_bytes_max=bytes_max))
    (outcome,) = b.feed(fold, b.log(events))
    (unlimited,) = b.run(events)
    if isinstance(unlimited, CallRejected):
        return
    if len(unlimited.arguments) <= bytes_max:
        assert outcome == unlimited
    else:
        assert isinstance(outcome, CallRejected)
        assert outcome.reason == "too_large"
