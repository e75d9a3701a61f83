"""Brokers that go, hang or fill up under load: the assembler lives through it, exactly once."""

import json

import pytest

from tests.faults.cluster import Cluster
from tests.faults.runs import LONG_SESSION_S, SESSION_S, Plan, perform

pytestmark = [pytest.mark.integration, pytest.mark.faults]

CALLS = 600
SECONDS = 3.0


def plan(fault: str, *, nodes: int, session_s: float) -> Plan:
    """One fault in the middle of a load, over two processes."""
    return Plan(
        seed=1,
        nodes=nodes,
        slots=2,
        session_s=session_s,
        checkpoint_after_ms=200,
        seconds=SECONDS,
        calls=CALLS,
        faults=((1.0, fault),),
    )


@pytest.mark.parametrize("fault", ["rolling_brokers", "leader_kill"])
def test_of_three_brokers_any_may_go(three_nodes: Cluster, topic_prefix: str, fault: str) -> None:
    """The leader of the input, or all of them in turn, coordinators included."""
    outcome = perform(plan(fault, nodes=3, session_s=SESSION_S), three_nodes, topic_prefix)
    assert not outcome.failure, json.dumps(outcome.as_json())
    assert outcome.events > CALLS


@pytest.mark.parametrize("fault", ["broker_kill", "disk_full"])
def test_the_only_broker_may_come_back(one_node: Cluster, topic_prefix: str, fault: str) -> None:
    """Killed, or ended by a full disk: what was in flight is decided by what it kept."""
    if fault == "disk_full" and one_node.disk is None:
        pytest.skip("only root may mount a disk that can be filled")
    outcome = perform(plan(fault, nodes=1, session_s=LONG_SESSION_S), one_node, topic_prefix)
    assert not outcome.failure, json.dumps(outcome.as_json())
    assert outcome.events > CALLS


@pytest.mark.parametrize("fault", ["cut", "swallow"])
def test_the_network_may_cut_or_swallow(one_node: Cluster, topic_prefix: str, fault: str) -> None:
    """Silence for longer than a session costs the partitions, and nothing else."""
    outcome = perform(plan(fault, nodes=1, session_s=SESSION_S), one_node, topic_prefix)
    assert not outcome.failure, json.dumps(outcome.as_json())
    assert outcome.events > CALLS
