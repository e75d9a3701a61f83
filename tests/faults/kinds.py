"""The kinds of faults: what each does to a running scene, and what it undoes later.

Rules:
    A kind draws its own figures from the run's generator, so that a seed tells the whole story.
    Whatever it takes away it gives back by itself: a run ends with everything healed.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer

from processor.runtime.crash_points import COMMIT_POINTS, OTHER_POINTS
from tests.faults.host import Slot
from tests.faults.scene import Scene
from tests.integration.assembler_rig import call_records

Act = Callable[[Scene, random.Random], None]


class Kind(NamedTuple):
    """One kind of fault. `nodes` says which cluster it needs."""

    act: Act
    nodes: int = 1
    #: It would take a cluster of more nodes away for good.
    only_one_node: bool = False
    #: It takes a broker away: on a cluster of one node, every partition is without a leader.
    leaderless: bool = False
    #: It lasts for longer than a session of the group.
    outlasts: bool = False


def _slot(scene: Scene, rng: random.Random) -> Slot:
    return rng.choice([slot for slot in scene.host.slots if slot.wanted])


# --- processes ----------------------------------------------------------------------------------


def _kill(scene: Scene, rng: random.Random) -> None:
    scene.host.kill(_slot(scene, rng))


def _kill_all(scene: Scene, rng: random.Random) -> None:
    del rng
    for slot in scene.host.slots:
        scene.host.kill(slot)


def _kill_at(point: str) -> Act:
    def act(scene: Scene, rng: random.Random) -> None:
        slot = _slot(scene, rng)
        scene.host.crash_next[slot.name] = f"{point}:{rng.randint(1, 8)}"
        scene.host.kill(slot)

    return act


def _freeze_short(scene: Scene, rng: random.Random) -> None:
    _freeze(scene, rng, scene.host.session_s * rng.uniform(0.2, 0.7))


def _freeze_long(scene: Scene, rng: random.Random) -> None:
    _freeze(scene, rng, scene.host.session_s * rng.uniform(1.1, 1.5))


def _freeze(scene: Scene, rng: random.Random, seconds: float) -> None:
    slot = _slot(scene, rng)
    scene.host.freeze(slot)
    scene.later(seconds, lambda: scene.host.thaw(slot))


def _twin(scene: Scene, rng: random.Random) -> None:
    scene.host.start_twin(_slot(scene, rng))


def _rolling_restart(scene: Scene, rng: random.Random) -> None:
    for number, slot in enumerate(scene.host.slots):
        scene.later(number * rng.uniform(0.5, 1.0), partial(scene.host.ask_to_stop, slot))


def _scale_out(scene: Scene, rng: random.Random) -> None:
    del rng
    scene.host.add_slot()


def _scale_in(scene: Scene, rng: random.Random) -> None:
    """Take one away for longer than a session, so that the others must take over, then give back."""
    if sum(slot.wanted for slot in scene.host.slots) < 2:
        scene.host.add_slot()
    slot = _slot(scene, rng)
    slot.wanted = False
    scene.host.kill(slot)

    def give_back() -> None:
        slot.wanted = True

    scene.later(scene.host.session_s + rng.uniform(0.2, 1.5), give_back)


# --- brokers ------------------------------------------------------------------------------------


def _broker_kill(scene: Scene, rng: random.Random) -> None:
    scene.take_node(rng.randrange(scene.cluster.nodes), polite=False, away_s=rng.uniform(0, 1.5))


def _broker_stop(scene: Scene, rng: random.Random) -> None:
    scene.take_node(rng.randrange(scene.cluster.nodes), polite=True, away_s=rng.uniform(0, 1.0))


def _broker_freeze(scene: Scene, rng: random.Random) -> None:
    node = rng.randrange(scene.cluster.nodes)
    scene.cluster.freeze(node)
    scene.later(rng.uniform(0.5, 4.0), lambda: scene.cluster.thaw(node))


def _disk_full(scene: Scene, rng: random.Random) -> None:
    scene.fill_disk(rng.uniform(0.5, 4.0))


def _rolling_brokers(scene: Scene, rng: random.Random) -> None:
    del rng
    scene.roll_nodes()


def _leader_kill(scene: Scene, rng: random.Random) -> None:
    partition = rng.randrange(scene.rig.partitions)
    node = scene.cluster.leader_of(scene.rig.input_topic, partition)
    scene.take_node(node, polite=False, away_s=rng.uniform(2.0, 4.0))


def _transaction_coordinator_kill(scene: Scene, rng: random.Random) -> None:
    slot = _slot(scene, rng)
    node = scene.cluster.transaction_coordinator_of(f"{scene.rig.group}-{slot.name}")
    scene.take_node(node, polite=False, away_s=rng.uniform(2.0, 4.0))


def _group_coordinator_kill(scene: Scene, rng: random.Random) -> None:
    node = scene.cluster.group_coordinator_of(scene.rig.group)
    scene.take_node(node, polite=False, away_s=rng.uniform(2.0, 4.0))


# --- network ------------------------------------------------------------------------------------


def _cut(scene: Scene, rng: random.Random) -> None:
    for wait in range(rng.randint(1, 4)):
        scene.later(wait * rng.uniform(0.05, 0.6), lambda: [p.cut() for p in scene.cluster.proxies])


def _refuse(scene: Scene, rng: random.Random) -> None:
    for proxy in scene.cluster.proxies:
        proxy.refusing = True
        proxy.cut()
    scene.later(rng.uniform(0.5, 3.0), scene.heal_network)


def _delay(scene: Scene, rng: random.Random) -> None:
    late_s = rng.uniform(0.02, 0.25)
    for proxy in scene.cluster.proxies:
        proxy.delay_s = late_s
    scene.later(rng.uniform(1.0, 4.0), scene.heal_network)


def _swallow(scene: Scene, rng: random.Random) -> None:
    for proxy in scene.cluster.proxies:
        proxy.swallow()
    scene.later(rng.uniform(0.5, scene.host.session_s * 1.4), scene.heal_network)


# --- rogues -------------------------------------------------------------------------------------


def _open_transaction(scene: Scene, rng: random.Random) -> None:
    """Somebody holds a transaction open on the input: the readers wait at it, then go on."""
    producer = _transactional(scene, f"{scene.rig.prefix}rogue-{rng.randrange(1 << 30)}")
    committed = rng.random() < 0.5
    with suppress(KafkaException):  # a broker may be away just now: then there is no rogue
        producer.init_transactions(5)
        producer.begin_transaction()
        number = 1_000_000 + rng.randrange(1_000_000)
        for key, value in call_records(number, b'{"rogue":true}', 3):
            producer.produce(scene.rig.input_topic, value, key)
        producer.flush(5)

    def end() -> None:
        with suppress(KafkaException):
            if committed:
                producer.commit_transaction(10)
            else:
                producer.abort_transaction(10)

    scene.later(rng.uniform(0.5, 2.5), end)


def _same_transactional_id(scene: Scene, rng: random.Random) -> None:
    """A second producer takes our id: the slot is fenced, and its restart takes the id back."""
    slot = _slot(scene, rng)
    with suppress(KafkaException):
        _transactional(scene, f"{scene.rig.group}-{slot.name}").init_transactions(5)


def _passing_member(scene: Scene, rng: random.Random) -> None:
    """A member without a static name joins and leaves: two rebalances under load."""
    consumer = Consumer(
        {
            "bootstrap.servers": scene.cluster.bootstrap,
            "group.id": scene.rig.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 4_500,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    consumer.subscribe([scene.rig.input_topic])
    for _ in range(rng.randint(1, 12)):
        consumer.poll(0.1)
    consumer.close()


def _transactional(scene: Scene, transactional_id: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": scene.cluster.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 5_000,
            "partitioner": "murmur2_random",
            "log_level": 0,
        }
    )


KINDS: Final[dict[str, Kind]] = {
    "kill": Kind(_kill),
    "kill_all": Kind(_kill_all),
    **{f"kill_{point}": Kind(_kill_at(point)) for point in (*COMMIT_POINTS, *OTHER_POINTS)},
    "freeze_short": Kind(_freeze_short),
    "freeze_long": Kind(_freeze_long, outlasts=True),
    "twin": Kind(_twin),
    "rolling_restart": Kind(_rolling_restart),
    "scale_out": Kind(_scale_out),
    "scale_in": Kind(_scale_in, outlasts=True),
    "broker_kill": Kind(_broker_kill, leaderless=True),
    "broker_stop": Kind(_broker_stop, leaderless=True),
    "broker_freeze": Kind(_broker_freeze, leaderless=True),
    "disk_full": Kind(_disk_full, only_one_node=True, leaderless=True),
    "cut": Kind(_cut),
    "refuse": Kind(_refuse),
    "delay": Kind(_delay),
    "swallow": Kind(_swallow, outlasts=True),
    "open_transaction": Kind(_open_transaction),
    "same_transactional_id": Kind(_same_transactional_id),
    "passing_member": Kind(_passing_member),
    "rolling_brokers": Kind(_rolling_brokers, nodes=3),
    "leader_kill": Kind(_leader_kill, nodes=3),
    "transaction_coordinator_kill": Kind(_transaction_coordinator_kill, nodes=3),
    "group_coordinator_kill": Kind(_group_coordinator_kill, nodes=3),
}
