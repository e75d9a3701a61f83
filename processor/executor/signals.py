"""How a tool says what happened, when it did not simply return.

Rules:
    Returning means that the effect happened. `ToolFailed` means that it definitely did not, and
    `NotSent` that the request never left. Everything else that leaves a tool, a time-out included,
    means that nobody knows; what follows then depends on the effect class. `OutcomeUnknown` says that in
    words, and when to try again.
    A tool's own words are stored and logged, so they are words: a text that could quote an argument
    is replaced.
"""

import math
import re
from typing import Final

from processor.core._record import record
from processor.core.errors import ProcessorError

_WORD: Final = re.compile(r"[a-z0-9_]{1,64}")
#: Stored in place of an error class that is no short word.
NOT_A_WORD: Final = "tool_failed"

RETRY_AFTER_S_DEFAULT: Final = 1.0
RETRY_AFTER_S_MAX: Final = 86_400.0


class ToolFailed(ProcessorError):
    """The tool ran and definitely said no: settled as failed, never run again under this key.

    `error_class` is a short word of the tool's own, `[a-z0-9_]{1,64}`; it is stored and published, and
    anything else becomes `tool_failed`. `result` is the body that the caller gets, encoded as a
    returned value would be.
    """

    code = "tool_failed"

    def __init__(self, error_class: str = "tool_error", *, result: object = None) -> None:
        self.error_class = error_word(error_class)
        super().__init__(self.error_class)
        self.result = result


class NotSent(ProcessorError):
    """The request provably never left: no connection was made (name lookup, refused, TLS failure).

    A read time-out is not that: the request was in flight. The call is tried again, whatever its class:
    after `retry_after_s` seconds (0 to 86400, a value outside is brought inside), or, when that is None,
    after a time that grows with every try. `word` says why, as in `OutcomeUnknown`.
    """

    code = "not_sent"

    def __init__(self, word: str = "not_sent", *, retry_after_s: float | None = None) -> None:
        super().__init__("the request was not sent")
        self.word = error_word(word)
        self.retry_after_s = None if retry_after_s is None else bounded_delay_s(retry_after_s)


class OutcomeUnknown(ProcessorError):
    """The request left, and what came of it is not known: no answer, a cut one, or one that leaves it open.

    By its effect class the call runs again or is in doubt; it is never failed. `word` stands in the
    ledger's history. `retry_after_s` as in `NotSent`.
    """

    code = "outcome_unknown"

    def __init__(self, word: str = "unknown", *, retry_after_s: float | None = None) -> None:
        super().__init__("the outcome is not known")
        self.word = error_word(word)
        self.retry_after_s = None if retry_after_s is None else bounded_delay_s(retry_after_s)


@record
class Happened:
    """The other side knows the key: the effect happened. `result` is stored as a returned value would be."""

    result: object = None


@record
class NotHappened:
    """The other side does not know the key."""


def error_word(text: object) -> str:
    """The tool's word, or `tool_failed` for what is none: it may quote what must not be stored."""
    if type(text) is str and _WORD.fullmatch(text):
        return text
    return NOT_A_WORD


def bounded_delay_s(seconds: object) -> float:
    """A delay from 0 to 86400 seconds; what is no number is one second."""
    if not isinstance(seconds, int | float) or (isinstance(seconds, float) and math.isnan(seconds)):
        return RETRY_AFTER_S_DEFAULT
    return float(min(max(seconds, 0), RETRY_AFTER_S_MAX))
