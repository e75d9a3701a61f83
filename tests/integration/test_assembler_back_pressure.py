"""Calls that together hold more than a process may are all completed, on a real broker."""

import pytest

from tests.integration.assembler_rig import call_records, rig

pytestmark = pytest.mark.integration


def test_calls_larger_than_the_bound_in_every_partition_are_all_completed(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Partitions are read in turns, nothing is skipped or folded twice, and all are read again."""
    with rig(kafka_bootstrap, topic_prefix, partitions=3) as made:
        calls = [call_records(n, b'{"n":"%s"}' % (b"n" * 20_000), 40) for n in range(150)]
        # All are open at once.
        made.write([call[at] for at in range(len(calls[0])) for call in calls])
        process = made.start(buffered_bytes_max="50000", commit_interval_ms="10")
        made.wait_committed(process)
        log = made.stop(process)
        made.assert_exact()
        assert "input_paused" in log
