"""Every dialect, every framing, cut anywhere: the events are those of the decoded chunks.

Unlike captured streams these have characters of all lengths, many calls and long texts.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.core.outcomes import CallCompleted
from processor.dialects.registry import DIALECTS
from tests.fuzz.chunks import FRAMINGS, Framing, framed
from tests.fuzz.target import check_stream
from tests.golden.replay import events_of, fold
from tests.property.test_dialects_streams import SIZES
from tests.unit.dialects.long_streams import long_response, text_of
from tests.unit.dialects.verdicts import events

PIECES = st.lists(st.text("a\u00e9\u20ac\U0001f600", max_size=6), max_size=4)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(calls=st.integers(1, 4), pieces=PIECES, framing=st.sampled_from(FRAMINGS), sizes=SIZES)
def test_every_framing_cut_anywhere_gives_the_same_events(
    dialect: str, calls: int, pieces: list[str], framing: Framing, sizes: list[int]
) -> None:
    """Server-sent events with either line end, JSON lines, a JSON array: one stream."""
    chunks = list(long_response(dialect, calls, pieces))
    told = events(dialect, chunks)
    assert events_of(dialect, framed(chunks, framing), sizes) == told
    outcomes = fold(told)
    assert len(outcomes) == calls
    text = "{}" if dialect == "ollama" else text_of(pieces)
    for outcome in outcomes:
        assert isinstance(outcome, CallCompleted)
        assert outcome.arguments == text.encode()


@pytest.mark.parametrize("dialect", DIALECTS)
@given(calls=st.integers(1, 3), data=st.binary(max_size=40), at=st.integers(0, 2_000))
def test_random_bytes_in_the_midst_of_a_stream_meet_every_oracle(
    dialect: str, calls: int, data: bytes, at: int
) -> None:
    """They are put over what stood there; then all holds that holds for any bytes."""
    whole = bytearray(framed(long_response(dialect, calls, ["ORDER-1001"]), "sse"))
    whole[at : at + len(data)] = data
    check_stream(dialect, bytes(whole))
