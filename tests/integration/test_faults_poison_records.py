"""Records that a producer may legally write and that end the assembler again and again."""

import ctypes
import random
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message, Producer

from processor.core.identity import CallKey
from tests.integration.assembler_rig import Rig, call_records, rig

pytestmark = [pytest.mark.integration, pytest.mark.faults]

KEY = CallKey("acme", "req_bad", "resp_1", "call_A").encode()
#: Longer than the window of LZ4, so zstd compresses its repetitions and LZ4 does not.
PERIOD_BYTES = 300_000


def write_compressed(made: Rig, value: bytes) -> None:
    """Write one record that its topic takes because it is small when compressed."""
    producer = Producer(
        {
            "bootstrap.servers": made.bootstrap,
            "compression.type": "zstd",
            "message.max.bytes": 64 * 1024 * 1024,
        }
    )
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            failures.append(error)

    producer.produce(made.topics.events, value, KEY, on_delivery=on_delivery)
    assert producer.flush(60) == 0
    assert not failures, failures[0].name()


def large_values() -> list[tuple[str, Callable[[], bytes]]]:
    """What becomes too large for a dead letter, and why."""
    mixed = random.Random(1).randbytes(PERIOD_BYTES)
    return [
        ("over the producer's own bound", lambda: b"A" * 17_000_000),
        ("over the dead-letter topic's bound once LZ4 packs it", lambda: mixed * 10),
    ]


@pytest.mark.parametrize(("why", "value"), large_values())
def test_a_record_that_is_small_only_when_compressed_does_not_stop_its_partition(
    kafka_bootstrap: str, topic_prefix: str, why: str, value: Callable[[], bytes]
) -> None:
    """It becomes a dead letter of some form, and the call behind it completes."""
    del why
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        made.write(call_records(1, b'{"a":1}', 2))
        write_compressed(made, value())
        made.write(call_records(2, b'{"a":1}', 2))
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        assert len(made.read(made.topics.completed)) == 2
        assert len(made.read(made.topics.deadletter)) == 1


class _Bytes(ctypes.Structure):
    _fields_: ClassVar = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _Header(ctypes.Structure):
    _fields_: ClassVar = [
        ("name", ctypes.c_char_p),
        ("value", ctypes.c_char_p),
        ("size", ctypes.c_ssize_t),
    ]


class _Argument(ctypes.Union):
    _fields_: ClassVar = [
        ("text", ctypes.c_char_p),
        ("number", ctypes.c_int),
        ("data", _Bytes),
        ("header", _Header),
        ("room", ctypes.c_char * 64),
    ]


class _Tagged(ctypes.Structure):
    _fields_: ClassVar = [("tag", ctypes.c_int), ("argument", _Argument)]


_TOPIC, _VALUE, _KEY, _FLAGS, _HEADER = 1, 4, 5, 7, 9
_COPY = 2


def write_with_header(made: Rig, key: bytes, value: bytes, name: bytes) -> None:
    """Write a record with a header name of any bytes, which the Python client cannot."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*"))))
    for function in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_produceva"):
        getattr(library, function).restype = ctypes.c_void_p
    text = ctypes.create_string_buffer(512)
    configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(
        configuration, b"bootstrap.servers", made.bootstrap.encode(), text, ctypes.c_size_t(512)
    )
    client = ctypes.c_void_p(library.rd_kafka_new(0, configuration, text, ctypes.c_size_t(512)))
    assert client.value is not None, text.value
    key_room, value_room = ctypes.create_string_buffer(key), ctypes.create_string_buffer(value)
    arguments = (_Tagged * 5)()
    arguments[0].tag, arguments[0].argument.text = _TOPIC, made.topics.events.encode()
    arguments[1].tag = _VALUE
    arguments[1].argument.data = _Bytes(ctypes.addressof(value_room), len(value))
    arguments[2].tag = _KEY
    arguments[2].argument.data = _Bytes(ctypes.addressof(key_room), len(key))
    arguments[3].tag, arguments[3].argument.number = _FLAGS, _COPY
    arguments[4].tag, arguments[4].argument.header = _HEADER, _Header(name, b"x", 1)
    assert not library.rd_kafka_produceva(client, arguments, ctypes.c_size_t(5))
    assert library.rd_kafka_flush(client, 30_000) == 0
    library.rd_kafka_destroy(client)


def test_a_header_name_that_is_not_utf8_does_not_stop_its_partition(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Header names are bytes on the wire; the call and the one behind it complete."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        *records, (key, value) = call_records(1, b'{"a":1}', 2)
        made.write(records)
        assert key is not None
        assert value is not None
        write_with_header(made, key, value, b"bad\xff\xfename")
        made.write(call_records(2, b'{"a":1}', 2))
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        assert len(made.read(made.topics.completed)) == 2
