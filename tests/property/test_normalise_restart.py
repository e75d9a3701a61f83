"""A normaliser that restarts at the low-water mark says what one says that never stopped.

The logs are wild on purpose: few responses, few numbers, repeats with equal and other bytes, gaps,
whole redeliveries, ends, jumping timestamps, two open responses at most.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from processor.core.chunks import ChunkBody, JsonChunk, ResponseChunk, StreamClosed
from processor.dialects.normalise import IDLE_MS, LIFE_MS, LINGER_MS, Normalised, ResponseFold

KEYS = [f"acme/req_{name}/resp".encode() for name in "ABC"]
BEGIN = JsonChunk(
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":'
    b'{"tool_calls":[{"index":0,"id":"call_A","function":{"name":"refund","arguments":""}}]}}]}'
)
PIECES = [
    JsonChunk(
        b'{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":'
        b'{"tool_calls":[{"index":0,"function":{"arguments":"%s"}}]}}]}' % text
    )
    for text in (b"1", b"2")
]
NO_CHUNK = JsonChunk(b"[]")


class Record(NamedTuple):
    """One record of the log."""

    key: bytes
    chunk: ResponseChunk
    offset: int
    timestamp_ms: int


bodies: st.SearchStrategy[ChunkBody] = st.sampled_from(
    [*PIECES, *PIECES, StreamClosed(cancelled=False), StreamClosed(cancelled=True), NO_CHUNK]
)
steps_ms = st.sampled_from(
    [0, 0, 0, 0, 1, LINGER_MS - 1, LINGER_MS, IDLE_MS - 1, IDLE_MS, LIFE_MS // 3, -LINGER_MS]
)
moves = st.tuples(
    st.integers(0, len(KEYS) - 1),
    # Mostly the number that comes next, otherwise any small one.
    st.one_of(st.none(), st.none(), st.none(), st.integers(0, 3)),
    bodies,
    steps_ms,
)


def as_log(drawn: Sequence[tuple[int, int | None, ChunkBody, int]]) -> list[Record]:
    """Records with offsets that have holes, as transaction markers leave them."""
    log: list[Record] = []
    next_number = [0] * len(KEYS)
    now_ms = 100
    for index, (which, number, body, step_ms) in enumerate(drawn):
        now_ms += step_ms
        used = next_number[which] if number is None else number
        next_number[which] = used + 1
        tenant, request_id, response_id = KEYS[which].decode().split("/")
        chunk = ResponseChunk(
            tenant, request_id, response_id, "openai-chat", used, BEGIN if used == 0 else body
        )
        if used == 0 and isinstance(body, StreamClosed) and body.cancelled:
            # Another first record than the usual one: a conflict, or a response that is no chat.
            chunk = ResponseChunk(tenant, request_id, response_id, "openai-chat", 0, NO_CHUNK)
        log.append(Record(KEYS[which], chunk, 2 * index, now_ms))
    return log


def feed(fold: ResponseFold, log: Sequence[Record]) -> list[Normalised]:
    """What the fold says to each record."""
    return [fold.apply(*record) for record in log]


Move = tuple[int, int | None, ChunkBody, int]
CLOSED = StreamClosed(cancelled=False)


def as_run(which: int, length: int, *, closed: bool, again: bool) -> list[Move]:
    """A response from its beginning, as a redelivery brings it: several records of one key."""
    middle: list[Move] = [(which, number, PIECES[0], 0) for number in range(length)]
    end: list[Move] = [(which, length, CLOSED, 0)] if closed else []
    return [*middle, *end, *(middle if again else [])]


runs_of_moves = st.builds(
    as_run, st.integers(0, 2), st.integers(1, 3), closed=st.booleans(), again=st.booleans()
)
logs = st.one_of(
    st.lists(moves, min_size=1, max_size=40),
    st.lists(st.one_of(moves.map(lambda move: [move]), runs_of_moves), min_size=2, max_size=10).map(
        lambda parts: [move for part in parts for move in part]
    ),
).map(as_log)


@settings(max_examples=1_000, deadline=None)
@given(logs, st.sampled_from([1, 2, 100]))
def test_a_restart_at_any_commit_says_the_same_from_there_on(
    log: list[Record], responses_max: int
) -> None:
    """And from a restart of the restarted one, at every later record."""
    steady = ResponseFold(responses_max=responses_max)
    said = feed(steady, log)
    chain = ResponseFold(responses_max=responses_max)
    runs = [chain]
    for cut in range(len(log) + 1):
        next_offset = log[cut - 1].offset + 1 if cut else 0
        again: list[ResponseFold] = []
        for run in runs[-2:]:
            low = run.low_water(next_offset)
            restarted = ResponseFold(log_time_ms=low.log_time_ms, responses_max=responses_max)
            feed(restarted, [record for record in log[:cut] if record.offset >= low.offset])
            rest = ResponseFold(log_time_ms=low.log_time_ms, responses_max=responses_max)
            needed = [record for record in log if record.offset >= low.offset]
            told = feed(rest, needed)
            assert told[len(told) - len(log) + cut :] == said[cut:] or cut == len(log)
            assert restarted.low_water(next_offset).offset >= low.offset
            again.append(restarted)
        if cut < len(log):
            for run in (chain, *again):
                run.apply(*log[cut])
        runs = [chain, *again[-1:]]
