"""A restart at the low-water mark reaches the state of a fold that never stopped.

The logs are wild on purpose: few keys, few seqs, repeats, gaps, late events, whole redeliveries,
expiries that apply and that do not, jumping timestamps, a linger of some ms, two open calls at most.
"""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from processor.core.assembly import Assembly
from processor.core.events import (
    SEQ_NONE,
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallAborted,
    CallExpired,
    ResponseEnded,
    StreamEvent,
)
from processor.core.identity import CallKey
from processor.core.limits import Limits
from processor.core.outcomes import Outcome
from tests.builders import (
    CheckpointStore,
    Record,
    assembly,
    deciding_state,
    key,
    one_rule,
    started,
    tracked_state,
)

KEYS = [key(f"call_{name}") for name in "ABC"]
FRAGMENTS = (b"{}", b"{", b"}", b"")

bodies: st.SearchStrategy[Body] = st.one_of(
    st.sampled_from(FRAGMENTS).map(ArgumentsDelta),
    st.sampled_from([ArgumentsDone(None), ArgumentsDone(b"{}")]),
    st.sampled_from([ResponseEnded("completed"), ResponseEnded("truncated")]),
    st.just(CallAborted("stream_error")),
    st.builds(CallExpired, st.sampled_from(["idle", "max_life"]), st.integers(0, 3)),
)
START = "start"
moves = st.tuples(
    st.integers(0, len(KEYS) - 1),
    # Half of the time the seq that the key expects next, otherwise any small one.
    st.one_of(st.none(), st.none(), st.integers(0, 4)),
    st.one_of(st.just(START), bodies, bodies, bodies),
    st.sampled_from([0, 0, 0, 1, 2, 5, -3]),
)


def as_log(drawn: Sequence[tuple[int, int | None, Body | str, int]]) -> list[Record]:
    """Records with offsets that have holes, as transaction markers leave them."""
    records: list[Record] = []
    next_seq = [0] * len(KEYS)
    clock_ms = 100
    for index, (which, seq, body, step_ms) in enumerate(drawn):
        clock_ms += step_ms
        if body == START:
            next_seq[which] = 0
        event = as_event(KEYS[which], seq, body, next_seq[which])
        if event.seq == next_seq[which]:
            next_seq[which] += 1
        records.append(Record(KEYS[which].encode(), event, index * 2, clock_ms))
    return records


def as_event(name: CallKey, seq: int | None, body: Body | str, next_seq: int) -> StreamEvent:
    """The event that was drawn for a key which expects `next_seq`."""
    if isinstance(body, str):
        return StreamEvent(1 if seq == 1 else 0, started(name))
    if isinstance(body, CallExpired):
        # Half of them name the seq that the key is really at.
        last_seq = next_seq - 1 if body.last_seq > 1 else body.last_seq
        return StreamEvent(SEQ_NONE, CallExpired(body.cause, last_seq))
    return StreamEvent(next_seq if seq is None else seq, body)


logs = st.lists(moves, min_size=1, max_size=40).map(as_log)
limits_of_logs = st.builds(
    Limits,
    arguments_bytes_max=st.sampled_from([3, 100]),
    fragments_max=st.sampled_from([2, 100]),
    open_calls_max=st.sampled_from([1, 2, 2, 100]),
    linger_ms=st.sampled_from([1, 3, 10]),
)


def offset_after(records: Sequence[Record], count: int) -> int:
    """The position that is committed after the first `count` records."""
    return records[count - 1].offset + 1 if count else 0


def new_fold(limits: Limits, log_time_ms: int, *, early: bool) -> Assembly:
    """A fold that has read nothing; with `early` the tool may leave at the call's own end."""
    rules = one_rule("read_only" if early else "at_most_once", empty_arguments_allowed=True)
    return assembly(limits, rules, log_time_ms=log_time_ms)


def apply(fold: Assembly, record: Record) -> Outcome | None:
    """One record through the fold."""
    return fold.apply(record.key, record.event, record.offset, record.timestamp_ms)


def restarted(
    store: CheckpointStore, limits: Limits, records: Sequence[Record], count: int, *, early: bool
) -> Assembly:
    """The fold of a process that took over after `count` records had been committed."""
    rules = one_rule("read_only" if early else "at_most_once", empty_arguments_allowed=True)
    position, low = offset_after(records, count), store.low
    assert low.offset <= position
    again = assembly(limits, rules, log_time_ms=low.log_time_ms, checkpoints=store.checkpoints())
    again.resume(low.offset)
    for record in records[:count]:
        if record.offset >= low.offset:
            apply(again, record)
    again.resume(position)
    return again


#: Log time after which what a key needs is checkpointed: at once, soon, never.
checkpoint_after = st.sampled_from([0, 0, 1, 3, 1_000_000])


@settings(max_examples=600, deadline=None)
@given(logs, limits_of_logs, st.booleans(), checkpoint_after)
def test_a_restart_at_any_cut_has_the_state_and_says_the_rest_of_one_that_never_stopped(
    records: list[Record],
    limits: Limits,
    early: bool,
    after_ms: int,
) -> None:
    """For every cut: the same in every slot at the cut, same outputs and states after it."""
    steady = new_fold(limits, -1, early=early)
    store, lives, lowest = CheckpointStore(), list[Assembly](), 0
    for count, record in enumerate(records):
        position = offset_after(records, count)
        store.commit(steady, position, after_ms)
        lives.append(restarted(store, limits, records, count, early=early))
        assert tracked_state(lives[-1]) == tracked_state(steady)
        assert store.low.offset >= lowest, "the low-water mark never goes back"
        lowest = store.low.offset
        said = apply(steady, record)
        for life in lives:
            assert apply(life, record) == said
            assert deciding_state(life) == deciding_state(steady)


@settings(max_examples=600, deadline=None)
@given(logs, limits_of_logs, st.booleans(), checkpoint_after, st.data())
def test_a_restart_of_a_restarted_fold_is_as_sound_as_the_first(
    records: list[Record],
    limits: Limits,
    early: bool,
    after_ms: int,
    data: st.DataObject,
) -> None:
    """Each life goes on from what the life before it committed, which lost its spans."""
    commits = data.draw(st.sets(st.integers(0, len(records)), max_size=12), label="commits")
    cuts = data.draw(st.sets(st.integers(0, len(records)), max_size=8), label="cuts")
    steady, life = new_fold(limits, -1, early=early), new_fold(limits, -1, early=early)
    store = CheckpointStore()
    for count, record in enumerate(records):
        if count in commits | cuts:
            store.commit(life, offset_after(records, count), after_ms)
        if count in cuts:
            life = restarted(store, limits, records, count, early=early)
        assert apply(life, record) == apply(steady, record)
        assert deciding_state(life) == deciding_state(steady)
