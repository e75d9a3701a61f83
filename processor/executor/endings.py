"""What the ending of a tool's run means for its call, before the effect class has its say.

Rules:
    Returned = succeeded; `ToolFailed` = failed; `NotSent` = nothing happened; anything else = unknown,
    a value that breaks while it is read included.
"""

from collections.abc import Callable

from processor.core._record import record
from processor.executor.invoke import Ending, Raised, Returned, TimedOut
from processor.executor.raised import why_raised
from processor.executor.results import UNREADABLE, outcome_of
from processor.executor.signals import (
    NotSent,
    OutcomeUnknown,
    ToolFailed,
    bounded_delay_s,
    error_word,
)
from processor.ledger.port import Outcome


@record
class GivenBack:
    """The call is not settled. `delay_s` None: the caller decides how long it waits."""

    why: str
    delay_s: float | None
    not_sent: bool


def meaning(ending: Ending, function: Callable[..., object]) -> Outcome | GivenBack:
    """What to write; `function` is the one that ended."""
    match ending:
        case Returned(value):
            return outcome_of("succeeded", value) or _unknown(UNREADABLE)
        case Raised(ToolFailed() as failed):
            return failed_outcome(failed)
        case Raised((NotSent() | OutcomeUnknown()) as told):
            delay_s = None if told.retry_after_s is None else bounded_delay_s(told.retry_after_s)
            return GivenBack(error_word(told.word), delay_s, isinstance(told, NotSent))
        case Raised(error):
            return _unknown(why_raised(error, function))
        case TimedOut():
            return _unknown("timed_out")


def late_meaning(ending: Returned | Raised) -> Outcome | None:
    """What a tool that outlived its limit proves after all; None when it proves nothing."""
    if isinstance(ending, Returned):
        return outcome_of("succeeded", ending.value)
    return failed_outcome(ending.error) if isinstance(ending.error, ToolFailed) else None


def failed_outcome(error: ToolFailed) -> Outcome:
    """The outcome of a definite no; without its body when that cannot be read."""
    word = error_word(error.error_class)
    without_body = Outcome("failed", error_class=word)
    if error.result is None:
        return without_body
    return outcome_of("failed", error.result, word) or without_body


def _unknown(why: str) -> GivenBack:
    return GivenBack(why, None, not_sent=False)
