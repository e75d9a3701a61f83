"""Reading the records that the processor itself writes: what must agree, and what is refused."""

from collections.abc import Callable

import pytest

from processor.codec import records
from processor.codec.dead_letter_codes import DEAD_LETTER_CODES
from processor.codec.records import (
    Undecodable,
    Unencodable,
    decode_completed,
    decode_rejected,
    decode_result,
    decode_usage,
    encode_completed,
    encode_rejected,
    encode_result,
    encode_usage,
    usage_key,
)
from processor.core.canonical import sha256
from processor.core.outcomes import CallCompleted
from processor.core.results import CallResult
from processor.core.usage import ResponseUsage
from tests.builders import aborted, call_events, key, numbered, only_completed, only_rejected, run
from tests.builders import started as start

KEY = key().encode()
COMPLETED = only_completed(run(call_events()))
REJECTED = only_rejected(run(numbered([start(), aborted()])))
RESULT = CallResult(key(), "issue_refund", "succeeded", "same_key", b'{"ok":true}')
USAGE = ResponseUsage("acme", "req_1", "resp_1", "openai-chat", input_tokens=0, provider={"a.b": 1})


def code_of(decode: Callable[[], object]) -> str:
    """Code of the refusal."""
    with pytest.raises(Undecodable) as caught:
        decode()
    assert caught.value.code in DEAD_LETTER_CODES
    return caught.value.code


def test_what_the_fold_says_survives_the_topic() -> None:
    """Outcomes of a real fold, there and back."""
    assert decode_completed(KEY, encode_completed(COMPLETED)) == COMPLETED
    assert decode_rejected(KEY, encode_rejected(REJECTED)) == REJECTED


@pytest.mark.parametrize(
    ("decode", "value"),
    [
        (decode_completed, encode_completed(COMPLETED)),
        (decode_rejected, encode_rejected(REJECTED)),
        (decode_result, encode_result(RESULT)),
    ],
)
def test_a_value_under_the_key_of_another_call_is_refused(
    decode: Callable[[bytes | None, bytes | None], object], value: bytes
) -> None:
    """The key and the identity in the value must agree."""
    assert code_of(lambda: decode(key("other").encode(), value)) == "key_mismatch"
    assert code_of(lambda: decode(None, value)) == "null_key"
    assert code_of(lambda: decode(KEY, None)) == "null_value"
    assert code_of(lambda: decode(KEY, b'{"seq":1}')) == "unknown_frame"
    assert code_of(lambda: decode(KEY, value[:2] + bytes(8) + value[10:])) == "unknown_schema"


def test_one_record_type_is_not_read_as_another() -> None:
    """The fingerprint says which one it is."""
    assert code_of(lambda: decode_rejected(KEY, encode_completed(COMPLETED))) == "unknown_schema"


def with_other_arguments(call: CallCompleted) -> bytes:
    """The value of `call` with one byte of its arguments changed, as damage on the way would."""
    value = encode_completed(call)
    return value.replace(b"ORDER-1001", b"ORDER-1002")


def test_arguments_that_are_not_those_of_the_digest_are_refused() -> None:
    """The digest is computed again by every reader."""
    damaged = with_other_arguments(COMPLETED)
    assert code_of(lambda: decode_completed(KEY, damaged)) == "invalid_field"


def test_an_idempotency_key_of_another_call_is_refused() -> None:
    """It is derived from the identity; a value that says otherwise could run twice."""
    value = encode_completed(COMPLETED)
    assert value.count(b"req_1:call_A") == 1
    damaged = value.replace(b"req_1:call_A", b"req_1:call_B")
    assert code_of(lambda: decode_completed(KEY, damaged)) == "invalid_field"


def test_the_key_of_a_usage_record_is_that_of_its_response() -> None:
    """Three parts, encoded like those of a call key."""
    assert usage_key(USAGE) == b"acme/req_1/resp_1"
    odd = ResponseUsage("a/b", "r%", "x", "openai-chat")
    assert usage_key(odd) == b"a%2Fb/r%25/x"
    assert decode_usage(usage_key(odd), encode_usage(odd)) == odd


def test_a_usage_record_under_another_key_is_refused() -> None:
    """As for calls."""
    value = encode_usage(USAGE)
    assert code_of(lambda: decode_usage(b"acme/req_1/resp_2", value)) == "key_mismatch"
    assert code_of(lambda: decode_usage(KEY, value)) == "malformed_key"
    assert code_of(lambda: decode_usage(b"acme/req_1", value)) == "malformed_key"
    assert code_of(lambda: decode_usage(None, value)) == "null_key"


def test_absent_counters_stay_absent_and_zeros_stay_zeros() -> None:
    """Absent is not zero."""
    read = decode_usage(usage_key(USAGE), encode_usage(USAGE))
    assert (read.input_tokens, read.output_tokens) == (0, None)


@pytest.mark.parametrize(
    "usage",
    [
        ResponseUsage("acme", "req_1", "resp_1", "d", input_tokens=-1),
        ResponseUsage("acme", "req_1", "resp_1", "d", provider={"x": -1}),
        ResponseUsage("acme", "req_1", "resp_1", "d", provider={"": 1}),
        ResponseUsage("acme", "req_1", "resp_1", "d", provider={str(n): n for n in range(257)}),
        ResponseUsage("acme", "req_1", "resp_1", ""),
        ResponseUsage("acme", "req_1", "resp_1", "d", model="x" * 257),
    ],
)
def test_usage_against_the_rules_is_not_written(usage: ResponseUsage) -> None:
    """Counters are totals: never negative, never without a name, never without bound."""
    with pytest.raises(Unencodable, match="ResponseUsage: "):
        encode_usage(usage)


@pytest.mark.parametrize(
    "result",
    [
        CallResult(key(), "", "failed", "new_key"),
        CallResult(key(), "t", "failed", "new_key", error_class="x" * 257),
        CallResult(key(), "t", "gone", "new_key"),  # type: ignore[arg-type]  # that is the point
    ],
)
def test_a_result_against_the_rules_is_not_written(result: CallResult) -> None:
    """The writer names the record and writes nothing."""
    with pytest.raises(Unencodable, match="CallResult: "):
        encode_result(result)


def test_rejections_carry_no_arguments() -> None:
    """No field of the schema could hold them."""
    schema = records.CALL_REJECTED.text
    assert '"arguments"' not in schema
    assert '"bytes"' not in schema


def test_the_digest_is_of_the_exact_bytes() -> None:
    """`arguments_sha256` is over the text as streamed."""
    assert COMPLETED.arguments_sha256 == sha256(COMPLETED.arguments)
