"""The group commit of an executor's threads: who waits, who asks, and what a failure reaches."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from processor.core.errors import Indeterminate, Misuse, ProcessorError, Transient
from processor.core.identity import CallKey
from processor.ledger.grouped import GroupedLedger
from processor.ledger.memory import MemoryLedger
from processor.ledger.port import Begin, Claim, Outcome, Owned, Verdict

NOW_MS = 1_800_000_000_000
CLAIM = Claim(
    key=CallKey("acme", "req_1", "resp_1", "call_1"),
    tool="refund",
    effect_class="at_most_once",
    args_hash=b"\x01" + bytes(32),
    owner="slot-0/1",
    lease_s=60,
    emitted_at_ms=NOW_MS - 1,
    deadline_ms=NOW_MS + 1_000_000,
)


def claim_of(number: int) -> Claim:
    """The claim of another call."""
    return replace(CLAIM, key=CallKey("acme", f"req_{number}", "resp_1", "call_1"))


class Gated(MemoryLedger):
    """Its first questions wait until the test says go; it counts what it was asked."""

    def __init__(self, busy: int = 2) -> None:
        super().__init__(lambda: NOW_MS)
        self.gate = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.batches: list[int] = []
        self.alone = 0
        self.failure: ProcessorError | None = None
        self._busy = busy

    def claim(self, claim: Claim) -> Verdict:
        """The first ones hold the lead until the gate opens."""
        self.alone += 1
        if self.alone <= self._busy:
            self.waiting.release()
            assert self.gate.wait(30)
        return super().claim(claim)

    def claim_many(self, claims: Sequence[Claim]) -> list[Verdict | Misuse]:
        """Counted, and failing when the test wants it."""
        self.batches.append(len(claims))
        if self.failure is not None:
            raise self.failure
        answers: list[Verdict | Misuse] = []
        for claim in claims:
            try:
                answers.append(MemoryLedger.claim(self, claim))
            except Misuse as e:
                answers.append(e)
        return answers


class Threads:
    """Questions in threads of their own, and what came of them."""

    def __init__(self, ledger: GroupedLedger) -> None:
        self._ledger = ledger
        self._threads: list[threading.Thread] = []
        self.answers: dict[str, Verdict | ProcessorError] = {}

    def ask(self, claim: Claim) -> None:
        """Start one."""

        def run() -> None:
            try:
                self.answers[claim.key.request_id] = self._ledger.claim(claim)
            except ProcessorError as e:
                self.answers[claim.key.request_id] = e

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def join(self) -> None:
        """Wait for all."""
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def queued(grouped: GroupedLedger, count: int) -> None:
    """Wait until `count` questions stand behind those under way."""
    pause = threading.Event()
    for _ in range(3_000):
        if len(grouped._claims._queue) == count:
            return
        pause.wait(0.01)
    raise AssertionError("the questions did not queue up")


def behind_two(ledger: Gated, others: list[Claim]) -> Threads:
    """Two questions under way, `others` behind them, then the gate opens and all end."""
    grouped = GroupedLedger(ledger)
    threads = Threads(grouped)
    for number in (1, 2):
        threads.ask(claim_of(number))
        assert ledger.waiting.acquire(timeout=30)
    for claim in others:
        threads.ask(claim)
    queued(grouped, len(others))
    ledger.gate.set()
    threads.join()
    return threads


def test_a_question_that_finds_nothing_under_way_is_asked_alone() -> None:
    """Nobody waits for company."""
    ledger = Gated(busy=0)
    grouped = GroupedLedger(ledger)
    verdict = grouped.claim(CLAIM)
    assert verdict.fence is not None
    owned = Owned("acme", "req_1:call_1", verdict.fence)
    assert grouped.begin_effect(owned, Begin(60)).ok
    assert grouped.finish(owned, Outcome("succeeded")).ok
    assert ledger.batches == []
    assert ledger.alone == 1


def test_questions_behind_one_under_way_are_one_batch() -> None:
    """Each gets its own answer."""
    ledger = Gated()
    threads = behind_two(ledger, [claim_of(n) for n in range(10, 30)])
    # Two leaders end at about the same time, so the twenty are one batch or two.
    assert sum(ledger.batches) + ledger.alone - 2 == 20
    assert len(ledger.batches) <= 2
    fences = {a.fence for a in threads.answers.values() if isinstance(a, Verdict)}
    assert len(fences) == 22


def test_a_refused_question_reaches_its_own_thread_only() -> None:
    """One bad row does not fail the others."""
    bad = replace(claim_of(11), args_hash=b"short")
    threads = behind_two(Gated(), [claim_of(10), bad, claim_of(12), claim_of(13)])
    refused = {k for k, a in threads.answers.items() if isinstance(a, Misuse)}
    assert refused == {"req_11"}


def test_a_batch_that_did_not_happen_is_asked_one_by_one() -> None:
    """A row that somebody else has locked holds up nobody but its own thread."""
    ledger = Gated()
    ledger.failure = Transient("a lock was not free")
    threads = behind_two(ledger, [claim_of(n) for n in range(10, 16)])
    assert {type(a) for a in threads.answers.values()} == {Verdict}


def test_a_batch_whose_fate_is_unknown_is_unknown_to_each_of_its_threads() -> None:
    """Nobody may take an effect for begun that perhaps was not."""
    ledger = Gated()
    ledger.failure = Indeterminate("the answer was lost")
    threads = behind_two(ledger, [claim_of(n) for n in range(10, 20)])
    unknown = {k for k, a in threads.answers.items() if isinstance(a, Indeterminate)}
    assert len(unknown) == sum(ledger.batches)
    assert unknown <= {f"req_{n}" for n in range(10, 20)}


@pytest.mark.parametrize("threads", [32])
def test_many_threads_and_many_questions_each_get_their_own_answer(threads: int) -> None:
    """No question is lost, none is answered twice."""
    ledger = MemoryLedger(lambda: NOW_MS)
    grouped = GroupedLedger(ledger)
    found: list[tuple[int, Verdict]] = []

    def run(index: int) -> None:
        for n in range(50):
            number = index * 50 + n
            found.append((number, grouped.claim(claim_of(number))))

    team = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join(60)
    assert len(found) == threads * 50
    for number, verdict in found:
        view = ledger.show("acme", f"req_{number}:call_1")
        assert view is not None
        assert view.fence == verdict.fence
