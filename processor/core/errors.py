"""Error families: each says what the caller must do, and none carries argument content.

Rules:
    Bad data is an answer (`CallRejected`, `DeadLetter`), never an exception out of the fold.
    Every exception has a stable `code`; its text names what, where and what to do.
    No message quotes an argument value, a key's secret part or a parser's own text.
"""


class ProcessorError(Exception):
    """Root of the errors raised on purpose; `code` is stable and may be matched by machines."""

    code: str = "processor_error"


class Misuse(ProcessorError):
    """A setting or an argument of the caller is wrong; raised at construction, before any work."""

    code = "misuse"


class Transient(ProcessorError):
    """Nothing happened; retry at the same place, bounded, after `retry_after_s` seconds."""

    code = "transient"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Fenced(ProcessorError):
    """Another owner has taken over: abandon the task and commit nothing."""

    code = "fenced"


class Indeterminate(ProcessorError):
    """The effect may have happened: neither retry nor report success, reconcile."""

    code = "indeterminate"


class InvariantViolated(ProcessorError):
    """A bug of ours: the task must stop without committing."""

    code = "invariant_violated"
