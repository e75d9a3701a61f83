"""A broker that hangs in the middle of commits: the process waits, and does not grow."""

import threading
from pathlib import Path

import pytest

from tests.faults.cluster import Cluster
from tests.integration.assembler_rig import Rig, call_records, made_rig, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.faults]

CALLS = 25_000
TEXT = b'{"order_id":"ORDER-%d","note":"' + b"n" * 400 + b'"}'
FROZEN_S = 4.0
#: The interpreter and the client (about 90 MB), what was fetched (at most 64 MB in its queue), two
#: outboxes of at most 32 MB and the producer's copy of one.
RESIDENT_BYTES_MAX = 400 * 1024 * 1024


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, as /proc has it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has ended")


def test_a_broker_that_hangs_in_a_commit_does_not_make_the_process_grow(
    one_node: Cluster, topic_prefix: str
) -> None:
    """Folding ahead ends where one more outbox is full; after the thaw everything is exact."""
    with made_rig(Rig(one_node.bootstrap, topic_prefix, 4)) as made:
        made.write([r for n in range(CALLS) for r in call_records(n, TEXT % n, 2)])
        process = made.start(
            commit_interval_ms="20", session_timeout_ms="27000", transaction_timeout_ms="18000"
        )
        wait_until(lambda: any(o > 0 for o, _ in made.committed().values()), "a first commit")
        one_node.freeze(0)
        try:
            threading.Event().wait(FROZEN_S)
            assert process.poll() is None, made.log(process)
        finally:
            one_node.thaw(0)
        made.wait_committed(process)
        peak_bytes = resident_bytes(process.pid)
        made.stop(process)
        made.assert_exact()
        assert peak_bytes < RESIDENT_BYTES_MAX, f"{peak_bytes / 1024 / 1024:.0f} MiB"
