"""The fold: (state of a partition, event) -> (state, at most one outcome).

Rules:
    Every pair of state and event is listed in TRANSITIONS; nothing happens outside of it.
    In the states OPEN and DONE the sequence is judged first: an equal repeat is dropped, another
    text under a used seq or a jump rejects the call.
    A rejected call swallows what still comes; `ResponseEnded` or `CallExpired` closes a key.
    A closed key stays tracked until `linger_ms` of log time have passed since its last record; a
    key whose first record is not its first event is closed by that record, and so is one that
    begins with a `CallExpired`. A closed key can thus be had again from its last record alone.
    Log time is the largest record timestamp read so far: part of the fold, not a clock.

    The fold never looks at batches, and bad data never raises.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from processor.core.call import OPEN_STATES, Call, State
from processor.core.checkpoint import Checkpoint, CheckpointBook, fits_a_checkpoint
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallAborted,
    CallExpired,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.evidence import Place
from processor.core.gate import Rules, may_release_early
from processor.core.judgement import Judged, judge
from processor.core.limits import ENDS_MAX, Limits
from processor.core.lingering import Lingering
from processor.core.low_water import LowWater, Spans
from processor.core.outcomes import Outcome, Release
from processor.core.reasons import REASONS
from processor.core.step import REASON_OF_OUTCOME, Counts, Step
from processor.core.strict_json import Fault
from processor.core.terms import Terms
from processor.core.verdicts import completed, evidence_of, rejected

__all__ = ["FOLD_VERSION", "TRANSITIONS", "Assembly", "Place", "Transition"]

#: Version of the rules of this file; it travels in the offset metadata. A change that would decide
#: differently about records already decided needs a new number.
FOLD_VERSION: Final = 1

#: What begins to track a key as a call of its own; any other first record closes it at once.
_FIRST_EVENTS: Final = frozenset({CallStarted, CallAborted})
_UNTRACKED: Final = Call(-1, -1, -1, 0)

# `Any`: the table pairs each transition with the one body type that it takes; a test checks that.
# The first one is the fold itself, whose type has no name inside of its own class body.
Transition = Callable[[Any, Call, Step[Any]], Outcome | None]


class Assembly:
    """The fold of one partition. Not thread-safe; feed it the partition's records in order.

    Cost: a few µs per event; a completed call about 25 µs once. Memory: the buffers of the open
    calls, and some 600 bytes for each tracked key.
    """

    def __init__(
        self,
        place: Place,
        limits: Limits,
        rules: Rules,
        *,
        wait_for_response: bool = False,
        log_time_ms: int = -1,
        checkpoints: Iterable[Checkpoint] = (),
    ) -> None:
        self.place = place
        self.limits = limits.checked()
        self.rules = rules
        self.wait_for_response = wait_for_response
        self.log_time_ms = log_time_ms
        #: Tracked keys, in the order of the first record that each still needs.
        self.calls: dict[bytes, Call] = {}
        self.open_count = 0
        self.counts = Counts()
        self._lingering = Lingering(limits.linger_ms)
        #: Keys that are not open, but that a restart might take for open (see `_note_repeat`).
        self._reopenable: set[bytes] = set()
        self._spans = Spans()
        self._prior_ms = log_time_ms
        #: What a restart takes instead of the log, and what the next commit must write of it.
        self.checkpoints = CheckpointBook(checkpoints)

    @property
    def version(self) -> int:
        """Version of the rules of this file."""
        return FOLD_VERSION

    @property
    def forget_at_ms(self) -> int:
        """Log time at which the next closed key is forgotten."""
        return self._lingering.due_ms

    def adopt(self, terms: Terms) -> None:
        """Decide by `terms` from the next record on; what is open keeps its buffer's bound."""
        self.limits = terms.limits.checked()
        self.rules = terms.rules
        self.wait_for_response = terms.wait_for_response
        self._lingering.adopt(terms.limits.linger_ms)

    def apply(
        self, key: bytes, event: StreamEvent, offset: int, timestamp_ms: int
    ) -> Outcome | None:
        """Advance by one record. `timestamp_ms` is the record's own, epoch milliseconds.

        The key and a `CallStarted` in it must already agree (the codec refuses the others).
        """
        if self.checkpoints.pending:
            self.resume(offset)
            if self.checkpoints.skips(key, offset):
                self.advance(timestamp_ms)
                return None
        self.advance(timestamp_ms)
        call = self.calls.get(key)
        body = event.body
        state = State.NEW if call is None else call.state
        step = Step(key, event.seq, body, offset, timestamp_ms)
        if call is None:
            return TRANSITIONS[state, type(body)](self, _UNTRACKED, step)
        if state in OPEN_STATES and event.seq != len(call.items) and type(body) is not CallExpired:
            return self._out_of_order(call, step)
        return TRANSITIONS[state, type(body)](self, call, step)

    def advance(self, timestamp_ms: int) -> None:
        """Move log time to a record's timestamp if that is later, and forget what is due."""
        self._prior_ms = self.log_time_ms
        if timestamp_ms > self.log_time_ms:
            self.log_time_ms = timestamp_ms
            if timestamp_ms >= self._lingering.due_ms:
                self._forget()

    def low_water(self, next_offset: int) -> LowWater:
        """Where a restart after committing `next_offset` must begin to read."""
        return self._spans.settle(self._low_of_tracked(next_offset, self.log_time_ms))

    def take_checkpoints(self, next_offset: int, *, after_ms: int) -> list[Checkpoint]:
        """What must be written together with the position `next_offset`, in this order.

        Due is what a key has needed for longer than `after_ms` of log time. The calls are the live
        ones: use them before the next record. Cost: linear in what is due.
        """
        book, before_ms = self.checkpoints, self.log_time_ms - after_ms
        gone, due = book.take_asked(self.calls, next_offset)
        for key, call in self.calls.items():
            # Before the first record of a partition there is no log time.
            if max(call.need_time_ms, call.first_ms * (call.need_time_ms < 0)) >= before_ms:
                break
            is_due = call.state is not State.CLOSED or key in book.held
            if is_due and fits_a_checkpoint(call, self.limits):
                due[key] = None
        return [*gone, *(self._checkpoint(key, next_offset) for key in due)]

    def _checkpoint(self, key: bytes, as_of: int) -> Checkpoint:
        """From now on the key needs its checkpoint and what lies above it."""
        call = self.calls.pop(key)
        call.need_offset, call.need_time_ms = as_of, self.log_time_ms
        self._reopenable.discard(key)
        self.calls[key] = call
        self.checkpoints.held.add(key)
        self.checkpoints.gone.pop(key, None)
        return Checkpoint(key, as_of, call)

    def resume(self, offset: int) -> None:
        """Of a restart: take over what has a checkpoint at or below `offset`."""
        found = {key: call for key, _, call in self.checkpoints.due(offset) if call is not None}
        self.calls.update(found)
        self.open_count += sum(call.state in OPEN_STATES for call in found.values())
        closed = {key: c.last_ms for key, c in found.items() if c.state is State.CLOSED}
        self._lingering.merge(closed)
        # Its time may be over: deltas of other calls move log time on without coming here.
        if self.log_time_ms >= self._lingering.due_ms:
            self._forget()

    def _low_of_tracked(self, offset: int, log_time_ms: int) -> LowWater:
        for call in self.calls.values():
            return LowWater(call.need_offset, call.need_time_ms)
        return LowWater(offset, log_time_ms)

    def _forget(self) -> None:
        for key in self._lingering.take_due(self.log_time_ms):
            self._settle_repeat(key, self.calls.pop(key))
            self.checkpoints.forget(key)

    # --- keys that are not tracked -------------------------------------------------------------

    def _track(self, step: Step[Body]) -> Call:
        room_bytes = self.limits.arguments_bytes_max
        call = Call(step.offset, step.timestamp_ms, self._prior_ms, room_bytes)
        self.calls[step.key] = call
        self.open_count += 1
        return call

    def _start(self, _: Call, step: Step[CallStarted]) -> Outcome | None:
        if step.seq != 0:
            return self._missing_start(_, step)
        limit = self.limits.open_calls_max
        open_count = self.open_count
        if open_count + len(self._reopenable) >= limit:
            # A restart may have seen fewer of them, and would decide otherwise.
            self.checkpoints.forced[step.key] = None
        call = self._track(step)
        call.started = step.body
        call.items.append(step.body)
        if open_count < limit:
            return None
        detail = f"{open_count} calls are open in partition {self.place.partition}"
        return self._reject(call, step, "too_many_calls", detail)

    def _missing_start(self, _: Call, step: Step[Body]) -> Outcome | None:
        detail = f"the first event read has seq {step.seq}, no CallStarted"
        return self._reject(self._track(step), step, "missing_start", detail, to=State.CLOSED)

    def _abort_unstarted(self, _: Call, step: Step[CallAborted]) -> Outcome | None:
        if step.seq != 0:
            return self._missing_start(_, step)
        return self._abort(self._track(step), step)

    def _expire_untracked(self, _: Call, step: Step[CallExpired]) -> Outcome | None:
        self.counts.expiries_void += 1
        self._track_closed(step)
        return None

    # --- open calls ----------------------------------------------------------------------------

    def _out_of_order(self, call: Call, step: Step[Body]) -> Outcome | None:
        self._note_repeat(call, step)
        expected = len(call.items)
        if step.seq > expected:
            detail = f"seq {expected} expected, {step.seq} read"
            return self._reject(call, step, "sequence_gap", detail)
        if step.seq >= 0 and call.repeats(step.seq, step.body):
            call.duplicates += 1
            self.counts.duplicates += 1
            return None
        detail = f"seq {step.seq} read where {expected} was expected, with other content"
        return self._reject(call, step, "sequence_conflict", detail)

    def _second_start(self, call: Call, step: Step[CallStarted]) -> Outcome | None:
        detail = f"a second CallStarted at seq {step.seq}"
        return self._reject(call, step, "identity_conflict", detail)

    def _append(self, call: Call, step: Step[ArgumentsDelta]) -> Outcome | None:
        fragment = step.body.fragment
        if len(fragment) > call.room_bytes:
            limit = self.limits.arguments_bytes_max
            return self._reject(call, step, "too_large", f"more than {limit} bytes")
        if step.seq > self.limits.fragments_max:
            limit = self.limits.fragments_max
            return self._reject(call, step, "too_many_fragments", f"more than {limit} fragments")
        call.room_bytes -= len(fragment)
        call.items.append(fragment)
        call.last_ms = self.log_time_ms
        return None

    def _finish(self, call: Call, step: Step[ArgumentsDone]) -> Outcome | None:
        """The call's own end: join, take the dialect's copy if no text was streamed, judge."""
        text, copy = call.join(), step.body.arguments
        if not text and copy is not None:
            limit = self.limits.arguments_bytes_max
            if len(copy) > limit:
                return self._reject(call, step, "too_large", f"more than {limit} bytes")
            call.room_bytes -= len(copy)
            text = copy
        call.text = text
        call.state = State.DONE
        return self._compare_copy(call, step)

    def _compare_copy(self, call: Call, step: Step[ArgumentsDone]) -> Outcome | None:
        copy, limit = step.body.arguments, self.limits.fragments_max + ENDS_MAX
        if step.seq > limit:
            return self._reject(call, step, "too_many_fragments", f"more than {limit} events")
        if copy is not None and copy != call.text:
            detail = f"{len(call.text)} bytes streamed, {len(copy)} bytes in the copy"
            return self._reject(call, step, "final_copy_mismatch", detail)
        # One buffer for all copies: a dialect may repeat the whole text several times.
        call.items.append(step.body if copy is None else ArgumentsDone(call.text))
        call.last_ms = self.log_time_ms
        call.final_copy_seen = call.final_copy_seen or copy is not None
        # An empty text is judged at the response's end: a later copy may still contradict it.
        if call.judged is None and call.text:
            return self._judge_at_call_end(call, step)
        return None

    def _judge_at_call_end(self, call: Call, step: Step[Body]) -> Outcome | None:
        judged = self._judge(call)
        if isinstance(judged, Fault):
            return self._reject(call, step, judged.reason, judged.detail)
        call.judged = judged
        effect_class = self.rules.rule(call.begun().tool).effect_class
        if may_release_early(effect_class, wait_for_response=self.wait_for_response):
            return self._complete(call, step, judged, "call_end", State.RELEASED)
        return None

    def _judge(self, call: Call) -> Judged | Fault:
        started = call.begun()
        rule = self.rules.rule(started.tool)
        return judge(call.text, started.arguments_format, rule, depth_max=self.limits.depth_max)

    def _fragment_after_end(self, call: Call, step: Step[ArgumentsDelta]) -> Outcome | None:
        detail = f"a fragment at seq {step.seq} after the call's end"
        return self._reject(call, step, "fragment_after_end", detail)

    def _end_open(self, call: Call, step: Step[ResponseEnded]) -> Outcome | None:
        outcome = call.outcome = step.body.outcome
        if outcome == "completed":
            detail = "the response ended before the call's own end"
            return self._reject(call, step, "stream_ended", detail)
        return self._reject(call, step, REASON_OF_OUTCOME[outcome], "by the response")

    def _end_done(self, call: Call, step: Step[ResponseEnded]) -> Outcome | None:
        outcome = call.outcome = step.body.outcome
        if outcome != "completed":
            detail = "the call had ended, its response did not end cleanly"
            return self._reject(call, step, REASON_OF_OUTCOME[outcome], detail)
        judged = self._judge(call) if call.judged is None else call.judged
        if isinstance(judged, Fault):
            return self._reject(call, step, judged.reason, judged.detail)
        call.items.append(step.body)
        return self._complete(call, step, judged, "response_end", State.CLOSED)

    def _abort(self, call: Call, step: Step[CallAborted]) -> Outcome | None:
        reason = step.body.reason
        if reason not in REASONS:
            return self._reject(call, step, "malformed_event", "aborted with an unknown reason")
        return self._reject(call, step, reason, "reported by the publisher")

    def _expire(self, call: Call, step: Step[CallExpired]) -> Outcome | None:
        if not self._expiry_applies(call, step.body):
            return None
        return self._reject(call, step, "expired", f"cause {step.body.cause}")

    # --- keys that only swallow ----------------------------------------------------------------

    def _swallow(self, call: Call, step: Step[Body]) -> Outcome | None:
        self._note_repeat(call, step)
        call.last_seq = max(call.last_seq, step.seq)
        call.last_ms = self.log_time_ms
        self.counts.swallowed += 1
        return None

    def _close_on_end(self, call: Call, step: Step[ResponseEnded]) -> Outcome | None:
        self._close(call, step)
        return None

    def _close_on_expiry(self, call: Call, step: Step[CallExpired]) -> Outcome | None:
        if self._expiry_applies(call, step.body):
            self._close(call, step)
        return None

    def _late(self, call: Call, step: Step[Body]) -> Outcome | None:
        self.counts.late += 1
        self._note_repeat(call, step)
        if call.repeat_offset == step.offset:
            return None
        repeat_is_fresh = self.log_time_ms - call.repeat_ms < self.limits.linger_ms
        if call.repeat_offset >= 0 and repeat_is_fresh and type(step.body) is not ResponseEnded:
            # Most redeliveries bring the response's end too, and then no span is needed.
            call.last_ms = self.log_time_ms
            self._lingering.touch(step.key, self.log_time_ms)
            return None
        self._close(call, step)
        return None

    def _expiry_applies(self, call: Call, body: CallExpired) -> bool:
        """True unless the call has moved on since the expiry was appended; a void one is counted."""
        last_seq = max(call.last_seq, len(call.items) - 1)
        applies = body.cause == "max_life" or body.last_seq == last_seq
        self.counts.expiries_void += not applies
        return applies

    # --- outcomes ------------------------------------------------------------------------------

    def _complete(
        self, call: Call, step: Step[Body], judged: Judged, release: Release, to: State
    ) -> Outcome:
        evidence = evidence_of(call, self.place, step.offset, step.timestamp_ms)
        outcome = completed(call, judged, self.rules, release, evidence)
        self._leave_open(call, step, to)
        return outcome

    def _reject(
        self,
        call: Call,
        step: Step[Body],
        reason: str,
        detail: str,
        *,
        to: State = State.REJECTED,
    ) -> Outcome:
        evidence = evidence_of(call, self.place, step.offset, step.timestamp_ms)
        outcome = rejected(call, step.key, reason, detail, evidence)
        closes = isinstance(step.body, ResponseEnded | CallExpired)
        self._leave_open(call, step, State.CLOSED if closes else to)
        return outcome

    def _leave_open(self, call: Call, step: Step[Body], to: State) -> None:
        self.open_count -= 1
        call.release_memory()
        call.last_seq = max(call.last_seq, step.seq)
        call.last_ms = self.log_time_ms
        call.state = to
        if to is State.CLOSED:
            self._close(call, step)
        elif call.repeat_offset >= 0 and step.key not in self.checkpoints.held:
            self._reopenable.add(step.key)

    # --- closed keys, and what a restart can know of them --------------------------------------

    def _close(self, call: Call, step: Step[Body]) -> None:
        """Keep of a key what a restart at this record would have of it: that it is closed."""
        if step.key in self.checkpoints.held:
            # A restart goes on from the checkpoint, and comes to the same.
            call.state = State.CLOSED
            call.last_ms = self.log_time_ms
            call.repeat_offset = call.repeat_ms = -1
            self._lingering.touch(step.key, self.log_time_ms)
            return
        if type(step.body) is ResponseEnded:
            # Closes whatever a restart has taken the key for.
            self._reopenable.discard(step.key)
        else:
            self._settle_repeat(step.key, call)
        del self.calls[step.key]
        self._track_closed(step)

    def _track_closed(self, step: Step[Body]) -> None:
        call = Call(step.offset, step.timestamp_ms, self._prior_ms, 0)
        call.state = State.CLOSED
        self.calls[step.key] = call
        self._lingering.touch(step.key, self.log_time_ms)

    def _note_repeat(self, call: Call, step: Step[Body]) -> None:
        """Remember a first event that comes again: a restart there would begin a new call."""
        if step.seq != 0 or type(step.body) not in _FIRST_EVENTS:
            return
        if call.repeat_offset < 0:
            call.repeat_ms = self.log_time_ms
        call.repeat_offset = step.offset
        if call.state not in OPEN_STATES and step.key not in self.checkpoints.held:
            self._reopenable.add(step.key)

    def _settle_repeat(self, key: bytes, call: Call) -> None:
        """Forbid a restart between what `call` needs and its repeated first event, if any."""
        if call.repeat_offset >= 0 and key not in self.checkpoints.held:
            self._spans.add(LowWater(call.need_offset, call.need_time_ms), call.repeat_offset)
            self._reopenable.discard(key)

    # --- the table -----------------------------------------------------------------------------

    TRANSITIONS: ClassVar[Mapping[tuple[State, type[Body]], Transition]] = {
        (State.NEW, CallStarted): _start,
        (State.NEW, ArgumentsDelta): _missing_start,
        (State.NEW, ArgumentsDone): _missing_start,
        (State.NEW, ResponseEnded): _missing_start,
        (State.NEW, CallAborted): _abort_unstarted,
        (State.NEW, CallExpired): _expire_untracked,
        (State.OPEN, CallStarted): _second_start,
        (State.OPEN, ArgumentsDelta): _append,
        (State.OPEN, ArgumentsDone): _finish,
        (State.OPEN, ResponseEnded): _end_open,
        (State.OPEN, CallAborted): _abort,
        (State.OPEN, CallExpired): _expire,
        (State.DONE, CallStarted): _second_start,
        (State.DONE, ArgumentsDelta): _fragment_after_end,
        (State.DONE, ArgumentsDone): _compare_copy,
        (State.DONE, ResponseEnded): _end_done,
        (State.DONE, CallAborted): _abort,
        (State.DONE, CallExpired): _expire,
        (State.RELEASED, CallStarted): _swallow,
        (State.RELEASED, ArgumentsDelta): _swallow,
        (State.RELEASED, ArgumentsDone): _swallow,
        (State.RELEASED, ResponseEnded): _close_on_end,
        (State.RELEASED, CallAborted): _swallow,
        (State.RELEASED, CallExpired): _close_on_expiry,
        (State.REJECTED, CallStarted): _swallow,
        (State.REJECTED, ArgumentsDelta): _swallow,
        (State.REJECTED, ArgumentsDone): _swallow,
        (State.REJECTED, ResponseEnded): _close_on_end,
        (State.REJECTED, CallAborted): _swallow,
        (State.REJECTED, CallExpired): _close_on_expiry,
        (State.CLOSED, CallStarted): _late,
        (State.CLOSED, ArgumentsDelta): _late,
        (State.CLOSED, ArgumentsDone): _late,
        (State.CLOSED, ResponseEnded): _late,
        (State.CLOSED, CallAborted): _late,
        (State.CLOSED, CallExpired): _late,
    }


#: What happens to a key in a state on an event: every pair is listed.
TRANSITIONS: Final = Assembly.TRANSITIONS
