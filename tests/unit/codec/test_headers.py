"""Headers of what we write: CloudEvents attributes and the trace context passed on."""

import pytest

from processor.codec.headers import (
    Headers,
    cloudevents_headers,
    content_id,
    event_id,
    position_id,
    trace_headers,
)

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_four_attributes_are_there() -> None:
    """CloudEvents 1.0, Kafka binding, binary mode."""
    assert cloudevents_headers("id-1", "toolcalls/assembler", "toolcall.completed") == [
        ("ce_id", b"id-1"),
        ("ce_source", b"toolcalls/assembler"),
        ("ce_type", b"toolcall.completed"),
        ("ce_specversion", b"1.0"),
    ]


def test_ids_are_the_same_at_every_replay() -> None:
    """Derived from place or content; key and value cannot flow into each other."""
    assert position_id("events", 3, 17) == "events/3/17"
    assert event_id(b"acme/req_1/resp_1/call_A", 4) == "acme/req_1/resp_1/call_A/4"
    assert content_id(b"ab", b"c") == content_id(b"ab", b"c")
    assert content_id(b"ab", b"c") != content_id(b"a", b"bc")


def test_a_trace_context_is_passed_on() -> None:
    """Both headers, bytes or text, nothing else."""
    given: Headers = [("other", b"x"), ("traceparent", PARENT.decode()), ("tracestate", b"a=1,b=2")]
    assert trace_headers(given) == [("traceparent", PARENT), ("tracestate", b"a=1,b=2")]
    assert trace_headers([]) == trace_headers(None) == []


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"00-short-00f067aa0ba902b7-01",
        PARENT.upper(),
        PARENT + b"-more",
        PARENT + b"\n",
        b"ff" + PARENT[2:],
        b"00-" + b"0" * 32 + PARENT[35:],
        PARENT[:36] + b"0" * 16 + PARENT[52:],
        None,
    ],
)
def test_a_broken_trace_context_is_dropped(parent: bytes | None) -> None:
    """W3C Trace Context: a receiver that cannot read traceparent forgets tracestate too."""
    assert trace_headers([("traceparent", parent), ("tracestate", b"a=1")]) == []


@pytest.mark.parametrize("state", [b"x" * 513, b"a=\x00", "a=é".encode()])
def test_a_broken_trace_state_is_dropped_alone(state: bytes) -> None:
    """The context itself is still good."""
    passed = trace_headers([("traceparent", PARENT), ("tracestate", state)])
    assert passed == [("traceparent", PARENT)]
