"""Where a partition is taken over, and what is refused instead of guessed."""

import pytest

from processor.core.assembly import FOLD_VERSION
from processor.runtime.errors import RestoreRefused
from processor.runtime.offset_metadata import MetadataError, OffsetMetadata, decode_metadata
from processor.runtime.restore import (
    NO_OFFSET,
    Committed,
    LogEnds,
    StartAt,
    TopicFacts,
    plan_start,
)

FACTS = TopicFacts("topic-id", 3)
ENDS = LogEnds(10, 100)


def metadata(**changes: int | str) -> str:
    """Metadata of a commit at low-water 40."""
    fields: dict[str, int | str] = {
        "fold": FOLD_VERSION,
        "low": 40,
        "log_time_ms": 7,
        "partitions": 3,
        "topic_id": "topic-id",
    }
    return OffsetMetadata(**{**fields, **changes}).encode()  # type: ignore[arg-type]  # by name


def committed(offset: int, text: str) -> Committed:
    """A committed position of partition 1."""
    return Committed("events", 1, offset, text)


def test_restore_reads_from_low_and_mutes_below_the_committed_offset() -> None:
    """The re-fold begins at `low`; outputs count from the committed offset on."""
    plan = plan_start(committed(50, metadata()), ENDS, FACTS, start=None, accept_reset=False)
    assert plan == StartAt(40, 50, 7, "restored")


def test_a_fresh_group_starts_where_it_was_told() -> None:
    """`earliest` is the log's first offset, `latest` its next one."""
    nothing = committed(NO_OFFSET, "")
    for start, offset in (("earliest", 10), ("latest", 100)):
        plan = plan_start(nothing, ENDS, FACTS, start=start, accept_reset=False)  # type: ignore[arg-type]  # loop over literals
        assert plan == StartAt(offset, offset, -1, "fresh")


def test_an_accepted_reset_starts_at_the_offset_set_by_hand() -> None:
    """With --accept-reset the position is taken, and nothing below it is known."""
    plan = plan_start(committed(50, ""), ENDS, FACTS, start=None, accept_reset=True)
    assert plan == StartAt(50, 50, -1, "accepted_reset")


@pytest.mark.parametrize(
    ("position", "ends", "accept_reset", "code"),
    [
        (committed(NO_OFFSET, ""), ENDS, False, "no_committed_offset"),
        (committed(50, ""), ENDS, False, "reset_by_hand"),
        (committed(5, ""), ENDS, True, "offset_out_of_range"),
        (committed(50, "somebody else's"), ENDS, False, "metadata_unreadable"),
        (committed(30, metadata()), ENDS, False, "metadata_unreadable"),
        (committed(50, metadata(fold=FOLD_VERSION + 1)), ENDS, False, "fold_version"),
        (committed(50, metadata(topic_id="other")), ENDS, False, "topic_recreated"),
        (committed(50, metadata(partitions=2)), ENDS, False, "partitions_changed"),
        (committed(50, metadata()), LogEnds(41, 100), False, "offset_out_of_range"),
        (committed(50, metadata()), LogEnds(10, 49), False, "offset_out_of_range"),
    ],
)
def test_a_position_that_does_not_fit_is_refused_by_name(
    position: Committed, ends: LogEnds, code: str, *, accept_reset: bool
) -> None:
    """Every refusal names its code, the place, and what to do."""
    with pytest.raises(RestoreRefused) as caught:
        plan_start(position, ends, FACTS, start=None, accept_reset=accept_reset)
    assert str(caught.value).startswith(f"{code}: events[1]") or "events[1]" in str(caught.value)
    assert str(caught.value).startswith(code)


def test_low_at_the_committed_offset_needs_no_older_record() -> None:
    """With no call open, retention may have emptied the log up to the committed offset."""
    plan = plan_start(
        committed(50, metadata(low=50)), LogEnds(50, 50), FACTS, start=None, accept_reset=False
    )
    assert plan.offset == plan.mute_below == 50


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"v":2}', '{"v":1,"fold":1,"low":"1","time":1,"parts":1,"topic":"t"}'],
)
def test_metadata_that_is_not_ours_is_refused(text: str) -> None:
    """A wrong type, version or shape raises, and never a KeyError."""
    with pytest.raises(MetadataError):
        decode_metadata(text)


def test_metadata_survives_its_round_trip_and_stays_small() -> None:
    """The broker keeps 4,096 bytes at most."""
    full = OffsetMetadata(FOLD_VERSION, 2**62, 2**45, 10_000, "x" * 36)
    assert decode_metadata(full.encode()) == full
    assert len(full.encode()) < 200
