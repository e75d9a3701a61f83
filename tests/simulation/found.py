"""Schedules that once broke a promise, or nearly did: each short, each told in one sentence."""

from processor.testing import Fault
from tests.simulation.calls import Line
from tests.simulation.schedule import FaultStep, Schedule, WorldStep, WriteStep

#: A request for offsets gets no answer and is made again; the first one arrives within the next
#: transaction of the same producer, whose position it moves back.
LATE_OFFSETS = Schedule(
    seed=2008,
    turns=0,
    partitions=1,
    restart_ms=100,
    skew_ms={},
    steps=(
        FaultStep("0", "send_offsets_to_transaction", 1, Fault("fail_in_flight", 2_000)),
        WriteStep(1_533, (Line(3, 5, 3),)),
        FaultStep("0", "commit_transaction", 2, Fault("slow", 7_900)),
        WorldStep(2_706, "stop", "0"),
    ),
)
#: A process stands still in the callback of a rebalance for longer than its session. Its client is
#: thrown out, joins again under another member id, and says nothing of a loss.
SILENT_LOSS = Schedule(
    seed=1613,
    turns=0,
    partitions=2,
    restart_ms=100,
    skew_ms={},
    steps=(
        WorldStep(500, "start", "1"),
        FaultStep("0", "incremental_assign", 2, Fault("freeze_before", 13_000)),
        FaultStep("0", "after_fold", 1, Fault("slow", 100)),
        WriteStep(925, tuple(Line(call, 4, 3) for call in range(6))),
        # Faults end with the last planned step.
        WriteStep(15_000, (Line(6, 4, 3),)),
    ),
)
FOUND = (LATE_OFFSETS, SILENT_LOSS)
