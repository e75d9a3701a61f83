"""One or three real Kafka nodes (KRaft) that a test may kill, freeze and start again.

Rules:
    Each node has three doors: one for brokers among themselves and for the oracle, one for clients
    whose connections a proxy may cut, and the controller's.
    A node is a child of this process and dies with it, also when this process is killed.
"""

import base64
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from processor.devstack.jars import broker_classpath
from processor.devstack.places import java_home
from processor.devstack.reach import free_ports, kafka_answers
from tests.faults.disk import Disk
from tests.faults.proxy import Proxy
from tests.integration.assembler_rig import admin, wait_until

_HOST: Final = "127.0.0.1"
#: Becomes the program that it is given, to be killed when this process ends (PR_SET_PDEATHSIG).
_WITH_US: Final = (
    "import ctypes, os, signal, sys;"
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
#: A lost node is noticed within about two seconds instead of nine.
_QUICK: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.request.timeout.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
}
_JVM: Final = (
    "-Xmx320m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class Cluster:
    """`nodes` brokers in a folder of their own; use it as a context manager."""

    def __init__(
        self, nodes: int = 1, *, disk: Disk | None = None, settings: dict[str, str] | None = None
    ) -> None:
        self.nodes = nodes
        #: Where the nodes keep their logs, when it is one that a test may fill.
        self.disk = disk
        self._settings = dict(settings or {})
        self._folder = Path(tempfile.mkdtemp(prefix="faults-kafka-"))
        self._data = self._folder if disk is None else disk.folder
        self._classpath = broker_classpath(lambda _: None)
        ports = free_ports(3 * nodes)
        self._ports = ports[:nodes]
        self._via_ports = ports[nodes : 2 * nodes]
        self._controller_ports = ports[2 * nodes :]
        self.proxies = [Proxy(port) for port in self._via_ports]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * nodes
        self._ids = [_kafka_id() for _ in range(nodes)]
        self._admin: Any = None
        self._format()

    def __enter__(self) -> "Cluster":
        """Start all nodes and wait until they take requests."""
        for node in range(self.nodes):
            self.launch(node)
        for node in range(self.nodes):
            self.await_ready(node)
        self._admin = admin.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        wait_until(lambda: len(self._brokers()) == self.nodes, "all brokers registered")
        return self

    def __exit__(self, *_: object) -> None:
        """End everything and remove the folder."""
        for process in self._processes:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(30)
        for proxy in self.proxies:
            proxy.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def bootstrap(self) -> str:
        """Addresses that no fault of the network touches."""
        return ",".join(f"{_HOST}:{port}" for port in self._ports)

    @property
    def proxied(self) -> str:
        """Addresses behind the proxies, for the processes under test."""
        return ",".join(f"{_HOST}:{proxy.port}" for proxy in self.proxies)

    # --- a node's life --------------------------------------------------------------------------

    def launch(self, node: int) -> None:
        """Start a node without waiting for it."""
        log: IO[bytes]
        with (self._home(node) / "log").open("ab") as log:
            java = self._java("kafka.Kafka", str(self._home(node) / "server.properties"))
            self._processes[node] = subprocess.Popen(
                [sys.executable, "-c", _WITH_US, *java],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def start(self, node: int) -> None:
        """Start a node and wait until it takes requests."""
        self.launch(node)
        self.await_ready(node)

    def await_ready(self, node: int) -> None:
        """Wait until a node takes requests."""
        wait_until(lambda: self.is_ready(node), f"node {node + 1} takes requests", 90)

    def is_ready(self, node: int) -> bool:
        """True when a node takes requests. Fails with its log when it has ended."""
        assert self._process(node).poll() is None, self.log(node)[-3000:]
        return kafka_answers(_HOST, self._ports[node])

    def ensure_up(self, node: int) -> None:
        """Start a node again when it does not run, and wait until it takes requests."""
        self.relaunch(node)
        self.await_ready(node)

    def relaunch(self, node: int) -> None:
        """Start a node again when it does not run; does not wait for it."""
        if self._process(node).poll() is not None:
            self.launch(node)

    def kill(self, node: int) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        self._process(node).kill()
        self._process(node).wait(30)

    def stop(self, node: int) -> None:
        """SIGTERM: a controlled shutdown that hands leadership over."""
        self._process(node).terminate()
        self._process(node).wait(90)

    def freeze(self, node: int) -> None:
        """The node hangs: its sockets stay open."""
        self._process(node).send_signal(signal.SIGSTOP)

    def thaw(self, node: int) -> None:
        """The node goes on."""
        self._process(node).send_signal(signal.SIGCONT)

    def log(self, node: int) -> str:
        """What the node has logged."""
        return (self._home(node) / "log").read_text(errors="replace")

    # --- who is responsible ---------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int) -> int:
        """The node that leads a partition, counted from 0."""
        partitions = self._admin.list_topics(topic, 10).topics[topic].partitions
        # A topic of the broker's own is made when it is first needed: then anybody is.
        return int(partitions[partition].leader) - 1 if partition in partitions else 0

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        """The node that keeps the transactions of an id (Kafka: hash of the id, modulo 4)."""
        return self.leader_of("__transaction_state", _java_hash(transactional_id) % 4)

    def group_coordinator_of(self, group: str) -> int:
        """The node that keeps a group and its offsets."""
        return self.leader_of("__consumer_offsets", _java_hash(group) % 4)

    def await_in_sync(self, topics: list[str]) -> None:
        """Wait until every replica of these topics is in sync again."""

        def in_sync() -> bool:
            try:
                found = self._admin.list_topics(timeout=5).topics
            except KafkaException:
                return False
            partitions = [p for name in topics for p in found[name].partitions.values()]
            return all(len(p.isrs) == len(p.replicas) for p in partitions)

        wait_until(in_sync, "all replicas in sync", 90)

    def open_transactions(self, topics: list[str]) -> list[str]:
        """Partitions whose last stable offset lies below their end: a transaction is open there."""
        readers = [
            Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": "oracle",
                    "isolation.level": level,
                    "log_level": 0,
                }
            )
            for level in ("read_committed", "read_uncommitted")
        ]
        try:
            found = self._admin.list_topics(timeout=10).topics
            places = [TopicPartition(name, p) for name in topics for p in found[name].partitions]
            return [
                f"{place.topic}[{place.partition}]"
                for place in places
                if len({r.get_watermark_offsets(place, 10)[1] for r in readers}) > 1
            ]
        finally:
            for reader in readers:
                reader.close()

    # --- files ----------------------------------------------------------------------------------

    def _brokers(self) -> dict[int, object]:
        try:
            return dict(self._admin.list_topics(timeout=5).brokers)
        except KafkaException:
            return {}

    def _process(self, node: int) -> subprocess.Popen[bytes]:
        process = self._processes[node]
        assert process is not None, f"node {node + 1} was never started"
        return process

    def _home(self, node: int) -> Path:
        return self._folder / f"node{node + 1}"

    def _data_of(self, node: int) -> Path:
        return self._data / f"data{node + 1}"

    def _java(self, *arguments: str) -> list[str]:
        return [str(java_home() / "bin" / "java"), *_JVM, "-cp", self._classpath, *arguments]

    def _format(self) -> None:
        for node in range(self.nodes):
            self._home(node).mkdir()
            lines = (f"{key}={value}\n" for key, value in self._properties(node).items())
            (self._home(node) / "server.properties").write_text("".join(lines))
        voters = ",".join(
            f"{node + 1}@{_HOST}:{self._controller_ports[node]}:{self._ids[node]}"
            for node in range(self.nodes)
        )
        path = str(self._home(0) / "server.properties")
        tool = ["kafka.tools.StorageTool", "format", "-t", _kafka_id(), "-c", path]
        done = subprocess.run(
            self._java(*tool, "--initial-controllers", voters), capture_output=True, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr).decode()[-3000:]
        # The others take the first one's snapshot under their own name: a JVM start less for each.
        for node in range(1, self.nodes):
            shutil.copytree(self._data_of(0), self._data_of(node))
            meta = self._data_of(node) / "meta.properties"
            text = meta.read_text().replace("node.id=1", f"node.id={node + 1}")
            meta.write_text(text.replace(self._ids[0], self._ids[node]))

    def _properties(self, node: int) -> dict[str, str]:
        copies, enough = str(min(self.nodes, 3)), "2" if self.nodes >= 3 else "1"
        plain = f"PLAINTEXT://{_HOST}:{self._ports[node]}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(node + 1),
            "controller.quorum.bootstrap.servers": ",".join(
                f"{_HOST}:{port}" for port in self._controller_ports
            ),
            "listeners": f"{plain},VIA://{_HOST}:{self._via_ports[node]}"
            f",CONTROLLER://{_HOST}:{self._controller_ports[node]}",
            "advertised.listeners": f"{plain},VIA://{_HOST}:{self.proxies[node].port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "VIA:PLAINTEXT",
            "log.dirs": str(self._data_of(node)),
            "default.replication.factor": copies,
            "min.insync.replicas": enough,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": enough,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": enough,
            **_QUICK,
            **self._settings,
        }


def _kafka_id() -> str:
    """16 random bytes as Kafka writes them; one that begins with a dash reads as an option."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()).startswith("-"):
        pass
    return text.rstrip("=")


def _java_hash(text: str) -> int:
    """The amount of `String.hashCode`, by which Kafka chooses a coordinator's partition."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value if value < 1 << 31 else (1 << 32) - value
