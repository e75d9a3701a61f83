"""The call key: one identity has one text form, and what is no identity is refused by part."""

import pytest

from processor.core.identity import (
    CallKey,
    IdentityError,
    call_key,
    checked_id,
    checked_request_id,
    decode_call_key,
)
from processor.core.limits import ID_BYTES_MAX, KEY_BYTES_MAX

PARTS = ("tenant", "request_id", "response_id", "call_id")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (CallKey("acme", "req_1", "resp_1", "call_A"), b"acme/req_1/resp_1/call_A"),
        (CallKey("a/b", "c%d", "e\nf", "\x7f\x01"), b"a%2Fb/c%25d/e%0Af/%7F%01"),
        (CallKey("é", "\U0001f600", "a b", "a+b:c"), "é/\U0001f600/a b/a+b:c".encode()),
        (CallKey("%2F", "%", "%%", "%41"), b"%252F/%25/%25%25/%2541"),
    ],
    ids=["plain", "encoded", "unicode", "percent"],
)
def test_a_key_and_its_text_are_each_others_only_form(key: CallKey, text: bytes) -> None:
    """Slash, percent and control characters are encoded, nothing else."""
    assert key.encode() == text
    assert decode_call_key(text) == key


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "1 parts instead of 4"),
        (b"a/b/c", "3 parts instead of 4"),
        (b"a/b/c/d/e", "5 parts instead of 4"),
        (b"a/b/c/", "call_id is empty"),
        (b"/b/c/d", "tenant is empty"),
        (b"a/b/c/None", "call_id is empty or a word"),
        (b"a/null/c/d", "request_id is empty or a word"),
        (b"a/b/undefined/d", "response_id is empty or a word"),
        (b"a/b:b/c/d", "request_id contains a colon"),
        (b"a/b%3Ab/c/d", "request_id contains a colon"),
        (b"a/b/c/\xff", "not UTF-8"),
        (b"a/b/c/d%00", "call_id contains a NUL"),
        (b"a/b/c/d%2f", "canonical"),
        (b"a/b/c/%41", "canonical"),
        (b"a/b/c/%", "canonical"),
        (b"a/b/c/%C3%A9", "canonical"),
        (b"a/b/c/d\n", "canonical"),
        (b"a/b/c/" + b"x" * (ID_BYTES_MAX + 1), "call_id has 129 bytes, the limit is 128"),
        (b"a/b/c/" + b"%0A" * (ID_BYTES_MAX + 1), "call_id has 129 bytes"),
        (b"x" * (KEY_BYTES_MAX + 1), "the key has 1540 bytes, the limit is 1539"),
    ],
)
def test_bytes_that_no_key_would_have_are_refused(text: bytes, told: str) -> None:
    """Two texts never mean one key; the message names the part and quotes nothing."""
    with pytest.raises(IdentityError) as refused:
        decode_call_key(text)
    assert told in str(refused.value)


def test_the_longest_key_is_accepted() -> None:
    """Four ids of the longest kind, every byte encoded, fit the limit exactly."""
    key = CallKey(*["/" * ID_BYTES_MAX] * 4)
    assert len(key.encode()) == KEY_BYTES_MAX
    assert decode_call_key(key.encode()) == key


@pytest.mark.parametrize("part", range(4), ids=PARTS)
@pytest.mark.parametrize(
    "value", ["", "None", "null", "undefined", "a\0", "\ud800", "é" * 64 + "x"], ids=ascii
)
def test_each_part_is_checked_and_named(part: int, value: str) -> None:
    """Empty, a word for nothing, no Unicode, or one byte too long."""
    parts = ["acme", "req_1", "resp_1", "call_A"]
    parts[part] = value
    with pytest.raises(IdentityError, match=PARTS[part]):
        call_key(*parts)


def test_a_longest_id_and_words_that_only_look_like_nothing_are_ids() -> None:
    """128 bytes of any script; `none` and `0` are what somebody chose."""
    for value in ("é" * 64, "none", "0", "NULL", " "):
        assert checked_id("tenant", value) == value
    assert checked_request_id("req_1") == "req_1"


def test_the_idempotency_key_has_one_reading() -> None:
    """The request id has no colon, so request and call cannot be shifted against each other."""
    assert CallKey("acme", "a", "resp_1", "b:c").idempotency_key == "a:b:c"
    with pytest.raises(IdentityError, match="request_id contains a colon"):
        call_key("acme", "a:b", "resp_1", "c")
    with pytest.raises(IdentityError, match="request_id is empty"):
        checked_request_id("")
