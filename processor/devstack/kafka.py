"""One Apache Kafka node in KRaft mode, broker and controller in one process, on the loopback.

Rules:
    The data folder gets its name only after it was formatted completely.
    The controller is named by a static voter, so both ports may change between two starts.
"""

import base64
import secrets
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from processor.core.errors import Misuse
from processor.devstack.endpoints import Progress
from processor.devstack.errors import DevStackFailed
from processor.devstack.part import died, log_size
from processor.devstack.places import java_home
from processor.devstack.processes import Process, spawn
from processor.devstack.reach import kafka_answers
from processor.devstack.state import State
from processor.devstack.waiting import wait_until

FORMAT_TIMEOUT_S = 60.0
HEAP = "320m"
POLITE = signal.SIGTERM
_HOST = "127.0.0.1"
_JVM = (
    f"-Xmx{HEAP}",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)

# One node cannot replicate; few partitions and short waits make groups and transactions quick.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    # A killed broker may register again only when its old session is over.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
}


class Kafka:
    """The broker of the stack in `directory`."""

    title = "Kafka"

    def __init__(self, directory: Path, state: State, classpath: str) -> None:
        self.home = directory / "kafka"
        self.log = directory / "kafka.log"
        self._state = state
        self._classpath = classpath
        self._formatting: Process | None = None
        self._format_offset = 0

    def prepare(self) -> Progress | None:
        """Begin to format the data folder in the background, when there is none yet."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        self._write_properties("server.properties", self.home / "data")
        if (self.home / "data").is_dir():
            return None
        fresh = self.home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        path = self._write_properties("format.properties", fresh)
        self._format_offset = log_size(self.log)
        tool = ["kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(path)]
        self._formatting = spawn(self._java(*tool), self.log)
        return Progress("prepare", "formatting Kafka's data folder")

    def launch(self) -> Process:
        """Start the broker; it does not answer yet. Raises: `DevStackFailed`."""
        self._finish_format()
        return spawn(
            self._java("kafka.Kafka", str(self.home / "server.properties")),
            self.log,
        )

    def answers(self) -> bool:
        """True when the broker takes requests."""
        return kafka_answers(_HOST, self._state.kafka_port)

    def _finish_format(self) -> None:
        formatting = self._formatting
        if formatting is None:
            return
        done = wait_until(lambda: not formatting.is_alive(), FORMAT_TIMEOUT_S)
        fresh = self.home / "data.new"
        if not done:
            raise DevStackFailed(f"Kafka's data folder was not formatted in time: see {self.log}")
        if not (fresh / "meta.properties").exists():
            raise died(self, self._format_offset)
        fresh.rename(self.home / "data")

    def _java(self, *arguments: str) -> list[str]:
        return [str(java_home() / "bin" / "java"), *_JVM, "-cp", self._classpath, *arguments]

    def _write_properties(self, name: str, data: Path) -> Path:
        broker = f"PLAINTEXT://{_HOST}:{self._state.kafka_port}"
        controller = f"{_HOST}:{self._state.controller_port}"
        settings = {
            **_SETTINGS,
            "listeners": f"{broker},CONTROLLER://{controller}",
            "advertised.listeners": broker,
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(data),
            **self._state.kafka_properties,
        }
        path = self.home / name
        path.write_text("".join(f"{k}={_escaped(v)}\n" for k, v in settings.items()))
        return path


def checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """A copy of a caller's broker settings. Raises: `Misuse` for a name that is none."""
    for name, value in properties.items():
        if not name or any(c.isspace() or c in "=:#!\\" for c in name) or "\n" in value:
            raise Misuse(f"kafka_properties: {name!r} is not a broker setting on one line")
    return dict(properties)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _cluster_id() -> str:
    """16 random bytes as Kafka writes them; an id that begins with a dash reads as an option."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()).startswith("-"):
        pass
    return text.rstrip("=")
