"""When a call is completed, with which bytes, digests and evidence; and what never leaves the fold."""

import hashlib
from dataclasses import fields, is_dataclass

import pytest

from processor.core.call import Call
from processor.core.errors import InvariantViolated, Misuse, Transient
from processor.core.events import ArgumentsFormat, StreamEvent
from processor.core.evidence import Evidence
from processor.core.gate import EARLY_CLASSES, UNLISTED, NoCatalogue, may_release_early
from processor.core.limits import ARGUMENTS_BYTES_CEILING, ENDS_MAX, Limits
from processor.core.outcomes import CallCompleted, EffectClass, Outcome
from processor.core.results import CallResult
from processor.core.usage import ResponseUsage
from tests import builders as b

CLASSES: tuple[EffectClass, ...] = (
    "read_only",
    "idempotent",
    "reconcilable",
    "transactional",
    "at_most_once",
)


def test_a_completed_call_carries_the_exact_bytes_and_its_whole_evidence() -> None:
    """White space and member order of the model stay; every field says where it comes from."""
    arguments = b' { "b": 1.50, "a": "\xc3\xa9" }\n'
    start = b.started(item_id="item_1", output_index=0, model="model-1")
    events = b.numbered(
        [start, b.delta(arguments[:20]), b.delta(arguments[20:]), b.done(arguments), b.ended()]
    )
    log = b.log([events[0], events[1], events[1], *events[2:]], first_offset=5)
    rules = b.one_rule("transactional")
    (completed,) = b.feed(b.assembly(rules=rules), log)
    assert completed == CallCompleted(
        key=b.key(),
        tool=b.TOOL,
        dialect="openai-chat",
        arguments=arguments,
        arguments_format="json",
        arguments_sha256=hashlib.sha256(arguments).digest(),
        canonical_sha256=hashlib.sha256(b'{"a":"\xc3\xa9","b":1.5}').digest(),
        effect_class="transactional",
        release="response_end",
        evidence=Evidence(
            topic=b.PLACE.topic,
            partition=0,
            first_offset=5,
            last_offset=10,
            events=5,
            fragments=2,
            duplicates_dropped=1,
            started_at_ms=1_005,
            ended_at_ms=1_010,
            final_copy="equal",
            outcome="completed",
        ),
        item_id="item_1",
        output_index=0,
        model="model-1",
        catalogue_digest="sha256:0001",
    )


@pytest.mark.parametrize("effect_class", CLASSES)
@pytest.mark.parametrize("wait", [False, True], ids=["early", "wait"])
def test_only_harmless_classes_leave_at_the_calls_own_end(
    effect_class: EffectClass, *, wait: bool
) -> None:
    """The others wait for the response's clean end, and so does everybody when told to."""
    early = effect_class in {"read_only", "idempotent"} and not wait
    assert may_release_early(effect_class, wait_for_response=wait) is early
    fold = b.assembly(rules=b.one_rule(effect_class), wait_for_response=wait)
    log = b.log(b.call_events())
    at_call_end = b.feed(fold, log[:-1])
    at_response_end = b.feed(fold, log[-1:])
    released, silent = (at_call_end, at_response_end) if early else (at_response_end, at_call_end)
    assert silent == []
    completed = b.only_completed(released)
    assert completed.release == ("call_end" if early else "response_end")
    assert completed.effect_class == effect_class
    assert completed.evidence.outcome == (None if early else "completed")


def test_a_released_call_is_not_reported_again_when_its_response_fails() -> None:
    """It was harmless to run; its key is closed like any other."""
    outcomes = b.run(b.call_events(outcome="failed"), rules=b.one_rule("read_only"))
    assert b.only_completed(outcomes).release == "call_end"


def test_without_a_catalogue_every_tool_is_at_most_once() -> None:
    """Nobody listed it, so nobody said that it is harmless."""
    rules = NoCatalogue()
    assert rules.rule("any") is UNLISTED
    assert rules.digest is None
    assert UNLISTED.effect_class == "at_most_once"
    assert set(CLASSES) >= EARLY_CLASSES
    assert b.only_completed(b.run(b.call_events())).catalogue_digest is None


def test_an_empty_text_is_an_object_only_for_a_tool_that_says_so() -> None:
    """`{}` is then given out, not the empty text, and never before the response's end."""
    events = b.call_events([], copies=[None, ""])
    assert b.only_rejected(b.run(events)).reason == "empty_arguments"
    rules = b.one_rule("read_only", empty_arguments_allowed=True)
    completed = b.only_completed(b.run(events, rules=rules))
    assert completed.arguments == b"{}"
    assert completed.release == "response_end"
    assert completed.evidence.final_copy == "equal"


def test_white_space_is_not_an_empty_text() -> None:
    """The catalogue's leave is for a text of no bytes; a blank one is refused like any other."""
    rules = b.one_rule(empty_arguments_allowed=True)
    assert b.only_rejected(b.run(b.call_events([" "]), rules=rules)).reason == "empty_arguments"


def test_a_copy_stands_in_for_a_text_that_was_not_streamed() -> None:
    """Some dialects send the whole text at once; it is bounded like a streamed one."""
    completed = b.only_completed(b.run(b.call_events([], copies=['{"a":1}'])))
    assert completed.arguments == b'{"a":1}'
    assert completed.evidence.fragments == 0
    fold = b.assembly(Limits(arguments_bytes_max=7))
    b.feed(fold, b.log(b.call_events([], copies=['{"a":1}'], outcome=None)))
    assert fold.calls[b.key().encode()].room_bytes == 0


def test_copies_of_the_text_share_one_buffer_and_are_bounded() -> None:
    """A dialect sends a few; a stream of them must not grow the memory of an open call."""
    size = 100_000
    arguments = b'{"a":"' + b"x" * size + b'"}'
    fold = b.assembly()
    copies = [bytes(bytearray(arguments)) for _ in range(5)]
    b.feed(fold, b.log(b.call_events([arguments], copies=copies, outcome=None)))
    call = fold.calls[b.key().encode()]
    kept = {id(getattr(item, "arguments", item)) for item in call.items[2:]}
    assert kept == {id(call.text)}
    limits = Limits(fragments_max=3)
    most = 1 + 3 + ENDS_MAX
    events = b.numbered([b.started(), *[b.done("{}")] * (most - 1), b.ended()])
    assert b.only_completed(b.run(events, limits=limits)).evidence.events == most + 1


@pytest.mark.parametrize("arguments", [b"", b"{", b"no json \xf0\x9f\x99\x82", b"{}"])
def test_free_text_is_never_parsed(arguments: bytes) -> None:
    """A custom tool's input is text: valid UTF-8 of any shape, without a canonical form."""
    events = b.call_events([arguments], arguments_format="text")
    completed = b.only_completed(b.run(events, rules=b.one_rule(validate=lambda _: "no")))
    assert completed.arguments == arguments
    assert completed.arguments_format == "text"
    assert completed.canonical_sha256 is None


def test_free_text_must_be_utf8() -> None:
    """The detail names the byte, not the text."""
    rejected = b.only_rejected(b.run(b.call_events([b"ab\xff"], arguments_format="text")))
    assert (rejected.reason, rejected.detail) == ("invalid_utf8", "byte 2 of 3")


def test_a_schema_that_accepts_lets_the_parsed_value_through() -> None:
    """The validator sees the parsed arguments, once."""
    seen: list[object] = []
    rules = b.one_rule(validate=seen.append)
    b.only_completed(b.run(b.call_events(['{"a":[1,2.5,null]}']), rules=rules))
    assert seen == [{"a": [1, 2.5, None]}]


@pytest.mark.parametrize(
    ("limits", "fragments", "accepted"),
    [
        (Limits(arguments_bytes_max=7), ['{"a":', "1}"], True),
        (Limits(arguments_bytes_max=6), ['{"a":', "1}"], False),
        (Limits(fragments_max=2), ['{"a":', "1}"], True),
        (Limits(fragments_max=1), ['{"a":', "1}"], False),
    ],
    ids=["bytes", "a byte too many", "fragments", "a fragment too many"],
)
def test_a_limit_admits_its_own_value_and_refuses_one_more(
    limits: Limits, fragments: list[str], *, accepted: bool
) -> None:
    """Bounds are inclusive, for bytes and for fragments."""
    (outcome,) = b.run(b.call_events(fragments), limits=limits)
    assert isinstance(outcome, CallCompleted) is accepted


def test_what_passes_a_limit_is_not_kept() -> None:
    """The buffer is gone with the call, and what still comes is not stored."""
    fold = b.assembly(Limits(arguments_bytes_max=10))
    b.feed(fold, b.log(b.numbered([b.started(), *[b.delta(b"x" * 9)] * 50])))
    assert fold.calls[b.key().encode()].items == []
    assert fold.counts.swallowed == 48


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (Limits(arguments_bytes_max=0), "arguments_bytes_max"),
        (Limits(arguments_bytes_max=ARGUMENTS_BYTES_CEILING + 1), "arguments_bytes_max"),
        (Limits(fragments_max=0), "fragments_max"),
        (Limits(fragments_max=10**7), "fragments_max"),
        (Limits(depth_max=0), "depth_max"),
        (Limits(open_calls_max=0), "open_calls_max"),
        (Limits(linger_ms=0), "linger_ms"),
    ],
    ids=[
        "no bytes",
        "too many bytes",
        "no fragments",
        "too many fragments",
        "depth",
        "open calls",
        "linger",
    ],
)
def test_contradictory_limits_are_refused_by_name(limits: Limits, named: str) -> None:
    """At construction of the fold, before any record is read."""
    with pytest.raises(Misuse, match=f"limits.{named} must be"):
        b.assembly(limits)


def test_the_default_limits_and_the_ceiling_are_accepted() -> None:
    """What is shipped works."""
    assert Limits().checked() == Limits()
    Limits(arguments_bytes_max=ARGUMENTS_BYTES_CEILING).checked()


CANARIES = ("CANARY_NAME", "CANARY_VALUE", "CANARY_COPY")
LEAKY: list[tuple[str, bytes, ArgumentsFormat]] = [
    ("accepted", b'{"CANARY_NAME":"CANARY_VALUE"}', "json"),
    ("duplicate", b'{"CANARY_NAME":1,"CANARY_NAME":"CANARY_VALUE"}', "json"),
    ("cut", b'{"CANARY_NAME":"CANARY_VALUE', "json"),
    ("trailing", b'{"CANARY_NAME":1} CANARY_VALUE', "json"),
    ("bare", b"CANARY_VALUE", "json"),
    ("string", b'"CANARY_VALUE"', "json"),
    ("nan", b'{"CANARY_NAME":NaN,"b":"CANARY_VALUE"}', "json"),
    ("nul", b'{"CANARY_NAME":"CANARY_VALUE\\u0000"}', "json"),
    ("nul name", b'{"CANARY_NAME\\u0000":"CANARY_VALUE"}', "json"),
    ("number", b'{"CANARY_NAME":1e999,"b":"CANARY_VALUE"}', "json"),
    ("control", b'{"CANARY_NAME":"CANARY_VALUE\x01"}', "json"),
    ("utf8", b'{"CANARY_NAME":"CANARY_VALUE\xff"}', "json"),
    ("surrogate", b'{"CANARY_NAME":"CANARY_VALUE\\ud800"}', "json"),
    ("deep", b'{"CANARY_NAME":' * 70 + b'"CANARY_VALUE"' + b"}" * 70, "json"),
    ("free text", b"CANARY_VALUE\xff", "text"),
]


def without_arguments(value: object) -> str:
    """Every field of an outcome but `arguments`, as text."""
    if is_dataclass(value):
        return " ".join(
            without_arguments(getattr(value, field.name))
            for field in fields(value)
            if field.name != "arguments"
        )
    return repr(value)


def assert_silent(outcome: Outcome) -> None:
    """No canary in any field but `arguments`."""
    told = without_arguments(outcome)
    for canary in CANARIES:
        assert canary not in told


@pytest.mark.parametrize(
    ("arguments", "arguments_format"),
    [row[1:] for row in LEAKY],
    ids=[row[0] for row in LEAKY],
)
def test_no_outcome_quotes_the_arguments(
    arguments: bytes, arguments_format: ArgumentsFormat
) -> None:
    """Member names and values of any text stay out of every field, whichever way it ends."""
    whole = b.call_events([arguments], arguments_format=arguments_format)
    other = b.call_events([arguments], copies=["CANARY_COPY"], arguments_format=arguments_format)
    cut = b.call_events([arguments], arguments_format=arguments_format, outcome="truncated")
    gap = [*whole[:1], *whole[2:]]
    twice = [*whole[:2], StreamEvent(1, b.delta("CANARY_COPY"))]
    for events in (whole, other, cut, gap, twice):
        (outcome,) = b.run(events)
        assert_silent(outcome)


def test_a_publishers_unknown_reason_is_not_repeated() -> None:
    """It is free text of an outsider."""
    (outcome,) = b.run(b.numbered([b.started(), b.aborted("CANARY_VALUE")]))
    assert_silent(outcome)


def test_a_key_without_start_is_no_call_to_complete() -> None:
    """Reaching for its start is a bug of ours, and says so."""
    with pytest.raises(InvariantViolated, match="offset 7 has no start"):
        Call(7, 0, 0, 0).begun()


def test_records_have_the_defaults_that_are_documented() -> None:
    """Absent is not zero; a result that ran is no replay; a transient error waits a second."""
    usage = ResponseUsage("acme", "req_1", "resp_1", "openai-chat")
    assert usage.input_tokens is None
    assert usage.provider == {}
    result = CallResult(b.key(), b.TOOL, "succeeded", "same_key")
    assert not result.replayed
    assert Transient("again").retry_after_s == 1.0
    assert Transient("again", retry_after_s=3.0).retry_after_s == 3.0
