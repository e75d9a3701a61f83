"""What must hold at the end of every schedule, computed from the events topic alone.

Rules:
    The outputs that a reader of committed data sees are those of a pure fold: none lost, none
    twice, none invented.
    Every committed position decodes, is that of the fold, and a re-fold from its low-water mark and
    the checkpoints reaches the same state.
    Nothing is left open.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, cast

from processor.core.assembly import Assembly
from processor.runtime.absorb import Message as Record
from processor.runtime.errors import RestoreRefused
from processor.runtime.offset_metadata import OffsetMetadata, decode_metadata
from processor.runtime.outbox import Headers, Outbox
from processor.runtime.restore import StartAt, TopicFacts
from processor.runtime.task import Task
from processor.testing import Offset, SimulatedCluster, SimulatedMessage, SoloHost
from tests.builders import deciding_state
from tests.simulation.assembler import EVENTS, GROUP, OUTPUTS, make_folding

FROM_THE_START = StartAt(0, 0, -1, "fresh", 0)


class Output(NamedTuple):
    """One record of an output topic, as far as it is compared."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def __str__(self) -> str:
        """Topic, key and id, for people."""
        ids = [value.decode() for name, value in self.headers if name == "ce_id"]
        return f"{self.topic} {(self.key or b'').decode()} {' '.join(ids)}"


def judge(cluster: SimulatedCluster) -> str | None:
    """What is wrong with the end of a run; None when nothing is."""
    return (
        _judge_open(cluster)
        or _judge_outputs(cluster)
        or next(
            (wrong for p in _partitions(cluster) if (wrong := _judge_position(cluster, p))), None
        )
    )


def _partitions(cluster: SimulatedCluster) -> range:
    return range(len(cluster.topics[EVENTS].logs))


def committed_records(cluster: SimulatedCluster, topic: str) -> list[SimulatedMessage]:
    """What a reader of committed data sees of a topic, retention or not."""
    return [
        message
        for log in cluster.topics[topic].logs
        for message in log.read(log.start_offset, committed=True)
    ]


def _judge_open(cluster: SimulatedCluster) -> str | None:
    held = cluster.logs_with_open_transactions()
    if held or cluster.transactions.open_count:
        return f"a transaction was left open: {held}"
    return None


def _judge_outputs(cluster: SimulatedCluster) -> str | None:
    names = (OUTPUTS.completed, OUTPUTS.rejected, OUTPUTS.dead_letter)
    actual = Counter(
        Output(m.topic(), m.key(), m.value(), _sorted_headers(m.headers() or []))
        for name in names
        for m in committed_records(cluster, name)
    )
    expected = Counter(
        Output(o.topic, o.key, o.value, _sorted_headers(o.headers)) for o in _fold(cluster)
    )
    if actual == expected:
        return None
    lost, extra = expected - actual, actual - expected
    lines = [f"lost: {output}" for output in lost]
    lines += [f"{'doubled' if o in expected else 'invented'}: {o}" for o in extra]
    return "; ".join(lines)


def _sorted_headers(headers: Headers) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted((k, v.encode() if isinstance(v, str) else v or b"") for k, v in headers))


def _fold(cluster: SimulatedCluster) -> Outbox:
    """The outputs of all that was decided: the last expiry may stand behind the last position."""
    offsets = cluster.group(GROUP).offsets
    decided = [
        m
        for m in history_of(cluster)
        if (committed := offsets.get((EVENTS, m.partition()))) and m.offset() < committed.offset
    ]
    outbox: Outbox = []
    _absorb(
        decided, {p: _new_task(cluster, FROM_THE_START, p) for p in _partitions(cluster)}, outbox
    )
    return outbox


def history_of(cluster: SimulatedCluster) -> list[SimulatedMessage]:
    """Every committed event ever, also those that retention has taken."""
    return [
        message for log in cluster.topics[EVENTS].logs for message in log.history(committed=True)
    ]


def _absorb(
    messages: Iterable[SimulatedMessage], tasks: dict[int, Task[Assembly]], outbox: Outbox
) -> None:
    make_folding(SoloHost(SimulatedCluster())).absorb(
        [cast("Record", m) for m in messages], tasks, outbox
    )


def _new_task(cluster: SimulatedCluster, plan: StartAt, partition: int) -> Task[Assembly]:
    topic = cluster.topics[EVENTS]
    facts = TopicFacts(topic.topic_id, len(topic.logs))
    return make_folding(SoloHost(cluster)).begin(partition, plan, facts)


def _judge_position(cluster: SimulatedCluster, partition: int) -> str | None:
    committed = cluster.group(GROUP).offsets.get((EVENTS, partition))
    where = f"partition {partition}"
    if committed is None:
        return f"{where} has no committed offset"
    try:
        metadata = decode_metadata(committed.metadata)
    except ValueError as e:
        return f"{where}: metadata: {e}"
    history = [m for m in history_of(cluster) if m.partition() == partition]
    steady = _new_task(cluster, FROM_THE_START, partition)
    before = [m for m in history if m.offset() < committed.offset]
    _absorb(before, {partition: steady}, [])
    return _compare(where, cluster, committed, metadata, before, steady)


def _compare(
    where: str,
    cluster: SimulatedCluster,
    committed: Offset,
    metadata: OffsetMetadata,
    before: list[SimulatedMessage],
    steady: Task[Assembly],
) -> str | None:
    if before and committed.offset != steady.next_offset:
        return f"{where}: committed {committed.offset}, the last event was {steady.next_offset - 1}"
    log_start = cluster.log(EVENTS, steady.partition).start_offset
    if metadata.low < log_start:
        return f"{where}: low-water {metadata.low} is below the start of the log"
    plan = StartAt(
        metadata.low,
        committed.offset,
        metadata.log_time_ms,
        "restored",
        metadata.since,
        checkpoints=metadata.checkpoints,
    )
    try:
        again = _new_task(cluster, plan, steady.partition)
    except RestoreRefused as e:
        return f"{where}: a restart is refused: {e}"
    _absorb([m for m in before if m.offset() >= metadata.low], {steady.partition: again}, [])
    again.fold.resume(committed.offset)
    if deciding_state(again.fold) != deciding_state(steady.fold):
        return f"{where}: a restart from {metadata.low} reaches another state"
    return None
