"""What came of an executed call, as published to those who wait for it."""

from typing import Literal

from processor.core._record import record
from processor.core.identity import CallKey

ResultState = Literal["succeeded", "failed", "denied", "cancelled", "expired", "in_doubt", "held"]
#: Which key a caller uses next: the same one, a new one, or none at all.
Retry = Literal["same_key", "new_key", "never"]


@record
class CallResult:
    """The ledger's answer for one call. `replayed` marks a repetition: nothing ran again."""

    key: CallKey
    tool: str
    state: ResultState
    retry: Retry
    body: bytes | None = None
    error_class: str | None = None
    replayed: bool = False
