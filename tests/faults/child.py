"""One assembler process with short time limits, so that a lost session is a matter of seconds."""

import os
import signal
import sys
from ctypes import CDLL

from processor.app import StopRequest, build_assembler, run_assembler
from processor.cli.exit_codes import exit_code_of
from processor.core.errors import ProcessorError
from processor.runtime.crash_points import crash_at, never_crash
from processor.runtime.settings import CommitSettings, RuntimeSettings
from processor.runtime.topics import TopicNames

#: Transaction below session below poll interval, as the settings demand.
TRANSACTION_MS = 3_000
SESSION_MS = 4_500
POLL_MS = 9_000
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run until SIGTERM; the exit status is that of `toolcalls run`."""
    CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    should_stop = StopRequest()
    should_stop.install()
    bootstrap, prefix, group, slot, crash = (
        os.environ[f"FAULTS_{name}"] for name in ("BOOTSTRAP", "PREFIX", "GROUP", "SLOT", "CRASH_AT")
    )
    topics = TopicNames.prefixed(prefix)
    settings = RuntimeSettings(
        bootstrap,
        topics.events,
        group=group,
        slot=slot,
        start="earliest",
        commit=CommitSettings(
            interval_ms=20,
            transaction_timeout_ms=TRANSACTION_MS,
            session_timeout_ms=SESSION_MS,
            poll_interval_max_ms=POLL_MS,
        ),
        checkpoint_after_ms=int(os.environ["FAULTS_CHECKPOINT_AFTER_MS"]),
    )
    try:
        crash_point = crash_at(crash) if crash else never_crash
        run_assembler(build_assembler(settings, topics, crash_point=crash_point), should_stop)
    except ProcessorError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(exit_code_of(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
