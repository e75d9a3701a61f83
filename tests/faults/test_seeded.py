"""A short part of the seeded faults in every run of the tests; `make soak` plays many more."""

import json

import pytest

from tests.faults.cluster import Cluster
from tests.faults.runs import draw, perform

pytestmark = [pytest.mark.integration, pytest.mark.faults]

RUNS = 4
CALLS = 1_000
SECONDS = 3.0


@pytest.mark.parametrize("number", range(RUNS))
def test_faults_drawn_from_the_seed_of_the_session_break_no_promise(
    one_node: Cluster, topic_prefix: str, session_seed: int, number: int
) -> None:
    """Nothing lost, doubled or invented, no transaction left open; the failure names the seed."""
    seed = (session_seed * RUNS + number) % (1 << 40)
    plan = draw(seed, calls=CALLS, seconds=SECONDS, nodes=1)
    outcome = perform(plan, one_node, topic_prefix)
    assert not outcome.failure, (
        f"make faults SEED={seed} RUNS=1 CALLS={CALLS} SECONDS={SECONDS}:"
        f" {json.dumps(outcome.as_json())}"
    )
    assert outcome.events > CALLS
