"""The registry client against a transport that answers by rule."""

import json
from collections.abc import Callable

import httpx
import pytest

from processor.codec.records import (
    CALL_COMPLETED,
    STREAM_EVENT,
    Undecodable,
    decode_event,
    encode_event,
)
from processor.codec.registry import ANSWER_BYTES_MAX, Registry, RegistrySettings
from processor.core.errors import Misuse, Transient
from processor.core.events import ResponseEnded, StreamEvent
from tests.builders import delta, key

KEY = key().encode()
URL = "http://registry.test:8081/apis/ccompat/v7"
Answer = Callable[[httpx.Request], httpx.Response]


class Rig:
    """A registry client, what it asked, and how long it waited between tries."""

    def __init__(self, answer: Answer, settings: RegistrySettings | None = None) -> None:
        self.asked: list[str] = []
        self.waited_s: list[float] = []

        def handle(request: httpx.Request) -> httpx.Response:
            self.asked.append(f"{request.method} {request.url.path}")
            return answer(request)

        self.registry = Registry(
            settings or RegistrySettings(URL),
            transport=httpx.MockTransport(handle),
            sleep=self.waited_s.append,
        )


def answering(status: int, body: object) -> Answer:
    """The same answer to everything."""
    return lambda _: httpx.Response(status, json=body)


def failing(_: httpx.Request) -> httpx.Response:
    """Nobody there."""
    raise httpx.ConnectError("secret of the network")


def test_a_schema_is_asked_for_once() -> None:
    """An id never changes its meaning."""
    rig = Rig(answering(200, {"schema": STREAM_EVENT.text}))
    event = StreamEvent(1, delta("x"))
    for _ in range(3):
        value = encode_event(event, schema_id=7)
        assert decode_event(KEY, value, lookup=rig.registry) == event
    assert rig.asked == ["GET /apis/ccompat/v7/schemas/ids/7"]


def test_an_unknown_id_is_the_records_fault() -> None:
    """A dead letter, and one question however often it comes."""
    rig = Rig(answering(404, {"error_code": 40403, "message": "secret"}))
    value = encode_event(StreamEvent(1, delta("x")), schema_id=7)
    for _ in range(3):
        with pytest.raises(Undecodable, match=r"unknown_schema.* 7$") as caught:
            decode_event(KEY, value, lookup=rig.registry)
        assert caught.value.code == "unknown_schema"
    assert len(rig.asked) == 1


def test_without_a_registry_its_frame_is_refused() -> None:
    """Fail closed: no schema, no reading."""
    value = encode_event(StreamEvent(1, delta("x")), schema_id=7)
    with pytest.raises(Undecodable, match="no registry is configured") as caught:
        decode_event(KEY, value)
    assert caught.value.code == "unknown_schema"


@pytest.mark.parametrize(
    "answer",
    [failing, answering(503, {}), answering(429, {})],
    ids=["no connection", "503", "429"],
)
def test_a_registry_that_does_not_answer_is_tried_again_and_then_transient(answer: Answer) -> None:
    """Bounded tries with growing pauses; the record is not lost to the dead letters."""
    rig = Rig(answer)
    with pytest.raises(Transient, match=r"registry\.test:8081 does not answer") as caught:
        rig.registry.schema(7)
    assert "secret" not in str(caught.value)
    assert len(rig.asked) == 3
    assert rig.waited_s == [0.2, 0.4]


def test_a_registry_that_comes_back_is_used() -> None:
    """One failure costs one pause."""
    answers = iter([httpx.Response(503), httpx.Response(200, json={"schema": STREAM_EVENT.text})])
    rig = Rig(lambda _: next(answers))
    assert rig.registry.schema(7) == STREAM_EVENT.text
    assert rig.waited_s == [0.2]


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_named(status: int) -> None:
    """Not a fault of the record, and no retry helps."""
    rig = Rig(answering(status, {}), RegistrySettings(URL, user="u", password="pw-canary"))
    with pytest.raises(Misuse, match="credentials") as caught:
        rig.registry.schema(7)
    assert "canary" not in str(caught.value)
    assert len(rig.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"schema": "{}", "schemaType": "PROTOBUF"},
        {"schema": STREAM_EVENT.text, "references": [{"name": "x"}]},
        {"schema": CALL_COMPLETED.text},
        {"schema": "not json"},
        {"schema": '"string"'},
        {"schema": "[" * 100_000},
        {"schema": " " * 300_000 + STREAM_EVENT.text},
        {
            "schema": json.dumps(
                {
                    "type": "record",
                    "name": "StreamEvent",
                    "namespace": "toolcalls.v1",
                    "fields": [{"name": "seq", "type": {"type": "array", "items": "null"}}],
                }
            )
        },
        {
            "schema": json.dumps(
                {
                    "type": "record",
                    "name": "StreamEvent",
                    "namespace": "toolcalls.v1",
                    "fields": [{"name": "seq", "type": ["null", "StreamEvent"]}],
                }
            )
        },
    ],
)
def test_a_schema_that_is_not_that_of_the_record_is_refused(body: object) -> None:
    """Another type, another record, references, and schemas that could keep a reader busy."""
    rig = Rig(answering(200, body))
    value = encode_event(StreamEvent(1, delta("x")), schema_id=7)
    for _ in range(2):
        with pytest.raises(Undecodable) as caught:
            decode_event(KEY, value, lookup=rig.registry)
        assert caught.value.code == "unknown_schema"


def test_an_endless_answer_is_cut() -> None:
    """Bounded before memory is spent."""
    rig = Rig(lambda _: httpx.Response(200, content=b"x" * (ANSWER_BYTES_MAX + 1)))
    with pytest.raises(Transient):
        rig.registry.schema(7)


@pytest.mark.parametrize("body", [[], {}, {"schema": 7}, "text"])
def test_an_answer_of_another_shape_is_transient(body: object) -> None:
    """Something other than a registry answers: nothing is decided about the record."""
    with pytest.raises(Transient):
        Rig(answering(200, body)).registry.schema(7)


def test_registering_gives_the_id_and_remembers_the_schema() -> None:
    """The subject is encoded as one part of the path."""
    rig = Rig(answering(200, {"id": 12}))
    assert rig.registry.register("a/b-value", STREAM_EVENT.text) == 12
    assert rig.registry.schema(12) == STREAM_EVENT.text
    assert rig.asked == ["POST /apis/ccompat/v7/subjects/a/b-value/versions"]


@pytest.mark.parametrize(("status", "word"), [(409, "incompatible"), (422, "not valid")])
def test_a_schema_that_the_registry_refuses_is_named(status: int, word: str) -> None:
    """The operator decides: another topic, or another schema."""
    with pytest.raises(Misuse, match=word):
        Rig(answering(status, {})).registry.register("t-value", "{}")


@pytest.mark.parametrize(
    "settings",
    [
        RegistrySettings("ftp://x"),
        RegistrySettings("registry:8081"),
        RegistrySettings("http://u:p@x"),
        RegistrySettings(URL, user="u"),
        RegistrySettings(URL, timeout_s=0),
        RegistrySettings(URL, tries=0),
    ],
)
def test_contradictory_settings_are_refused(settings: RegistrySettings) -> None:
    """At construction, by name."""
    with pytest.raises(Misuse, match=r"^registry\."):
        settings.checked()


def changed(text: str, old: str, new: str) -> str:
    """A schema text with one change, which must apply."""
    assert old in text
    return text.replace(old, new, 1)


def test_an_outcome_of_the_future_is_read_as_unknown() -> None:
    """Enum default: the careful symbol, which rejects the call."""
    writer = changed(STREAM_EVENT.text, '"completed", "truncated"', '"paused", "truncated"')
    rig = Rig(answering(200, {"schema": writer}))
    value = encode_event(StreamEvent(1, ResponseEnded("completed")), schema_id=9)
    read = decode_event(KEY, value, lookup=rig.registry)
    assert read == StreamEvent(1, ResponseEnded("unknown"))


def test_a_field_of_the_future_is_left_out() -> None:
    """A newer writer may add a field; its data is checked and dropped."""
    writer = changed(
        STREAM_EVENT.text,
        '{"name": "fragment"',
        '{"name": "extra", "type": ["null", "string"], "default": null}, {"name": "fragment"',
    )
    rig = Rig(answering(200, {"schema": writer}))
    head = b"\x00\x00\x00\x00\x09\x02\x00\x00"
    assert decode_event(KEY, head + b"\x02\x04hi\x02x", lookup=rig.registry) == StreamEvent(
        1, delta("x")
    )
    with pytest.raises(Undecodable, match="malformed_avro"):
        decode_event(KEY, head + b"\x02\x04hi\x02x!", lookup=rig.registry)


def test_a_schema_without_a_needed_field_is_refused_with_the_record() -> None:
    """What cannot be resolved is no event."""
    writer = changed(STREAM_EVENT.text, '"name": "fragment"', '"name": "piece"')
    rig = Rig(answering(200, {"schema": writer}))
    value = encode_event(StreamEvent(1, delta("x")), schema_id=9)
    with pytest.raises(Undecodable, match="malformed_avro"):
        decode_event(KEY, value, lookup=rig.registry)
