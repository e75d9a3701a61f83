"""Public test kit: a Kafka cluster in memory, processes on it, and the faults that happen to them.

Rules:
    A simulated client has the names, results and errors of the real one; a suite of statements is
    run on both, so that the two do not drift apart.
    Nothing here draws: who goes next and what goes wrong comes from the caller's schedule.
    Not simulated: replication, authorization, sizes of records, compression, KIP-848 groups.
"""

from processor.testing.cluster import SimulatedCluster, SimulatedTopic
from processor.testing.committer import SimulatedCommitter
from processor.testing.consumer import SimulatedConsumer
from processor.testing.errors import Killed
from processor.testing.groups import GroupMetadata, Offset
from processor.testing.host import Fault, FaultKind, Host, SoloHost
from processor.testing.log import NewRecord, PartitionLog, SimulatedMessage
from processor.testing.partition_log import SimulatedPartitionLog
from processor.testing.process import FaultPlan, SimulatedProcess
from processor.testing.producer import SimulatedProducer
from processor.testing.scheduler import Scheduler, Turns
from processor.testing.watch import SimulatedGroupView, SimulatedWatch

__all__ = [
    "Fault",
    "FaultKind",
    "FaultPlan",
    "GroupMetadata",
    "Host",
    "Killed",
    "NewRecord",
    "Offset",
    "PartitionLog",
    "Scheduler",
    "SimulatedCluster",
    "SimulatedCommitter",
    "SimulatedConsumer",
    "SimulatedGroupView",
    "SimulatedMessage",
    "SimulatedPartitionLog",
    "SimulatedProcess",
    "SimulatedProducer",
    "SimulatedTopic",
    "SimulatedWatch",
    "SoloHost",
    "Turns",
]
