"""How simulated calls end other than by returning."""

from collections.abc import Callable

from processor.runtime.kafka import KafkaError, KafkaException


class Killed(BaseException):
    """The process is gone: no handler of its code runs anything that reaches the broker."""


class Blocked(Exception):
    """The broker cannot answer yet; the client asks again when `ready` holds."""

    def __init__(self, ready: Callable[[], bool]) -> None:
        super().__init__("not yet")
        self.ready = ready


def refused(
    code: int,
    reason: str,
    *,
    fatal: bool = False,
    retriable: bool = False,
    abort: bool = False,
) -> KafkaException:
    """An exception as the client raises it. `abort`: the transaction must be aborted."""
    return KafkaException(KafkaError(code, reason, fatal, retriable, abort))


def timed_out() -> KafkaException:
    """No answer within the time limit of the call; it may be made again."""
    return refused(KafkaError._TIMED_OUT, "no answer in time", retriable=True)  # noqa: SLF001 - a code
