"""The words of the ledger that are not a database's."""

import hashlib
from typing import get_args

import pytest

from processor.core.results import Retry
from processor.ledger.port import CallState, VerdictKind, arguments_hash, next_key
from tests.unit.executor.calls import completed_call


def test_every_state_and_verdict_says_which_key_comes_next() -> None:
    """Closed lists, closed answers."""
    for word in (*get_args(CallState), *get_args(VerdictKind)):
        assert next_key(word) in get_args(Retry)
    assert next_key("failed") == "new_key"
    assert {w for w in get_args(VerdictKind) if next_key(w) == "never"} == {"conflict", "expired"}


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b'{"a":1,"b":2}', b'{ "b" : 2, "a" : 1 }'),
        (b'{"a":1}', b'{"a":1.0}'),
        (b'{"a":"\\u0041"}', b'{"a":"A"}'),
    ],
)
def test_arguments_that_mean_the_same_have_one_hash(one: bytes, two: bytes) -> None:
    """The canonical form is compared, not the bytes."""
    first, second = completed_call(one), completed_call(two)
    assert arguments_hash(first) == arguments_hash(second)
    assert arguments_hash(first)[0] == 1


def test_a_number_that_rounding_would_change_is_compared_by_its_bytes() -> None:
    """Two different amounts never share a hash."""
    one = completed_call(b'{"a":9007199254740993}')
    two = completed_call(b'{"a":9007199254740992}')
    assert arguments_hash(one) == b"\x02" + hashlib.sha256(one.arguments).digest()
    assert arguments_hash(one) != arguments_hash(two)


def test_free_text_is_compared_by_its_bytes() -> None:
    """There is no canonical form of it."""
    call = completed_call(b"SELECT 1", arguments_format="text")
    assert arguments_hash(call) == b"\x02" + call.arguments_sha256
