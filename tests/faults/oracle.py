"""The one oracle that ends every run: what the topics hold against a pure fold of the events.

Rules:
    The events topic is folded again without group, process or transaction; every output is compared
    as bytes, headers included. Lost, doubled and invented are counted apart, because they mean
    different damage. No transaction may be left open, no position behind the end.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from processor.core.assembly import Assembly
from processor.runtime.offset_metadata import decode_metadata
from processor.runtime.task import Task
from tests.faults.cluster import Cluster
from tests.integration.assembler_rig import Rig, as_outputs


@dataclass
class Verdict:
    """What one run did to its outputs; all zero and nothing open means the promise was kept."""

    events: int
    outputs: int
    lost: int
    doubled: int
    invented: int
    open_transactions: list[str]
    wrong_positions: list[str]

    @property
    def broken(self) -> str:
        """The promise that was broken, in words; empty when none was."""
        said = [
            f"{name}: {count}"
            for name, count in (
                ("lost", self.lost),
                ("doubled", self.doubled),
                ("invented", self.invented),
            )
            if count
        ]
        if self.open_transactions:
            said.append(f"open transactions: {', '.join(self.open_transactions)}")
        return "; ".join([*said, *self.wrong_positions])


def judge(rig: Rig, cluster: Cluster) -> Verdict:
    """Fold again and compare. The processes must have ended."""
    tasks, outbox = rig.fold()
    expected = Counter(as_outputs(outbox))
    actual = Counter(rig.actual())
    return Verdict(
        events=sum(task.next_offset for task in tasks.values()),
        outputs=sum(actual.values()),
        lost=sum(max(0, count - actual[output]) for output, count in expected.items()),
        doubled=sum(
            max(0, count - expected[output])
            for output, count in actual.items()
            if output in expected
        ),
        invented=sum(count for output, count in actual.items() if output not in expected),
        open_transactions=cluster.open_transactions([rig.input_topic, *rig.output_topics]),
        wrong_positions=list(_wrong_positions(rig, tasks)),
    )


def _wrong_positions(rig: Rig, tasks: Mapping[int, Task[Assembly]]) -> Iterator[str]:
    committed = rig.committed()
    for partition, task in tasks.items():
        if not task.next_offset:
            continue
        offset, text = committed.get(partition, (0, ""))
        if offset != task.next_offset:
            yield f"partition {partition} stands at {offset}, not at {task.next_offset}"
        # Checkpoints let a restart begin later than the pure fold would, never earlier.
        elif not task.metadata().low <= (low := decode_metadata(text).low) <= offset:
            yield f"partition {partition} has low-water {low} at offset {offset}"
