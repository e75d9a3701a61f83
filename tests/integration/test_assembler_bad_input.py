"""Whatever bytes lie on the events topic: a named dead letter, and the next good call completes."""

import json
import random
from typing import cast

import pytest
from confluent_kafka import Message

from processor.codec.records import decode_completed, decode_rejected, encode_event
from processor.core.events import ArgumentsDelta, CallStarted, StreamEvent
from processor.core.identity import CallKey
from tests.integration.assembler_rig import AT_MS, Record, Rig, call_records, rig

pytestmark = pytest.mark.integration

KEY = CallKey("acme", "req_bad", "resp_1", "call_A")
OTHER = CallKey("acme", "req_other", "resp_1", "call_A")
STARTED = encode_event(
    StreamEvent(0, CallStarted(*KEY, tool="lookup_order", dialect="openai-chat"), AT_MS)
)
CANARY = b"CANARY-7c1f-SECRET"


def good(number: int) -> list[Record]:
    """A call that must complete whatever stands around it."""
    return call_records(number, b'{"order_id":"ORDER-%d"}' % number, 3)


BAD: list[tuple[str, Record]] = [
    ("unknown_frame", (KEY.encode(), random.Random(1).randbytes(40))),
    ("unknown_frame", (KEY.encode(), b"")),
    ("malformed_avro", (KEY.encode(), STARTED[:-3])),
    ("malformed_avro", (KEY.encode(), STARTED + b"\0")),
    ("unknown_schema", (KEY.encode(), b"\0\0\0\0\x63" + STARTED[10:])),
    ("unknown_schema", (KEY.encode(), b"\xc3\x01" + bytes(8) + STARTED[10:])),
    ("key_mismatch", (OTHER.encode(), STARTED)),
    ("malformed_key", (b"not-a-key", STARTED)),
    ("malformed_key", (b"a/b/c/d\xff", STARTED)),
    ("null_key", (None, STARTED)),
    ("null_value", (KEY.encode(), None)),
    ("too_large", (KEY.encode(), CANARY + b"x" * 5_000_000)),
    ("invalid_field", (KEY.encode(), b'{"seq":0,"type":"ArgumentsDelta","fragmnt":"x"}')),
    ("invalid_field", (KEY.encode(), b'{"seq":-1,"type":"ArgumentsDelta","fragment":"x"}')),
    ("malformed_json", (KEY.encode(), b'{"seq":0,"type":"ArgumentsDelta","fragment":"' + CANARY)),
]


def test_every_kind_of_bad_bytes_is_a_named_dead_letter_and_good_calls_complete(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Original key and bytes are kept, the code is a header, the calls around are complete."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        allow_large_records(made)
        for number, (_, bad) in enumerate(BAD):
            made.write([*good(number), bad])
        made.write(good(len(BAD)))
        process = made.start()
        made.wait_committed(process)
        log = made.stop(process)
        letters = made.read(made.topics.deadletter)
        told = [
            (header(letter, "error_code"), (letter.key(), letter.value())) for letter in letters
        ]
        assert told == [(code, record) for code, record in BAD]
        assert {header(letter, "origin_topic") for letter in letters} == {made.topics.events}
        origins = [int(header(letter, "origin_offset")) for letter in letters]
        assert origins == sorted(origins)
        completed = made.read(made.topics.completed)
        assert len(completed) == len(BAD) + 1
        assert CANARY.decode() not in log
        made.assert_exact()


def header(message: Message, name: str) -> str:
    """One header as text."""
    pairs = cast("list[tuple[str, bytes]]", message.headers())
    return dict(pairs)[name].decode()


def allow_large_records(made: Rig) -> None:
    """Let the events topic take the 5 MB value that its settings would refuse at the door."""
    made.set_message_bytes(made.topics.events, 8 * 1024 * 1024)
    made.set_message_bytes(made.topics.deadletter, 12 * 1024 * 1024)


def test_rejected_arguments_appear_in_no_log_and_no_rejection(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """A unique text in the arguments of refused calls is found on no output but the events."""
    broken = b'{"' + CANARY + b'":"' + CANARY + b'",'
    twice = b'{"a":"' + CANARY + b'","a":1}'
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write(call_records(1, broken, 3))
        made.write(call_records(2, twice, 3))
        made.write(call_records(3, b'{"a":"' + CANARY + b'"}', 3, outcome="truncated"))
        process = made.start()
        made.wait_committed(process)
        log = made.stop(process)
        rejected = made.read(made.topics.rejected)
        reasons = sorted(decode_rejected(m.key(), m.value()).reason for m in rejected)
        assert reasons == ["duplicate_member", "invalid_json", "truncated"]
        assert CANARY.decode() not in log
        for message in rejected:
            assert CANARY not in (message.value() or b"")
            assert CANARY.decode() not in repr(message.headers())


def test_json_values_are_read_as_a_first_step_for_other_languages(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """A call written as JSON lines completes with its exact text."""
    key = CallKey("acme", "req_json", "resp_1", "call_A")
    bodies = [
        {
            "type": "CallStarted",
            **key._asdict(),
            "tool": "get_weather",
            "dialect": "openai-chat",
        },
        {"type": "ArgumentsDelta", "fragment": '{"city":"Pa'},
        {"type": "ArgumentsDelta", "fragment": 'ris"}'},
        {"type": "ArgumentsDone"},
        {"type": "ResponseEnded", "outcome": "completed"},
    ]
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write(
            [
                (key.encode(), json.dumps({"seq": seq, **body}).encode())
                for seq, body in enumerate(bodies)
            ]
        )
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        [message] = made.read(made.topics.completed)
        assert decode_completed(message.key(), message.value()).arguments == b'{"city":"Paris"}'


def test_a_call_larger_than_its_limit_is_rejected_by_name(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """The buffer stops at the limit; what still comes is swallowed."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write(call_records(1, b'{"a":"' + b"x" * 3_000 + b'"}', 6))
        process = made.start(arguments_bytes_max="1000")
        made.wait_committed(process)
        made.stop(process)
        [message] = made.read(made.topics.rejected)
        assert decode_rejected(message.key(), message.value()).reason == "too_large"
        assert not made.read(made.topics.completed)


def test_a_value_without_its_start_is_rejected_once(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Fragments of a call whose start was lost are one rejection, not one each."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        deltas = [
            (KEY.encode(), encode_event(StreamEvent(seq, ArgumentsDelta(b"x"), AT_MS)))
            for seq in range(3, 9)
        ]
        made.write(deltas)
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        [message] = made.read(made.topics.rejected)
        assert decode_rejected(message.key(), message.value()).reason == "missing_start"
