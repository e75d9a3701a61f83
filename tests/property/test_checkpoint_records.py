"""A checkpoint keeps every slot of a call, whatever its state."""

from hypothesis import given, settings

from processor.codec.checkpoint_records import (
    call_key_of,
    checkpoint_key,
    decode_checkpoint,
    encode_checkpoint,
)
from processor.core.checkpoint import Checkpoint
from processor.core.limits import Limits
from tests.builders import Record, call_state
from tests.property.test_core_restart import apply, limits_of_logs, logs, new_fold


@settings(max_examples=300, deadline=None)
@given(logs, limits_of_logs)
def test_what_is_read_back_is_the_call(records: list[Record], limits: Limits) -> None:
    """After every record of a wild log, for every tracked key."""
    fold = new_fold(limits, -1, early=False)
    for record in records:
        apply(fold, record)
        for name, call in fold.calls.items():
            read = decode_checkpoint(name, encode_checkpoint(Checkpoint(name, 7, call)))
            assert read.call is not None
            assert (read.key, read.as_of) == (name, 7)
            assert call_state(read.call) == {**call_state(call), "need_offset": 7}


def test_a_key_that_is_gone_has_no_state() -> None:
    """Only where it was forgotten."""
    gone = Checkpoint(b"acme/req_1/resp_1/call_A", 9, None)
    assert decode_checkpoint(gone.key, encode_checkpoint(gone)) == gone


def test_a_key_belongs_to_its_group() -> None:
    """One group's name may be the beginning of another's."""
    key = b"acme/req_1/resp_1/call_A"
    assert call_key_of("group", checkpoint_key("group", key)) == key
    assert call_key_of("group", checkpoint_key("group-2", key)) is None
    assert call_key_of("group", None) is None
