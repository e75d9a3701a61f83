"""The fold against a naive model that keeps every accepted event and decides from the whole list."""

import json
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from processor.core.events import (
    SEQ_NONE,
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallAborted,
    CallExpired,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.limits import Limits
from processor.core.outcomes import CallCompleted
from processor.core.step import REASON_OF_OUTCOME
from tests import builders as b

LINGER_MS = 20
BYTES_MAX = 12
OPEN_MAX = 3
KEYS = [b.key(f"call_{n}") for n in range(4)]

Verdict = tuple[str, object]


@dataclass
class Naive:
    """One key as the model sees it: its events in order, and what was said of them."""

    events: list[Body] = field(default_factory=list[Body])
    said: bool = False
    closed: bool = False
    last_seq: int = -1
    forget_ms: int = -1


def deltas_of(events: list[Body]) -> bytes:
    """All fragments, joined."""
    return b"".join(body.fragment for body in events if isinstance(body, ArgumentsDelta))


def text_of(events: list[Body]) -> bytes:
    """The streamed text, or else the copy that came with the call's own end."""
    first = next((body for body in events if isinstance(body, ArgumentsDone)), None)
    return deltas_of(events) or (first.arguments if first else None) or b""


def is_object(text: bytes) -> bool:
    """Whether Python's own parser sees an object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def verdict(events: list[Body], *, early: bool) -> Verdict | None:
    """What is to be said of a call with exactly these events in order, if the last one decides."""
    *before, last = events
    own_ends = [body for body in events if isinstance(body, ArgumentsDone)]
    match last:
        case CallStarted() | CallAborted() | CallExpired():
            told = last.reason if isinstance(last, CallAborted) else "identity_conflict"
            return ("rejected", told) if before else None
        case ArgumentsDelta():
            if own_ends:
                return ("rejected", "fragment_after_end")
            return ("rejected", "too_large") if len(deltas_of(events)) > BYTES_MAX else None
        case ArgumentsDone():
            return own_end(events, last, first=len(own_ends) == 1, early=early)
        case ResponseEnded():
            return response_end(events, last, ended=bool(own_ends))


def own_end(events: list[Body], last: ArgumentsDone, *, first: bool, early: bool) -> Verdict | None:
    """The verdict at an ArgumentsDone: copies agree, and a text is an object."""
    text = text_of(events)
    if len(text) > BYTES_MAX:
        return ("rejected", "too_large")
    if last.arguments is not None and last.arguments != text:
        return ("rejected", "final_copy_mismatch")
    if not (first and text):
        return None
    if not is_object(text):
        return ("rejected", "validation")
    return ("completed", text) if early else None


def response_end(events: list[Body], last: ResponseEnded, *, ended: bool) -> Verdict:
    """The verdict at a ResponseEnded."""
    if last.outcome != "completed":
        return ("rejected", REASON_OF_OUTCOME[last.outcome])
    if not ended:
        return ("rejected", "stream_ended")
    text = text_of(events)
    return ("completed", text) if is_object(text) else ("rejected", "validation")


bodies: st.SearchStrategy[Body] = st.one_of(
    st.sampled_from([b"{}", b"{", b"}", b'"a":1', b""]).map(ArgumentsDelta),
    st.sampled_from([None, None, b"{}", b"", b"x" * 13]).map(ArgumentsDone),
    st.sampled_from(["completed", "completed", "truncated", "refusal"]).map(b.ended),  # type: ignore[arg-type]  # all are outcomes
    st.just(CallAborted("stream_error")),
    st.just(b.started()),
)
which_key = st.integers(0, len(KEYS) - 1)


class FoldAgainstModel(RuleBasedStateMachine):
    """Every rule sends one record to both, and what they say must agree."""

    early = False

    def __init__(self) -> None:
        super().__init__()
        rules = b.one_rule("read_only" if self.early else "at_most_once")
        limits = Limits(arguments_bytes_max=BYTES_MAX, open_calls_max=OPEN_MAX, linger_ms=LINGER_MS)
        self.fold = b.assembly(limits, rules)
        self.keys: dict[int, Naive] = {}
        self.now_ms = 0
        self.offset = 0

    def send(self, which: int, event: StreamEvent, expected: Verdict | None) -> None:
        """One record to the fold; compare what it says."""
        outcome = self.fold.apply(KEYS[which].encode(), event, self.offset, self.now_ms)
        self.offset += 1
        said: Verdict | None = None
        if isinstance(outcome, CallCompleted):
            said = ("completed", outcome.arguments)
        elif outcome is not None:
            said = ("rejected", "validation" if outcome.stage == "validation" else outcome.reason)
        assert said == expected

    def judge(self, events: list[Body]) -> Verdict | None:
        """The verdict; only the listed tool may leave early."""
        start = events[0]
        early = self.early and isinstance(start, CallStarted) and start.tool == b.TOOL
        return verdict(events, early=early)

    def close(self, naive: Naive) -> None:
        """The key is forgotten one linger after this."""
        naive.closed = naive.said = True
        naive.forget_ms = self.now_ms + LINGER_MS

    def decide(self, naive: Naive, body: Body, found: Verdict | None) -> Verdict | None:
        """Keep what the verdict means for the key."""
        if found is not None:
            naive.said = True
            if isinstance(body, ResponseEnded | CallExpired):
                self.close(naive)
        return found

    def is_open(self, which: int) -> bool:
        """Whether the model holds the call for open."""
        return which in self.keys and not self.keys[which].said

    def silent(self, naive: Naive, event: StreamEvent) -> None:
        """An event of a key that has been decided."""
        naive.last_seq = max(naive.last_seq, event.seq)
        opens = event.seq == 0 and isinstance(event.body, CallStarted | CallAborted)
        ends = isinstance(event.body, ResponseEnded)
        if ends or (naive.closed and not opens):
            self.close(naive)

    def first(self, which: int, event: StreamEvent) -> Verdict | None:
        """An event of a key that is not tracked."""
        open_count = sum(self.is_open(other) for other in self.keys)
        naive = self.keys[which] = Naive(last_seq=event.seq)
        if event.seq == 0 and isinstance(event.body, CallStarted):
            if open_count >= OPEN_MAX:
                naive.said = True
                return ("rejected", "too_many_calls")
            naive.events.append(event.body)
            return None
        if event.seq == 0 and isinstance(event.body, CallAborted):
            naive.said = True
            return ("rejected", event.body.reason)
        self.close(naive)
        return ("rejected", "missing_start")

    @rule(which=which_key, tool=st.sampled_from([b.TOOL, b.TOOL, b.TOOL, "other"]))
    def a_start(self, which: int, tool: str) -> None:
        """Seq 0 of a call, whether or not it has begun."""
        self.deliver(which, StreamEvent(0, b.started(KEYS[which], tool=tool)))

    @rule(which=which_key, body=bodies)
    def the_next(self, which: int, body: Body) -> None:
        """An event with the seq that is expected."""
        naive = self.keys.get(which)
        self.deliver(which, StreamEvent(len(naive.events) if naive else 1, body))

    @rule(which=which_key, body=bodies, seq=st.integers(-2, 6))
    def any_event(self, which: int, body: Body, seq: int) -> None:
        """An event with any seq."""
        self.deliver(which, StreamEvent(seq, body))

    @rule(which=which_key, data=st.data())
    def a_repeat(self, which: int, data: st.DataObject) -> None:
        """An event that was accepted, again."""
        naive = self.keys.get(which)
        if naive is not None and naive.events:
            seq = data.draw(st.integers(0, len(naive.events) - 1))
            self.deliver(which, StreamEvent(seq, naive.events[seq]))

    @rule(
        which=which_key,
        body=st.builds(CallExpired, st.sampled_from(["idle", "max_life"]), st.integers(-1, 4)),
    )
    def an_expiry(self, which: int, body: CallExpired) -> None:
        """An expiry that may or may not be of now."""
        naive = self.keys.get(which)
        expected: Verdict | None = None
        if naive is None:
            naive = self.keys[which] = Naive()
            self.close(naive)
        elif naive.closed or body.cause == "max_life" or body.last_seq == naive.last_seq:
            expected = None if naive.said else ("rejected", "expired")
            self.close(naive)
        self.send(which, StreamEvent(SEQ_NONE, body), expected)

    @rule(step_ms=st.sampled_from([1, 5, LINGER_MS - 1, LINGER_MS, -7]))
    def time_passes(self, step_ms: int) -> None:
        """The next records are later, or come with an older timestamp (which is no time at all)."""
        if step_ms < 0:
            self.fold.advance(self.now_ms + step_ms)
            return
        self.now_ms += step_ms
        self.fold.advance(self.now_ms)
        for which, naive in list(self.keys.items()):
            if naive.closed and naive.forget_ms <= self.now_ms:
                del self.keys[which]

    def deliver(self, which: int, event: StreamEvent) -> None:
        """What the model expects of an event that is no expiry, and the fold's answer."""
        naive = self.keys.get(which)
        if naive is None:
            expected = self.first(which, event)
        elif naive.said:
            self.silent(naive, event)
            expected = None
        elif 0 <= event.seq < len(naive.events) and naive.events[event.seq] == event.body:
            expected = None
        elif event.seq != len(naive.events):
            jump = event.seq > len(naive.events)
            reason = "sequence_gap" if jump else "sequence_conflict"
            naive.last_seq = max(naive.last_seq, event.seq)
            expected = self.decide(naive, event.body, ("rejected", reason))
        else:
            naive.events.append(event.body)
            naive.last_seq = event.seq
            expected = self.decide(naive, event.body, self.judge(naive.events))
        self.send(which, event, expected)

    @invariant()
    def both_track_the_same_keys(self) -> None:
        """Tracked keys and the number of open calls agree."""
        assert set(self.fold.calls) == {KEYS[which].encode() for which in self.keys}
        assert self.fold.open_count == sum(self.is_open(which) for which in self.keys)


class EarlyFoldAgainstModel(FoldAgainstModel):
    """The same with a tool that may leave at the call's own end."""

    early = True


TestFoldAgainstModel = FoldAgainstModel.TestCase
TestFoldAgainstModel.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestEarlyFoldAgainstModel = EarlyFoldAgainstModel.TestCase
TestEarlyFoldAgainstModel.settings = TestFoldAgainstModel.settings
