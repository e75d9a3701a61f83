"""Several processes in one group: restarts, more and fewer of them, lost and doubled slots.

Under both group protocols where the rule is the same for both; a short session, so that a lost
member is given up in seconds.
"""

import itertools
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from processor.cli.exit_codes import ExitCode
from processor.runtime.settings import GroupProtocol
from tests.integration.assembler_rig import Rig, admin, call_records, rig, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.faults]

SESSION_MS = 4_500
TRANSACTION_MS = 3_000
PARTITIONS = 6
BOTH: tuple[GroupProtocol, ...] = ("classic", "consumer")

Process = subprocess.Popen[bytes]


class Group:
    """The processes of one group of `rig`, all under one protocol."""

    def __init__(self, made: Rig, protocol: GroupProtocol) -> None:
        self.rig = made
        self._protocol = protocol
        self._numbers = itertools.count(1)
        if protocol == "consumer":
            _set_session(made)

    def start(self, slot: str, **extra: str) -> Process:
        """Start one slot."""
        return self.rig.start(
            slot,
            group_protocol=self._protocol,
            session_timeout_ms=str(SESSION_MS),
            transaction_timeout_ms=str(TRANSACTION_MS),
            **extra,
        )

    def start_owning(self, slot: str, **extra: str) -> Process:
        """Start one slot and wait until it has been given a partition."""
        process = self.start(slot, **extra)
        self.wait_logged(process, "partition_assigned")
        return process

    def wait_logged(self, process: Process, word: str) -> None:
        """Wait until a process has logged `word`."""

        def logged() -> bool:
            assert process.poll() is None or word in self.rig.log(process), self.rig.log(process)
            return word in self.rig.log(process)

        wait_until(logged, f"{word} in a process's log")

    def write(self, calls: int) -> None:
        """Write some whole calls."""
        numbers = itertools.islice(self._numbers, calls)
        self.rig.write([r for n in numbers for r in call_records(n, b'{"a":[1,2,3]}', 5)])

    def wait_moved(self) -> None:
        """Wait until every partition's committed position has moved on."""
        before = self.rig.committed()

        def moved() -> bool:
            now = self.rig.committed()
            return len(now) == PARTITIONS and all(
                now[p][0] > before.get(p, (-1, ""))[0] for p in now
            )

        wait_until(moved, "every partition's next commit")

    def end(self, *processes: Process) -> None:
        """Wait until all input is committed, stop what runs, and compare every output."""
        self.rig.wait_committed()
        for process in processes:
            self.rig.stop(process)
        self.rig.assert_exact()

    @contextmanager
    def loaded(self) -> Generator[None]:
        """Calls are written all the time."""
        stop = threading.Event()
        failed: list[Exception] = []

        def work() -> None:
            try:
                while not stop.wait(0.02):
                    self.write(4)
            except Exception as e:  # noqa: BLE001 - it is raised where the load ends
                failed.append(e)

        writing = threading.Thread(target=work)
        writing.start()
        try:
            yield
        finally:
            stop.set()
            writing.join(60)
        assert not failed, failed


def _set_session(made: Rig) -> None:
    """Give the group its session; under KIP-848 that is the broker's to know."""
    wanted = {
        "consumer.session.timeout.ms": SESSION_MS,
        "consumer.heartbeat.interval.ms": SESSION_MS // 12,
    }
    operation = admin.AlterConfigOpType.SET
    entries = [
        admin.ConfigEntry(name, str(value), incremental_operation=operation)
        for name, value in wanted.items()
    ]
    resource = admin.ConfigResource(
        admin.ResourceType.GROUP, made.group, incremental_configs=entries
    )
    client: Any = admin.AdminClient({"bootstrap.servers": made.bootstrap})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(20)


@contextmanager
def group(bootstrap: str, prefix: str, protocol: GroupProtocol) -> Generator[Group]:
    """A group of its own, with nobody in it."""
    with rig(bootstrap, prefix, PARTITIONS) as made:
        yield Group(made, protocol)


@pytest.mark.parametrize("protocol", BOTH)
def test_a_rolling_restart_under_load_loses_and_doubles_nothing(
    kafka_bootstrap: str, topic_prefix: str, protocol: GroupProtocol
) -> None:
    """Each of three slots is stopped and started while the others go on."""
    with group(kafka_bootstrap, topic_prefix, protocol) as made:
        running = {slot: made.start(slot) for slot in ("0", "1", "2")}
        with made.loaded():
            for process in running.values():
                made.wait_logged(process, "partition_assigned")
            for slot, process in list(running.items()):
                made.rig.stop(process)
                running[slot] = made.start_owning(slot)
                assert "slot_held" not in made.rig.log(running[slot])
            made.wait_moved()
        made.end(*running.values())


@pytest.mark.parametrize("protocol", BOTH)
def test_from_one_process_to_three_and_back_under_load(
    kafka_bootstrap: str, topic_prefix: str, protocol: GroupProtocol
) -> None:
    """New ones are given partitions; what those have that stop goes back after their session."""
    with group(kafka_bootstrap, topic_prefix, protocol) as made:
        with made.loaded():
            first = made.start_owning("0")
            others = [made.start("1"), made.start("2")]
            for process in others:
                made.wait_logged(process, "partition_assigned")
            made.wait_moved()
            for process in others:
                made.rig.stop(process)
            made.wait_moved()
        made.end(first)


@pytest.mark.parametrize("protocol", BOTH)
def test_a_process_frozen_beyond_its_session_commits_nothing_and_ends(
    kafka_bootstrap: str, topic_prefix: str, protocol: GroupProtocol
) -> None:
    """Another one has its partitions by then; the one that wakes up ends by a named status."""
    with group(kafka_bootstrap, topic_prefix, protocol) as made:
        with made.loaded():
            frozen, other = made.start_owning("0"), made.start_owning("1")
            made.wait_moved()
            frozen.send_signal(signal.SIGSTOP)
            try:
                made.wait_moved()
            finally:
                frozen.send_signal(signal.SIGCONT)
            frozen.wait(60)
            made.wait_moved()
        log = made.rig.log(frozen)
        assert frozen.returncode in (ExitCode.FENCED, ExitCode.COMMIT_REFUSED), log
        made.end(other)


def test_with_kip_848_a_second_process_in_a_slot_is_refused_and_the_first_stays(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """The classic group keeps the newer one; here it is the older one, undisturbed."""
    with group(kafka_bootstrap, topic_prefix, "consumer") as made:
        with made.loaded():
            first = made.start_owning("0")
            second = made.start("0", slot_wait_s="1")
            second.wait(60)
            assert second.returncode == ExitCode.FENCED, made.rig.log(second)
            made.wait_moved()
            assert first.poll() is None
        made.end(first)


def test_with_kip_848_a_killed_slot_waits_for_its_session_and_takes_its_place(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """The wait is in the log; nobody has to restart the process."""
    with group(kafka_bootstrap, topic_prefix, "consumer") as made:
        made.write(20)
        killed = made.start_owning("0")
        made.rig.wait_committed()
        killed.kill()
        killed.wait(60)
        made.write(20)
        back = made.start_owning("0")
        assert "slot_held" in made.rig.log(back)
        made.end(back)


def test_with_kip_848_a_process_that_fails_leaves_its_place_free(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Its producer is fenced, it ends by itself, and the next one need not wait for a session."""
    with group(kafka_bootstrap, topic_prefix, "consumer") as made:
        made.write(20)
        fenced = made.start_owning("0")
        made.rig.wait_committed()
        thief = Producer(
            {"bootstrap.servers": kafka_bootstrap, "transactional.id": f"{made.rig.group}-0"}
        )
        thief.init_transactions(20)
        made.write(20)
        fenced.wait(60)
        assert fenced.returncode == ExitCode.FENCED, made.rig.log(fenced)
        back = made.start_owning("0")
        assert "slot_held" not in made.rig.log(back)
        made.end(back)


def test_with_kip_848_a_kill_while_giving_partitions_up_leaves_none_without_owner(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Where the classic protocol needs the watch over ownership, the coordinator has no gap."""
    with group(kafka_bootstrap, topic_prefix, "consumer") as made:
        leaving = made.start(
            "0", commit_interval_ms="2500", crash_at="before_begin:2", allow_crash_points="1"
        )
        wait_until(lambda: len(made.rig.committed()) == PARTITIONS, "the first commit")
        made.write(60)
        joining = made.start("1")
        leaving.wait(60)
        assert leaving.returncode == -signal.SIGKILL
        back = made.start("0")
        made.write(60)
        made.end(back, joining)
