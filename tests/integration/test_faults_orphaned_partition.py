"""A static member that dies while it gives partitions up, and comes back at once."""

import signal

import pytest

from tests.integration.assembler_rig import call_records, rig, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.faults]


def test_a_kill_during_the_commit_before_a_revocation_leaves_no_partition_without_owner(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """The restarted slot gets its old assignment back; what it was giving up must find an owner.

    Cooperative rebalancing needs the leaver's second join. A static member that restarts is given
    its stored assignment without a rebalance, so nobody starts the second one.
    """
    with rig(kafka_bootstrap, topic_prefix) as made:
        leaving = made.start(
            slot="0", commit_interval_ms="7000", crash_at="before_begin:2", allow_crash_points="1"
        )
        wait_until(lambda: len(made.committed()) == made.partitions, "the first commit")
        made.write([r for n in range(60) for r in call_records(n, b'{"a":1}', 3)])
        joining = made.start(slot="1")
        leaving.wait(60)
        assert leaving.returncode == -signal.SIGKILL
        back = made.start(slot="0")
        made.write([r for n in range(60, 120) for r in call_records(n, b'{"a":1}', 3)])
        made.wait_committed()
        made.stop(back)
        made.stop(joining)
        made.assert_exact()
