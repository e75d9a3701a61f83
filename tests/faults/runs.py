"""A run by its seed: which faults, when, over which load; and what came of it.

Rules:
    The seed draws everything but the machine's own timing: the same seed gives the same log, the same
    processes and the same faults at the same moments.
"""

import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.topics import topic_specs
from tests.faults.cluster import Cluster
from tests.faults.host import Host
from tests.faults.kinds import KINDS
from tests.faults.load import Load
from tests.faults.oracle import judge
from tests.faults.scene import Scene
from tests.integration.assembler_rig import Rig, admin, wait_until

#: One run in so many needs three brokers.
THREE_NODES_EVERY: Final = 8
#: Of the runs on one broker, those that may take it away.
LEADERLESS_SHARE: Final = 0.4
PARTITIONS: Final = 4
#: A session that is lost quickly, and one that outlasts the restart of the only broker.
SESSION_S: Final = 4.5
LONG_SESSION_S: Final = 27.0
_SETTLE_S: Final = 120.0


@dataclass(frozen=True)
class Plan:
    """What a seed stands for."""

    seed: int
    nodes: int
    slots: int
    session_s: float
    checkpoint_after_ms: int
    seconds: float
    calls: int
    #: When and which, in order.
    faults: tuple[tuple[float, str], ...]


def draw(seed: int, *, calls: int, seconds: float, nodes: int | None = None) -> Plan:
    """The plan of a seed. `nodes` overrules what it drew, to keep a short part to one broker.

    The only broker is taken away for less than a transaction may take: a broker that comes back
    later, and finds every partition without a leader, loses the markers of what it then aborts
    (`processor/runtime/leftovers.py`), and a start is refused, as it must be.
    """
    rng = random.Random(f"plan-{seed}")
    drawn = 3 if rng.randrange(THREE_NODES_EVERY) == 0 else 1
    wanted = drawn if nodes is None else nodes
    away = wanted == 1 and rng.random() < LEADERLESS_SHARE
    fitting = sorted(
        name
        for name, kind in KINDS.items()
        if kind.nodes <= wanted
        and not (kind.only_one_node if wanted > 1 else (kind.outlasts if away else kind.leaderless))
    )
    faults = [(rng.uniform(0.3, seconds), rng.choice(fitting)) for _ in range(rng.randint(1, 5))]
    if wanted == 3 and all(KINDS[name].nodes == 1 for _, name in faults):
        special = sorted(name for name, kind in KINDS.items() if kind.nodes == 3)
        faults.append((rng.uniform(0.3, seconds), rng.choice(special)))
    return Plan(
        seed=seed,
        nodes=wanted,
        slots=rng.randint(1, 3),
        session_s=LONG_SESSION_S if away else SESSION_S,
        checkpoint_after_ms=rng.choice([1, 200, 10_000]),
        seconds=seconds,
        calls=calls,
        faults=tuple(sorted(faults)),
    )


@dataclass
class Outcome:
    """What came of one run; also its JSON form."""

    seed: int
    faults: list[str]
    events: int = 0
    outputs: int = 0
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    invented: int = 0
    #: Empty when every promise was kept.
    failure: str = ""
    seconds: float = 0.0
    restores_s: list[float] = field(default_factory=list[float])
    endings: dict[str, int] = field(default_factory=dict[str, int])

    def as_json(self) -> dict[str, Any]:
        """For a line of output."""
        return asdict(self)


def perform(plan: Plan, cluster: Cluster, prefix: str) -> Outcome:
    """Play a plan on a cluster of its own size, and judge it."""
    outcome = Outcome(plan.seed, [f"{name}@{moment:.1f}" for moment, name in plan.faults])
    began_s = time.monotonic()
    rig = Rig(cluster.bootstrap, prefix, PARTITIONS)
    host = Host(
        rig,
        cluster.proxied,
        plan.slots,
        session_s=plan.session_s,
        checkpoint_after_ms=plan.checkpoint_after_ms,
    )
    try:
        _create(rig, cluster)
        load = Load(cluster.bootstrap, rig.input_topic, plan.seed, plan.calls, plan.seconds)
        scene = Scene(cluster, rig, host, load)
        rng = random.Random(f"acts-{plan.seed}")
        for moment_s, name in plan.faults:
            scene.later(moment_s, partial(KINDS[name].act, scene, rng))
        scene.play(plan.seconds + _SETTLE_S)
        host.stop_all()
        _judge(outcome, rig, cluster)
    except Exception as e:  # noqa: BLE001 - whatever it was, it is this seed's failure
        outcome.failure = outcome.failure or f"{type(e).__name__}: {e}"
    finally:
        host.kill_all()
        outcome.kills = host.kills
        outcome.restores_s = host.restores_s()
        outcome.endings = _named(host.endings)
        outcome.seconds = time.monotonic() - began_s
        _restore_cluster(cluster, rig)
    return outcome


def _create(rig: Rig, cluster: Cluster) -> None:
    copies = min(3, cluster.nodes)
    specs = topic_specs(rig.topics, partitions=rig.partitions, replication_factor=copies)
    KafkaAdmin(cluster.bootstrap).create(specs)


def _judge(outcome: Outcome, rig: Rig, cluster: Cluster) -> None:
    topics = [rig.input_topic, *rig.output_topics, rig.topics.checkpoints]
    # A slot that was killed for good leaves its transaction to the broker's time limit.
    with suppress(AssertionError):
        wait_until(lambda: not cluster.open_transactions(topics), "no open transaction", 20)
    verdict = judge(rig, cluster)
    outcome.events, outcome.outputs = verdict.events, verdict.outputs
    outcome.lost, outcome.doubled = verdict.lost, verdict.doubled
    outcome.invented, outcome.failure = verdict.invented, verdict.broken


def _named(endings: Counter[int]) -> dict[str, int]:
    return {str(code): count for code, count in sorted(endings.items())}


def _restore_cluster(cluster: Cluster, rig: Rig) -> None:
    """Leave the cluster as the next run expects it: all nodes up, no faults, no old topics."""
    for proxy in cluster.proxies:
        proxy.heal()
    for node in range(cluster.nodes):
        cluster.thaw(node)
        cluster.ensure_up(node)
    rig.kill_all()
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    names = [spec.name for spec in topic_specs(rig.topics, partitions=1, replication_factor=1)]
    for future in client.delete_topics(names, operation_timeout=30).values():
        future.exception(60)
