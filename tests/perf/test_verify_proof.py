"""One altered byte among 100,000 calls: found, with bounded memory. `make verify-proof`."""

import json
import subprocess
import sys

import pytest

from tests.integration.assembler_rig import rig
from tests.integration.verify_proof import Proof, arguments_of, faults_of

pytestmark = [pytest.mark.integration, pytest.mark.perf, pytest.mark.timeout(600)]

CALLS = 100_000
BAD = 100
PEAK_KIB_MAX = 320 * 1024
MEASURE = """
import json, resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([status, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""
INDEX_BYTES_PER_OUTPUT_MAX = 64


def test_a_single_altered_byte_is_found_among_a_hundred_thousand_calls(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """And with it a lost, a doubled and an invented record and a lost dead letter; nothing else."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        proof = Proof(made)
        proof.write_events(CALLS, BAD)
        proof.alter_a_byte()
        proof.lose(made.topics.completed)
        proof.lose(made.topics.deadletter)
        proof.double()
        proof.invent(at_offset=lambda offset: offset - 1)
        proof.produce(proof.outputs)
        # Started by a small process: the peak of one that a large one starts begins at its size.
        command = [sys.executable, "-m", "processor.cli.main", *arguments_of(made)]
        ran = subprocess.run(
            [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, check=False
        )
        lines = ran.stdout.splitlines()
        answer, (status, cpu_s, peak_kib) = json.loads(lines[0]), json.loads(lines[1])
        print(  # noqa: T201  # the measurement is what the target is for
            f"\n{answer['events']} events, {CALLS} calls: CPU {cpu_s:.1f} s, peak"
            f" {peak_kib // 1024} MiB, index {answer['index_bytes'] // 1024} KiB"
        )
        assert faults_of(answer) == sorted(proof.expected)
        assert status == 10
        assert answer["agreeing"] == {"completed": CALLS - 2, "deadletter": BAD - 1}
        assert peak_kib < PEAK_KIB_MAX
        assert answer["index_bytes"] < INDEX_BYTES_PER_OUTPUT_MAX * (CALLS + BAD)
