"""Reading and writing stream events: field rules, keys, JSON, and the order of refusals."""

import pytest

from processor.codec.records import (
    Undecodable,
    Unencodable,
    decode_event,
    encode_event,
)
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallAborted,
    CallExpired,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from tests.builders import delta, key, started

KEY = key().encode()


def refusal(value: bytes | None, record_key: bytes | None = KEY, **settings: int) -> str:
    """Code of the refusal."""
    with pytest.raises(Undecodable) as caught:
        decode_event(record_key, value, **settings)  # type: ignore[arg-type]  # one setting
    assert str(caught.value) == f"{caught.value.code}: {caught.value.detail}"
    return caught.value.code


def from_json(text: str) -> StreamEvent:
    """Read a JSON event under the default key."""
    return decode_event(KEY, text.encode())


def test_a_record_without_key_or_value_is_refused() -> None:
    """Each has its own code; the key is looked at first."""
    value = encode_event(StreamEvent(1, delta("x")))
    assert refusal(value, None) == "null_key"
    assert refusal(None) == "null_value"
    assert refusal(None, None) == "null_key"


@pytest.mark.parametrize(
    "record_key", [b"", b"acme", b"a/b/c", b"a/b/c/d/e", b"a/b/c/%2f", b"a/b:c/d/e", b"\xff/b/c/d"]
)
def test_a_key_that_is_no_call_key_is_refused(record_key: bytes) -> None:
    """Only the one canonical form of four ids is a key."""
    assert refusal(encode_event(StreamEvent(1, delta("x"))), record_key) == "malformed_key"


def test_a_value_above_the_bound_is_refused_before_it_is_read() -> None:
    """The bound is a setting; a value of exactly that size passes."""
    event = StreamEvent(1, delta("x" * 100))
    value = encode_event(event)
    assert decode_event(KEY, value, value_bytes_max=len(value)) == event
    assert refusal(value, value_bytes_max=len(value) - 1) == "too_large"
    assert refusal(b"?" * 101, value_bytes_max=100) == "too_large"
    assert refusal(b"?" * (1024 * 1024 + 1)) == "too_large"


@pytest.mark.parametrize(
    "other",
    [
        key(tenant="other"),
        key(request_id="other"),
        key(response_id="other"),
        key("other"),
    ],
)
def test_a_start_under_the_key_of_another_call_is_refused(other: object) -> None:
    """Each of the four parts counts."""
    value = encode_event(StreamEvent(0, started(other)))  # type: ignore[arg-type]  # a CallKey
    assert refusal(value) == "key_mismatch"


def test_a_start_that_swaps_parts_is_refused() -> None:
    """Parts are compared one by one, not joined."""
    value = encode_event(StreamEvent(0, started(key("b/c"))))
    assert refusal(value, b"acme/req_1/resp_1/b%2Fc"[:-4] + b"c") == "key_mismatch"


def accept_all(event: StreamEvent) -> None:
    """A writer without any check."""
    del event


TOO_LONG = "x" * 257
BAD_EVENTS: list[tuple[int, Body, str]] = [
    (-1, ArgumentsDelta(b"x"), "seq"),
    (2**31, ArgumentsDelta(b"x"), "seq"),
    (-2, ArgumentsDone(), "seq"),
    (0, CallExpired("idle", 1), "seq"),
    (-1, CallExpired("idle", -2), "last_seq"),
    (-1, CallExpired("max_life", 2**31), "last_seq"),
    (0, started(tool=""), "tool"),
    (0, started(tool=TOO_LONG), "tool"),
    (0, started(tool="é" * 129), "tool"),
    (0, started(tool="a\nb"), "tool"),
    (0, started(tool="a\x00"), "tool"),
    (0, started(dialect=""), "dialect"),
    (0, started(dialect="x" * 65), "dialect"),
    (0, started(model=""), "model"),
    (0, started(model=TOO_LONG), "model"),
    (0, started(item_id=""), "item_id"),
    (0, started(item_id="None"), "item_id"),
    (0, started(item_id="x" * 129), "item_id"),
    (0, started(item_id="a\x00"), "item_id"),
    (0, started(output_index=-1), "output_index"),
    (1, ResponseEnded("completed", ""), "detail"),
    (1, ResponseEnded("completed", TOO_LONG), "detail"),
    (1, CallAborted(""), "reason"),
    (1, CallAborted("x" * 65), "reason"),
]


@pytest.mark.parametrize(("seq", "body", "field"), BAD_EVENTS)
def test_what_no_reader_accepts_is_not_written(seq: int, body: Body, field: str) -> None:
    """The writer names the field and writes nothing."""
    with pytest.raises(Unencodable, match=f"StreamEvent: {field} "):
        encode_event(StreamEvent(seq, body))


@pytest.mark.parametrize(("seq", "body", "field"), BAD_EVENTS)
def test_what_another_writer_wrote_against_the_rules_is_refused(
    seq: int, body: Body, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader does not rely on the writer's check."""
    with monkeypatch.context() as patched:
        patched.setattr("processor.codec.records.check_event", accept_all)
        value = encode_event(StreamEvent(seq, body))
    with pytest.raises(Undecodable, match=f"invalid_field: {field} "):
        decode_event(KEY, value)


@pytest.mark.parametrize("seq", [0, 1, 2**31 - 1])
def test_seq_may_have_31_bits(seq: int) -> None:
    """The ends of the range are inside."""
    event = StreamEvent(seq, delta("x"))
    assert decode_event(KEY, encode_event(event)) == event


def test_a_start_may_have_any_seq_here() -> None:
    """Whether a start comes first is the fold's to say: it rejects the call, with evidence."""
    event = StreamEvent(3, started())
    assert decode_event(KEY, encode_event(event)) == event


def test_enums_that_do_not_exist_are_not_written() -> None:
    """A text from elsewhere does not become a symbol."""
    body = ResponseEnded("finished")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(Unencodable):
        encode_event(StreamEvent(1, body))


def test_a_lone_surrogate_is_not_written() -> None:
    """It has no UTF-8."""
    with pytest.raises(Unencodable):
        encode_event(StreamEvent(0, started(tool="\ud800")))


def test_json_events_of_every_type_are_read() -> None:
    """One example for each branch; optional members left out or null."""
    assert from_json('{"seq":3,"type":"ArgumentsDelta","fragment":"é{"}') == StreamEvent(
        3, ArgumentsDelta("é{".encode())
    )
    assert from_json(
        '{"seq":0,"at":7,"type":"CallStarted","tenant":"acme","request_id":"req_1",'
        '"response_id":"resp_1","call_id":"call_A","tool":"t","dialect":"d","item_id":null,'
        '"output_index":2}'
    ) == StreamEvent(
        0,
        CallStarted("acme", "req_1", "resp_1", "call_A", "t", "d", output_index=2),
        7,
    )
    assert from_json('{"seq":4,"type":"ArgumentsDone"}') == StreamEvent(4, ArgumentsDone())
    assert from_json('{"seq":4,"type":"ArgumentsDone","arguments":"{}"}') == StreamEvent(
        4, ArgumentsDone(b"{}")
    )
    assert from_json(
        '{"seq":5,"at":0,"type":"ResponseEnded","outcome":"completed","detail":"stop"}'
    ) == StreamEvent(5, ResponseEnded("completed", "stop"))
    assert from_json('{"seq":6,"type":"CallAborted","reason":"stream_error"}') == StreamEvent(
        6, CallAborted("stream_error")
    )
    assert from_json('{"seq":-1,"type":"CallExpired","cause":"idle","last_seq":3}') == StreamEvent(
        -1, CallExpired("idle", 3)
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"type":"ArgumentsDone"}', "seq"),
        ('{"seq":1}', "type"),
        ('{"seq":1,"type":"Other"}', "type"),
        ('{"seq":1,"type":["ArgumentsDone"]}', "too_deep"),
        ('{"seq":1,"type":1}', "type"),
        ('{"seq":"1","type":"ArgumentsDone"}', "seq"),
        ('{"seq":true,"type":"ArgumentsDone"}', "seq"),
        ('{"seq":1.0,"type":"ArgumentsDone"}', "seq"),
        ('{"seq":1,"type":"ArgumentsDone","at":"now"}', "at"),
        ('{"seq":1,"type":"ArgumentsDone","at":9223372036854775808}', "at"),
        ('{"seq":1,"type":"ArgumentsDone","fragment":"x"}', "1 members"),
        ('{"seq":1,"type":"ArgumentsDelta"}', "fragment is missing"),
        ('{"seq":1,"type":"ArgumentsDelta","fragment":null}', "fragment is missing"),
        ('{"seq":1,"type":"ArgumentsDelta","fragment":7}', "fragment is no text"),
        ('{"seq":1,"type":"ResponseEnded","outcome":"done"}', "outcome is none of"),
        ('{"seq":1,"type":"CallExpired","cause":"idle","last_seq":1}', "seq of CallExpired"),
        ('{"seq":1,"seq":2,"type":"ArgumentsDone"}', "duplicate_member"),
        ('{"seq":1,"type":"ArgumentsDone"', "invalid_json"),
        ('{"seq":1,"type":"ArgumentsDone"} x', "invalid_json"),
        ('{"seq":NaN,"type":"ArgumentsDone"}', "non_finite_number"),
        ('{"seq":1,"type":"ArgumentsDelta","fragment":"\\ud800"}', "malformed_json"),
        ('{"seq":1,"type":"ArgumentsDelta","fragment":"\\u0000"}', "nul_character"),
    ],
)
def test_a_json_event_that_is_not_exactly_right_is_refused(text: str, word: str) -> None:
    """Strict: nothing is ignored, converted or guessed."""
    with pytest.raises(Undecodable, match=word) as caught:
        from_json(text)
    assert caught.value.code in ("invalid_field", "malformed_json")


def test_white_space_around_json_is_no_frame() -> None:
    """A value is JSON only when its first byte is the brace."""
    assert refusal(b' {"seq":1,"type":"ArgumentsDone"}') == "unknown_frame"
