"""The short way to read a call's endings and the general reader give the same event or refusal."""

from hypothesis import given, settings
from hypothesis import strategies as st

from processor.codec.ending_events import read_ending
from processor.codec.frames import registry_frame
from processor.codec.records import (
    DELTA_PREFIX,
    STREAM_EVENT,
    Undecodable,
    decode_event,
    encode_event,
)
from processor.core.events import (
    RESPONSE_OUTCOMES,
    ArgumentsDone,
    CallAborted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.identity import CallKey

KEY = CallKey("acme", "req_1", "resp_1", "call_A").encode()
bodies = st.one_of(
    st.builds(ArgumentsDone, st.none() | st.binary(max_size=200)),
    st.builds(
        ResponseEnded,
        st.sampled_from(sorted(RESPONSE_OUTCOMES)),
        st.none() | st.just("stop"),
    ),
    st.just(CallAborted("truncated")),
)
events = st.builds(
    StreamEvent, st.integers(0, 2**31 - 1), bodies, st.none() | st.integers(-5, 2**62)
)


class Registry:
    """Knows one schema; a value in its frame goes to the general reader."""

    def schema(self, schema_id: int) -> str:
        """The schema of the events."""
        del schema_id
        return STREAM_EVENT.text


def generally(value: bytes) -> StreamEvent | str:
    """What the general reader says to the same data."""
    framed = registry_frame(7) + value[len(DELTA_PREFIX) :]
    try:
        return decode_event(KEY, framed, lookup=Registry())
    except Undecodable as refusal:
        return refusal.code


@settings(max_examples=1_000, deadline=None)
@given(events, st.data())
def test_whatever_the_short_way_reads_the_general_reader_reads_too(
    event: StreamEvent, data: st.DataObject
) -> None:
    """For whole values and for values with a byte changed, taken out or put in."""
    value = encode_event(event)
    if data.draw(st.booleans()):
        place = data.draw(st.integers(len(DELTA_PREFIX), len(value)))
        value = value[:place] + data.draw(st.binary(max_size=2)) + value[place + 1 :]
    short = read_ending(value, len(DELTA_PREFIX))
    if short is not None:
        assert generally(value) == short


@given(events)
def test_endings_of_the_usual_shape_take_the_short_way(event: StreamEvent) -> None:
    """An ArgumentsDone, and a ResponseEnded without a detail."""
    usual = isinstance(event.body, ArgumentsDone) or (
        isinstance(event.body, ResponseEnded) and event.body.detail is None
    )
    short = read_ending(encode_event(event), len(DELTA_PREFIX))
    assert (short == StreamEvent(event.seq, event.body, event.at_ms or None)) if usual else True
