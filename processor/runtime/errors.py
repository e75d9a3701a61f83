"""How the loop ends when it cannot go on: one error per exit code.

Rules:
    Nothing is polled after one of these; the process ends and its supervisor starts it again.
"""

from processor.core.errors import ProcessorError


class Unreachable(ProcessorError):
    """Kafka does not answer: check the address, the listener and the network."""

    code = "kafka_unreachable"


class SlotFenced(ProcessorError):
    """Another process runs under the same slot, or this one was away for too long."""

    code = "slot_fenced"


class SlotHeld(SlotFenced):
    """The group still has a member of this slot: it runs, or its session is not over (KIP-848)."""


class ClientFatal(ProcessorError):
    """The Kafka client cannot go on (a fatal error of librdkafka)."""

    code = "client_fatal"


class CommitUnknown(ProcessorError):
    """Nobody answered whether the last transaction was committed; Kafka knows, a restart asks it."""

    code = "commit_unknown"


class CommitRefused(ProcessorError):
    """The broker refused a transaction, which is aborted; a restart reads its input again."""

    code = "commit_refused"


class GenerationPassed(CommitRefused):
    """The group has assigned again since a transaction said who we are; aborted, it may be redone."""


class RestoreRefused(ProcessorError):
    """The committed position does not fit the topic; starting anyway could lose or repeat calls."""

    code = "restore_refused"
