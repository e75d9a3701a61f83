"""Where a partition is taken over, and what is refused instead of guessed."""

from typing import Literal

import pytest

from processor.core.assembly import FOLD_VERSION
from processor.core.gate import NoCatalogue
from processor.core.limits import Limits
from processor.core.terms import Terms, TermsMark
from processor.runtime.errors import RestoreRefused
from processor.runtime.known_terms import KnownTerms
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
TERMS = TermsMark("digest", Limits(), wait_for_response=False)
OTHER = TermsMark("digest", Limits(depth_max=8), wait_for_response=False)
ENDS = LogEnds(10, 100)


def metadata(**changes: int | str | TermsMark) -> str:
    """Metadata of a commit at low-water 40."""
    fields: dict[str, int | str | TermsMark] = {
        "fold": FOLD_VERSION,
        "low": 40,
        "log_time_ms": 7,
        "partitions": 3,
        "topic_id": "topic-id",
        "terms": TERMS,
        "since": 20,
    }
    return OffsetMetadata(**{**fields, **changes}).encode()  # type: ignore[arg-type]  # by name


def committed(offset: int, text: str) -> Committed:
    """A committed position of partition 1."""
    return Committed("events", 1, offset, text)


def test_restore_reads_from_low_and_mutes_below_the_committed_offset() -> None:
    """The re-fold begins at `low`; outputs count from the committed offset on."""
    plan = plan_start(
        committed(50, metadata()), ENDS, FACTS, FOLD_VERSION, TERMS, start=None, accept_reset=False
    )
    assert plan == StartAt(40, 50, 7, "restored", 20)


def test_a_fresh_group_starts_where_it_was_told() -> None:
    """`earliest` is the log's first offset, `latest` its next one."""
    nothing = committed(NO_OFFSET, "")
    cases: list[tuple[Literal["earliest", "latest"], int]] = [("earliest", 10), ("latest", 100)]
    for start, offset in cases:
        plan = plan_start(
            nothing, ENDS, FACTS, FOLD_VERSION, TERMS, start=start, accept_reset=False
        )
        assert plan == StartAt(offset, offset, -1, "fresh", offset)


def test_an_accepted_reset_starts_at_the_offset_set_by_hand() -> None:
    """With --accept-reset the position is taken, and nothing below it is known."""
    plan = plan_start(
        committed(50, ""), ENDS, FACTS, FOLD_VERSION, TERMS, start=None, accept_reset=True
    )
    assert plan == StartAt(50, 50, -1, "accepted_reset", 50)


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
        plan_start(
            position, ends, FACTS, FOLD_VERSION, TERMS, start=None, accept_reset=accept_reset
        )
    assert str(caught.value).startswith(f"{code}: events[1]") or "events[1]" in str(caught.value)
    assert str(caught.value).startswith(code)


def test_a_partition_beyond_the_known_count_is_refused() -> None:
    """The topic has grown since this process began; it would start there as a fresh one."""
    beyond = Committed("events", 3, NO_OFFSET, "")
    with pytest.raises(RestoreRefused, match=r"^partitions_changed: events\[3\]"):
        plan_start(beyond, ENDS, FACTS, FOLD_VERSION, TERMS, start="earliest", accept_reset=False)


def test_low_at_the_committed_offset_needs_no_older_record() -> None:
    """With no call open, retention may have emptied the log up to the committed offset."""
    plan = plan_start(
        committed(50, metadata(low=50)),
        LogEnds(50, 50),
        FACTS,
        FOLD_VERSION,
        TERMS,
        start=None,
        accept_reset=False,
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
    mark = TermsMark("d" * 64, Limits(fragments_max=2**31), wait_for_response=True)
    full = OffsetMetadata(FOLD_VERSION, 2**62, 2**45, 10_000, "x" * 36, mark, 2**62, OTHER)
    assert decode_metadata(full.encode()) == full
    assert len(full.encode()) < 400


def test_changed_terms_decide_from_the_committed_offset_on() -> None:
    """What was decided before is folded again by the terms of that time."""
    plan = plan_start(
        committed(50, metadata()), ENDS, FACTS, FOLD_VERSION, OTHER, start=None, accept_reset=False
    )
    assert (plan.since, plan.former) == (50, TERMS)


def test_former_terms_stay_needed_until_low_has_passed_their_end() -> None:
    """A second restart under the same terms still folds the older part by the former ones."""
    text = metadata(terms=OTHER, since=45, former=TERMS)
    plan = plan_start(
        committed(50, text), ENDS, FACTS, FOLD_VERSION, OTHER, start=None, accept_reset=False
    )
    assert (plan.since, plan.former) == (45, TERMS)


def test_terms_may_change_freely_when_no_call_is_open() -> None:
    """With `low` at the committed offset nothing is folded again."""
    text = metadata(low=50)
    plan = plan_start(
        committed(50, text), ENDS, FACTS, FOLD_VERSION, OTHER, start=None, accept_reset=False
    )
    assert (plan.since, plan.former) == (50, None)


def test_a_second_change_of_terms_waits_for_the_first() -> None:
    """Two changes inside one low-water window are refused by name."""
    third = TermsMark(None, Limits(), wait_for_response=True)
    text = metadata(terms=OTHER, since=45, former=TERMS)
    with pytest.raises(RestoreRefused, match="terms_changed_twice"):
        plan_start(
            committed(50, text), ENDS, FACTS, FOLD_VERSION, third, start=None, accept_reset=False
        )


def test_a_catalogue_that_was_not_given_is_refused_by_its_digest() -> None:
    """Terms of a commit can be had again only with their catalogue."""
    known = KnownTerms(Terms(Limits(), NoCatalogue()))
    assert known.known(TermsMark(None, Limits(), wait_for_response=True)).wait_for_response
    with pytest.raises(RestoreRefused, match="catalogue_unknown"):
        known.known(TERMS)
