"""How a tool says what happened, when it did not simply return.

Rules:
    Returning means that the effect happened. `ToolFailed` means that it definitely did not, and
    `NotSent` that the request never left. Everything else that leaves a tool, a time-out included,
    means that nobody knows; what follows then depends on the effect class.
"""

from processor.core.errors import ProcessorError


class ToolFailed(ProcessorError):
    """The tool ran and definitely said no: settled as failed, never run again under this key.

    `error_class` is a short word of the tool's own; it is stored and published. `result` is the body
    that the caller gets, encoded as a returned value would be. The message is not kept.
    """

    code = "tool_failed"

    def __init__(self, error_class: str = "tool_error", *, result: object = None) -> None:
        super().__init__(error_class)
        self.error_class = error_class
        self.result = result


class NotSent(ProcessorError):
    """The request provably never left: no connection was made (name lookup, refused, TLS failure).

    A read time-out is not that: the request was in flight. The call is tried again after
    `retry_after_s` seconds, whatever its class.
    """

    code = "not_sent"

    def __init__(self, *, retry_after_s: float = 1.0) -> None:
        super().__init__("the request was not sent")
        self.retry_after_s = retry_after_s
