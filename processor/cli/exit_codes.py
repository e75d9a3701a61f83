"""What a command's exit status means; the same for every verb, and stable.

Rules:
    The class of an error decides, by its `code`; a subclass without a row takes its parent's.
"""

from enum import IntEnum

from processor.core.errors import ProcessorError


class ExitCode(IntEnum):
    """The exit statuses of `toolcalls`."""

    OK = 0
    CHECK_FAILED = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4
    FENCED = 5
    CLIENT_FATAL = 6
    COMMIT_UNKNOWN = 7
    RESTORE_REFUSED = 8
    COMMIT_REFUSED = 9
    DIFFERENCES = 10
    UNKNOWN_CALL = 11
    INTERNAL = 70


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.CHECK_FAILED: "a check failed, or a part that was asked about does not run",
    ExitCode.USAGE: "wrong usage, setting or input",
    ExitCode.REFUSED: "a configuration or a topic was refused",
    ExitCode.UNREACHABLE: "Kafka or Postgres cannot be reached or started, or did not answer",
    ExitCode.FENCED: "another process owns the slot",
    ExitCode.CLIENT_FATAL: "fatal error of the Kafka client",
    ExitCode.COMMIT_UNKNOWN: "the result of the last commit is unknown",
    ExitCode.RESTORE_REFUSED: "the committed position does not fit the topic",
    ExitCode.COMMIT_REFUSED: "the broker refused a transaction",
    ExitCode.DIFFERENCES: "the outputs are not what the events say",
    ExitCode.UNKNOWN_CALL: "nobody knows the call",
    ExitCode.INTERNAL: "a bug in this program",
}

_BY_CODE = {
    "processor_error": ExitCode.CHECK_FAILED,
    "misuse": ExitCode.USAGE,
    "transient": ExitCode.UNREACHABLE,
    "fenced": ExitCode.FENCED,
    "indeterminate": ExitCode.COMMIT_UNKNOWN,
    "invariant_violated": ExitCode.INTERNAL,
    "kafka_unreachable": ExitCode.UNREACHABLE,
    "slot_fenced": ExitCode.FENCED,
    "client_fatal": ExitCode.CLIENT_FATAL,
    "commit_unknown": ExitCode.COMMIT_UNKNOWN,
    "commit_refused": ExitCode.COMMIT_REFUSED,
    "restore_refused": ExitCode.RESTORE_REFUSED,
    "topic_refused": ExitCode.REFUSED,
    "devstack_failed": ExitCode.UNREACHABLE,
    "devstack_jar_refused": ExitCode.CHECK_FAILED,
    "devstack_package_missing": ExitCode.USAGE,
    "delivery_failed": ExitCode.UNREACHABLE,
    "publish_queue_full": ExitCode.UNREACHABLE,
    "producer_failed": ExitCode.UNREACHABLE,
    "undelivered": ExitCode.UNREACHABLE,
    "not_that_dialect": ExitCode.USAGE,
    "demo_failed": ExitCode.CHECK_FAILED,
}


def exit_code_of(error: ProcessorError) -> ExitCode:
    """The exit status for an error raised on purpose."""
    for parent in type(error).__mro__:
        known = _BY_CODE.get(str(getattr(parent, "code", "")))
        if known is not None:
            return known
    return ExitCode.CHECK_FAILED
