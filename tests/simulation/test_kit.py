"""The public test kit: what the contract suite cannot ask of a real broker."""

from collections.abc import Callable

import pytest

from processor.runtime.kafka import KafkaException, TopicPartition
from processor.testing import (
    Fault,
    Killed,
    NewRecord,
    Scheduler,
    SimulatedCluster,
    SimulatedConsumer,
    SimulatedProcess,
    SimulatedProducer,
    SoloHost,
)
from processor.testing.assignor import Claim, assign
from tests.simulation.run import DrawnTurns

TOPIC = "events"


class OneFault:
    """The same fault at every passage of one call."""

    def __init__(self, call: str, fault: Fault) -> None:
        self._call = call
        self._fault = fault

    def at(self, process: str, call: str) -> Fault | None:
        """The fault of this passage."""
        del process
        return self._fault if call == self._call else None


def run_with(
    fault: Fault, call: str, body: Callable[[SimulatedProcess], None]
) -> tuple[SimulatedProcess, SimulatedCluster]:
    """One process that runs `body` to its end, whatever happens to it."""
    cluster = SimulatedCluster()
    cluster.create_topic(TOPIC)
    scheduler = Scheduler(cluster, DrawnTurns(0))
    process = SimulatedProcess("0", scheduler, OneFault(call, fault))
    process.start(lambda: body(process))
    assert scheduler.run(lambda: process.dead, 100_000)
    scheduler.unwind()
    scheduler.run(lambda: False, 10_000)
    return process, cluster


def write_one(process: SimulatedProcess) -> None:
    """A transaction of one record."""
    producer = SimulatedProducer(process, {"transactional.id": "a"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(TOPIC, b"v", b"k")
    producer.commit_transaction(10)


def written(cluster: SimulatedCluster) -> list[bytes | None]:
    """What readers of committed data see."""
    return [m.value() for m in cluster.log(TOPIC, 0).read(0, committed=True)]


@pytest.mark.parametrize(
    ("kind", "arrives"),
    [
        ("kill_before", False),
        ("kill_after", True),
        ("kill_in_flight", True),
        ("fail_before", False),
        ("fail_after", True),
        ("fail_in_flight", True),
        ("refuse", False),
        ("slow", True),
        ("freeze_before", True),
        ("freeze_after", True),
    ],
)
def test_a_fault_decides_whether_a_commit_arrives(kind: str, *, arrives: bool) -> None:
    """What its sender was told, or whether it lives, is another matter."""
    fault = Fault(kind, 500)  # type: ignore[arg-type]  # the parameters are such kinds
    process, cluster = run_with(fault, "commit_transaction", write_one)
    assert written(cluster) == ([b"v"] if arrives else [])
    told = isinstance(process.ended, KafkaException)
    assert told == (kind.startswith("fail") or kind == "refuse")
    assert (process.ended is None) == kind.startswith("kill")


def test_a_dead_process_reaches_nothing() -> None:
    """Handlers and finally blocks of its code run, and every call in them ends it again."""
    said: list[str] = []

    def body(process: SimulatedProcess) -> None:
        producer = SimulatedProducer(process, {})
        try:
            process.point("here")
        finally:
            try:
                producer.produce(TOPIC, b"v")
            except Killed:
                said.append("killed again")
                raise

    process, cluster = run_with(Fault("kill_before"), "here", body)
    assert said == ["killed again"]
    assert process.ended is None
    assert cluster.log(TOPIC, 0).end_offset == 0


def test_a_call_that_hangs_ends_with_its_process() -> None:
    """No limit of its own ends it."""
    cluster = SimulatedCluster()
    scheduler = Scheduler(cluster, DrawnTurns(0))
    process = SimulatedProcess("0", scheduler, OneFault("here", Fault("hang")))
    process.start(lambda: process.point("here"))
    assert not scheduler.run(lambda: process.dead, 3_600_000)
    process.kill()
    scheduler.unwind()
    assert process.ended is None


def test_while_coordinators_are_away_logs_are_read_and_no_session_ends() -> None:
    """A failover is seen by those who ask the coordinator, and ends no membership by itself."""
    cluster = SimulatedCluster()
    cluster.create_topic(TOPIC)
    consumer = SimulatedConsumer(SoloHost(cluster), {"group.id": "g", "session.timeout.ms": 6_000})
    consumer.subscribe(
        [TOPIC],
        on_assign=lambda c, given: c.incremental_assign(
            [TopicPartition(tp.topic, tp.partition, 0) for tp in given]
        ),
    )
    assert consumer.poll(1) is None
    member_id = consumer.memberid()
    cluster.log(TOPIC, 0).append(NewRecord(None, b"v"), cluster.now_ms)
    cluster.send_coordinators_away(5_000)
    message = consumer.poll(1)
    assert message is not None
    assert message.value() == b"v"
    cluster.advance_to(cluster.now_ms + 20_000)
    assert cluster.group("g").state == "stable"
    assert consumer.memberid() == member_id


def test_an_assignment_is_balanced_moves_little_and_gives_nothing_twice() -> None:
    """What moves is given to nobody in the round that takes it away."""
    nobody = Claim(frozenset(), -1)
    assert assign({"a": nobody}, 3) == {"a": frozenset({0, 1, 2})}
    given = assign({"a": Claim(frozenset({0, 1, 2, 3}), 1), "b": nobody}, 4)
    assert given == {"a": frozenset({0, 1}), "b": frozenset()}
    given = assign({"a": Claim(frozenset({0, 1}), 2), "b": nobody}, 4)
    assert given == {"a": frozenset({0, 1}), "b": frozenset({2, 3})}


def test_an_older_claim_yields_to_a_newer_one() -> None:
    """A member that was away says it owns what somebody else has by now."""
    claims = {"a": Claim(frozenset({0}), 1), "b": Claim(frozenset({0}), 3)}
    given = assign(claims, 1)
    assert given["b"] == frozenset({0})
    assert given["a"] == frozenset()
