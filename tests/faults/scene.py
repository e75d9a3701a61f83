"""One run: topics, load, processes, and the faults that come due while it goes on.

Rules:
    Everything happens on one thread, in the order of its moments; only the load has its own.
    A scene is over when the load is written, every fault is undone and all of it is committed.
"""

import heapq
import itertools
import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from tests.faults.cluster import Cluster
from tests.faults.host import Host
from tests.faults.load import Load
from tests.integration.assembler_rig import Rig

Action = Callable[[], object]


class Scene:
    """What a kind of fault may touch."""

    def __init__(self, cluster: Cluster, rig: Rig, host: Host, load: Load) -> None:
        self.cluster = cluster
        self.rig = rig
        self.host = host
        self._load = load
        self._order = itertools.count()
        self._due: list[tuple[float, int, Action]] = []
        self._booting: set[int] = set()
        self._rolling: list[int] = []
        self._ends: dict[int, int] | None = None

    def later(self, seconds: float, action: Action) -> None:
        """Do something in so many seconds from now."""
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), action))

    def play(self, timeout_s: float) -> None:
        """Let everything happen, and wait for its end. Fails as `Host.settle`."""
        self._load.start()
        self.host.settle(self._done, timeout_s)
        self._load.finish()

    # --- what a kind may ask for ----------------------------------------------------------------

    def heal_network(self) -> None:
        """Take every fault of the network back."""
        for proxy in self.cluster.proxies:
            proxy.heal()

    def take_node(self, node: int, *, polite: bool, away_s: float) -> None:
        """Take a broker away, and give it back; nothing when one is away already."""
        if self._booting:
            return
        self._booting.add(node)
        (self.cluster.stop if polite else self.cluster.kill)(node)
        self.later(away_s, lambda: self.cluster.launch(node))
        self.later(away_s + 0.1, lambda: self._await_node(node))

    def fill_disk(self, seconds: float) -> None:
        """Leave the only broker no byte to write on for a while; it may end, and is started again."""
        disk = self.cluster.disk
        if disk is None or self._booting:
            return
        self._booting.add(0)
        disk.fill()

        def end() -> None:
            disk.free()
            self.cluster.relaunch(0)
            self._await_node(0)

        self.later(seconds, end)

    def roll_nodes(self) -> None:
        """Restart every broker in turn, each after the one before is in sync again."""
        if not self._rolling:
            self._rolling = list(range(self.cluster.nodes))
            self._roll_next()

    def _roll_next(self) -> None:
        if self._booting:
            self.later(0.5, self._roll_next)
        elif self._rolling:
            self.take_node(self._rolling.pop(0), polite=True, away_s=0.2)
            self.later(0.5, self._roll_next)

    def _await_node(self, node: int) -> None:
        if self.cluster.is_ready(node):
            self._booting.discard(node)
        else:
            self.later(0.1, lambda: self._await_node(node))

    # --- the end --------------------------------------------------------------------------------

    def _done(self) -> bool:
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            heapq.heappop(self._due)[2]()
        if self._due or self._booting or self._load.running:
            self._load.pause(0.02)
            return False
        try:
            if self._ends is None:
                self._ends = self.rig.ends(self.rig.input_topic)
            committed = self.rig.committed()
        except KafkaException:
            return False
        self._load.pause(0.05)
        return all(committed.get(p, (0, ""))[0] >= end for p, end in self._ends.items())
