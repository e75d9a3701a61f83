"""Bytes of every released version, kept as files: they must be read the same for ever."""

from pathlib import Path

import pytest

from processor.codec.records import (
    decode_completed,
    decode_event,
    decode_rejected,
    decode_result,
    decode_usage,
    encode_completed,
    encode_event,
    encode_rejected,
    encode_result,
    encode_usage,
    usage_key,
)
from processor.core.canonical import sha256
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    CallAborted,
    CallExpired,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.evidence import Evidence
from processor.core.identity import CallKey
from processor.core.outcomes import CallCompleted, CallRejected
from processor.core.results import CallResult
from processor.core.usage import ResponseUsage

FOLDER = Path(__file__).parent / "golden"
KEY = CallKey("acme", "req_1", "resp_1", "call_A")
TEXT = b'{"order_id":"ORDER-1001"}'
AT_MS = 1_764_547_200_000
EVIDENCE = Evidence(
    "toolcalls.events.v1", 3, 1000, 1024, 23, 20, 1, AT_MS, AT_MS + 900, "equal", "completed"
)

EVENTS = {
    "ArgumentsDelta": StreamEvent(3, ArgumentsDelta(b'{"order_id":'), AT_MS),
    "CallStarted": StreamEvent(
        0, CallStarted(*KEY, "issue_refund", "openai-responses", "fc_1", 2, "gpt-x", "text"), AT_MS
    ),
    "CallStarted.least": StreamEvent(0, CallStarted(*KEY, "issue_refund", "openai-chat")),
    "ArgumentsDone": StreamEvent(21, ArgumentsDone(TEXT), AT_MS),
    "ArgumentsDone.least": StreamEvent(21, ArgumentsDone()),
    "ResponseEnded": StreamEvent(22, ResponseEnded("truncated", "max_tokens"), AT_MS),
    "CallAborted": StreamEvent(5, CallAborted("provider_sequence_gap"), AT_MS),
    "CallExpired": StreamEvent(-1, CallExpired("max_life", 20), AT_MS),
}
COMPLETED = CallCompleted(
    KEY,
    "issue_refund",
    "openai-responses",
    TEXT,
    "json",
    sha256(TEXT),
    sha256(TEXT),
    "transactional",
    "response_end",
    EVIDENCE,
    "fc_1",
    2,
    "gpt-x",
    "sha256:0001",
)
REJECTED = CallRejected(
    KEY,
    "sequence_gap",
    "ordering",
    "seq 4 expected, 6 read",
    EVIDENCE,
    "issue_refund",
    "openai-chat",
)
RESULT = CallResult(KEY, "issue_refund", "failed", "new_key", b"{}", "Timeout", replayed=True)
USAGE = ResponseUsage(
    "acme", "req_1", "resp_1", "openai-chat", "gpt-x", 10, 0, None, 4, None, {"usage.prompt": 10}
)


def golden(name: str) -> bytes:
    """Bytes of a file."""
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text(encoding="ascii"))


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_events_of_version_1_are_read_for_ever(name: str) -> None:
    """Written and read to the byte."""
    assert decode_event(KEY.encode(), golden(f"StreamEvent.v1.{name}")) == EVENTS[name]


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_events_are_written_as_version_1(name: str) -> None:
    """Holds as long as version 1 is the newest; then the new version gets files of its own."""
    assert encode_event(EVENTS[name]) == golden(f"StreamEvent.v1.{name}")


def test_the_other_records_of_version_1_are_read_for_ever() -> None:
    """One full example each."""
    key = KEY.encode()
    assert decode_completed(key, golden("CallCompleted.v1")) == COMPLETED
    assert decode_rejected(key, golden("CallRejected.v1")) == REJECTED
    assert decode_result(key, golden("CallResult.v1")) == RESULT
    assert decode_usage(usage_key(USAGE), golden("ResponseUsage.v1")) == USAGE


def test_the_other_records_are_written_as_version_1() -> None:
    """As for events."""
    assert encode_completed(COMPLETED) == golden("CallCompleted.v1")
    assert encode_rejected(REJECTED) == golden("CallRejected.v1")
    assert encode_result(RESULT) == golden("CallResult.v1")
    assert encode_usage(USAGE) == golden("ResponseUsage.v1")
