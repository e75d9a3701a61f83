"""The terms under which a fold decides: limits, the tools' rules, and the release setting.

Rules:
    A re-fold of records that were already decided uses the terms of that time: with others it could
    decide otherwise, and what it says is muted, so an outcome would be lost or come twice.
    `TermsMark` is what a commit says about its terms; the catalogue itself is named by its digest.
"""

from processor.core._record import record
from processor.core.gate import Rules
from processor.core.limits import Limits


@record
class TermsMark:
    """Terms as far as they can be written down in a commit."""

    catalogue_digest: str | None
    limits: Limits
    wait_for_response: bool


@record
class Terms:
    """What a fold decides by. With `wait_for_response` every class waits for the response's end."""

    limits: Limits
    rules: Rules
    wait_for_response: bool = False

    @property
    def mark(self) -> TermsMark:
        """What a commit says about these terms."""
        return TermsMark(self.rules.digest, self.limits, self.wait_for_response)
