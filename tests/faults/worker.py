"""`python -m tests.faults.worker`: plays seeds on clusters of its own, one JSON line for each.

Rules:
    It takes one seed per line of standard input, and ends with it: so whoever started it decides
    how long it goes on, and its brokers never outlive it.
"""

import argparse
import json
import secrets
import sys
from contextlib import ExitStack

from tests.faults.cluster import Cluster
from tests.faults.disk import small_disk
from tests.faults.runs import draw, perform


class Clusters:
    """A cluster of each size, started when it is first needed and then kept."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._made: dict[int, Cluster] = {}

    def of(self, nodes: int) -> Cluster:
        """The cluster of so many nodes."""
        if nodes not in self._made:
            disk = self._stack.enter_context(small_disk()) if nodes == 1 else None
            self._made[nodes] = self._stack.enter_context(Cluster(nodes, disk=disk))
        return self._made[nodes]


def main() -> int:
    """Play what standard input says."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.worker")
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    token = secrets.token_hex(3)
    with ExitStack() as stack:
        clusters = Clusters(stack)
        for line in sys.stdin:
            plan = draw(int(line), calls=arguments.calls, seconds=arguments.seconds)
            outcome = perform(plan, clusters.of(plan.nodes), f"{token}-{plan.seed}-")
            sys.stdout.write(json.dumps(outcome.as_json()) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
