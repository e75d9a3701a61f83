"""How the executor ends when it cannot go on; a supervisor starts it again.

Rules:
    Nothing is polled after one of these. A restart is safe: the ledger knows what was begun.
"""

from processor.core.errors import ProcessorError


class Unreachable(ProcessorError):
    """Kafka does not answer: check the address, the listener and the network."""

    code = "kafka_unreachable"


class SlotFenced(ProcessorError):
    """Another executor of the group runs under the same slot."""

    code = "slot_fenced"


class ClientFatal(ProcessorError):
    """The Kafka client cannot go on (a fatal error of librdkafka)."""

    code = "client_fatal"


class PositionLost(ProcessorError):
    """No position to go on from: the committed one is gone from the topic, or there never was one."""

    code = "restore_refused"
