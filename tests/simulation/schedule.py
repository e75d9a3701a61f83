"""A schedule: what is written when, who runs, and what goes wrong; drawn from one seed.

Rules:
    A schedule is data. Running it twice does the same thing; leaving a step out leaves the rest.
    It reads as numbered lines, so a failing one can be understood without a debugger.
"""

import random
from dataclasses import replace
from typing import Literal

from processor.core._record import record
from processor.testing import Fault, FaultKind
from tests.simulation.calls import Line, draw_log

WorldKind = Literal["start", "stop", "kill", "twin", "retention", "offline", "away", "compact"]

LOCAL_CALLS = (
    "begin_transaction",
    "produce",
    "producer.poll",
    "poll",
    "consume",
    "consumer_group_metadata",
    "incremental_assign",
    "incremental_unassign",
    "subscribe",
    "close",
    "before_begin",
    "after_begin",
    "after_produce",
    "after_send_offsets",
    "after_commit",
    "after_fold",
    "mid_restore",
)
COORDINATOR_CALLS = ("send_offsets_to_transaction", "commit_transaction")
#: Mostly before the broker has heard of the transaction: later its own time limit ends it.
COMMIT_POINTS = (*("before_begin",) * 3, *("after_begin",) * 2, "after_produce", *COORDINATOR_CALLS)
ENDINGS: tuple[Literal["commit", "abort"] | None, ...] = (None,) * 4 + ("commit", "abort")
ASKING_CALLS = ("init_transactions", "committed", "get_watermark_offsets")
LOCAL_KINDS: tuple[FaultKind, ...] = ("kill_before", "freeze_before", "slow", "cut")
REMOTE_KINDS: tuple[FaultKind, ...] = (
    *LOCAL_KINDS,
    "kill_after",
    "kill_in_flight",
    "fail_before",
    "fail_after",
    "freeze_after",
)
#: A call that never returns has been seen of the commit's calls only; the others keep their limits.
COMMIT_KINDS: tuple[FaultKind, ...] = (*REMOTE_KINDS, "fail_in_flight", "refuse", "hang")
OFTEN = frozenset({"poll", "consume", "after_fold", "produce"})
#: Around the limits that matter: a transaction's 8 s, a session's 12 s, a poll interval's 60 s.
DURATIONS_MS = (5, 40, 300, 2_000, 7_900, 9_000, 11_900, 13_000, 25_000, 61_000)


@record
class FaultStep:
    """A fault at the n-th passage of a call by a slot, and how many passages in a row it lasts."""

    slot: str
    call: str
    nth: int
    fault: Fault
    times: int = 1

    def __str__(self) -> str:
        """One line for people."""
        fault = self.fault
        text = f"slot {self.slot}: {fault.kind} at {self.call} number {self.nth}"
        if self.times > 1:
            text += f" and the {self.times - 1} after it"
        if fault.duration_ms:
            text += f", for {fault.duration_ms} ms"
        if fault.grace:
            text += f", its client's own thread {fault.grace} turns late"
        return text


@record
class WorldStep:
    """Something that happens at a time: to a process, or to the broker.

    `twin` is a second process of the slot beside the first, `offline` a lost network, `retention`
    takes what no restart needs, `compact` cleans compacted topics, `away` is a coordinator that
    fails over.
    """

    at_ms: int
    kind: WorldKind
    slot: str = ""

    def __str__(self) -> str:
        """One line for people."""
        who = f" slot {self.slot}" if self.slot else ""
        return f"at {self.at_ms} ms: {self.kind}{who}"


@record
class WriteStep:
    """Records that a publisher writes together; inside of a transaction if `ending` is not None."""

    at_ms: int
    lines: tuple[Line, ...]
    ending: Literal["commit", "abort"] | None = None

    def __str__(self) -> str:
        """One line for people."""
        how = f" in a transaction ({self.ending})" if self.ending else ""
        return f"at {self.at_ms} ms: write {', '.join(map(str, self.lines))}{how}"


Step = FaultStep | WorldStep | WriteStep


@record
class Schedule:
    """One run. `turns` seeds who goes next; 0 takes turns in order, with nothing drawn."""

    seed: int
    turns: int
    partitions: int
    restart_ms: int
    skew_ms: dict[str, int]
    steps: tuple[Step, ...] = ()

    def without(self, dropped: set[int]) -> "Schedule":
        """This schedule without the steps of these indexes."""
        kept = tuple(s for i, s in enumerate(self.steps) if i not in dropped)
        return replace(self, steps=kept)

    def __str__(self) -> str:
        """Numbered lines for people."""
        order = f"turns drawn from {self.turns}" if self.turns else "turns in order"
        skews = ", ".join(f"slot {s} by {ms} ms" for s, ms in self.skew_ms.items() if ms)
        head = (
            f"seed {self.seed}: {self.partitions} partition(s), {order}, a process that ended starts"
            f" again after {self.restart_ms} ms" + (f", clocks wrong: {skews}" if skews else "")
        )
        lines = [f"{number:3}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join([head, *lines])


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    rng = random.Random(seed)
    slots = ["0", "1", "2"][: rng.choice((1, 1, 2, 2, 2, 3))]
    # Slot 0 is always there from the beginning.
    steps: list[Step] = [WorldStep(rng.randrange(0, 6_000), "start", slot) for slot in slots[1:]]
    steps += _writes(rng)
    steps += [_fault(rng, slots) for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 6)))]
    steps += [_world(rng, slots) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))]
    return Schedule(
        seed,
        rng.randrange(1, 1 << 30),
        rng.choice((1, 1, 2, 2, 3)),
        rng.choice((100, 100, 500, 3_000, 13_000)),
        {slot: rng.choice((0, 0, 0, -3_000, 4_000)) for slot in slots},
        tuple(steps),
    )


def _writes(rng: random.Random) -> list[Step]:
    lines = draw_log(rng, rng.randint(2, 6))
    steps: list[Step] = []
    at_ms = rng.choice((0, 0, 500))
    spread_ms = rng.choice((5, 60, 600))
    while lines:
        size = rng.randint(1, 8)
        part, lines = lines[:size], lines[size:]
        ending = rng.choice(ENDINGS)
        steps.append(WriteStep(at_ms, tuple(part), ending))
        at_ms += rng.randrange(1, spread_ms * 2)
        if rng.random() < 0.1:
            at_ms += rng.choice((1_000, 3_000))
    return steps


def _fault(rng: random.Random, slots: list[str]) -> FaultStep:
    drawn = rng.random()
    if drawn < 0.15:
        return _zombie(rng, slots)
    if drawn < 0.25:
        return _stray(rng, slots)
    return _any_fault(rng, slots)


def _zombie(rng: random.Random, slots: list[str]) -> FaultStep:
    """A process that stands still in a commit while its session ends, and then goes on."""
    call = rng.choice(COMMIT_POINTS)
    fault = Fault("freeze_before", rng.choice((12_500, 14_000, 25_000)), rng.choice((0, 3, 12)))
    return FaultStep(rng.choice(slots), call, 1 + int(rng.expovariate(0.4)), fault)


def _stray(rng: random.Random, slots: list[str]) -> FaultStep:
    """A request without an answer that arrives while later transactions are under way."""
    fault = Fault("fail_in_flight", rng.randrange(1, 400))
    nth = 1 + int(rng.expovariate(0.4))
    return FaultStep(rng.choice(slots), rng.choice(COORDINATOR_CALLS), nth, fault)


def _any_fault(rng: random.Random, slots: list[str]) -> FaultStep:
    calls, kinds = rng.choice(
        (
            (LOCAL_CALLS, LOCAL_KINDS),
            (COORDINATOR_CALLS, COMMIT_KINDS),
            (COORDINATOR_CALLS, COMMIT_KINDS),
            (ASKING_CALLS, REMOTE_KINDS),
        )
    )
    call, kind = rng.choice(calls), rng.choice(kinds)
    nth = 1 + int(rng.expovariate(0.08 if call in OFTEN else 0.5))
    lasting = kind not in ("kill_before", "kill_after", "kill_in_flight", "cut", "hang")
    timed = kind not in ("kill_before", "kill_after", "fail_before", "fail_after", "refuse", "hang")
    fault = Fault(
        kind,
        rng.choice(DURATIONS_MS) if timed else 0,
        rng.choice((0, 0, 3, 12)) if kind.startswith("freeze") else 0,
    )
    return FaultStep(
        rng.choice(slots), call, nth, fault, rng.choice((1, 1, 1, 3)) if lasting else 1
    )


def _world(rng: random.Random, slots: list[str]) -> WorldStep:
    kinds: tuple[WorldKind, ...] = (
        "stop",
        "kill",
        "kill",
        "twin",
        "retention",
        "offline",
        "away",
        "compact",
    )
    kind = rng.choice(kinds)
    at_ms = rng.randrange(0, rng.choice((2_000, 12_000, 30_000)))
    return WorldStep(
        at_ms, kind, "" if kind in ("retention", "away", "compact") else rng.choice(slots)
    )
