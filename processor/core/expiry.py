"""Which tracked keys have been silent, or have lived, for too long: what the assembler appends.

Rules:
    This only proposes. The fold decides when it reads the event, in log order: an `idle` one applies
    only if nothing came since, so a wrong clock can expire nothing but a call that is silent.
    Every state but CLOSED counts: a rejected or released key too holds the low-water mark until its
    response ends.
"""

from collections.abc import Iterator
from typing import NamedTuple

from processor.core._record import record
from processor.core.assembly import Assembly
from processor.core.call import State
from processor.core.errors import Misuse
from processor.core.events import CallExpired, ExpiryCause


@record
class ExpiryLimits:
    """How long a key may be silent, and may live at all; log time in milliseconds."""

    idle_ttl_ms: int = 5 * 60 * 1000
    max_life_ms: int = 30 * 60 * 1000

    def checked(self) -> "ExpiryLimits":
        """Return these limits, or refuse the contradictory ones by name."""
        if not 0 < self.idle_ttl_ms <= self.max_life_ms:
            raise Misuse(
                f"expiry.idle_ttl_ms ({self.idle_ttl_ms}) must be above 0 and at most"
                f" expiry.max_life_ms ({self.max_life_ms})"
            )
        return self


class Due(NamedTuple):
    """A key that is due, and the event to append for it."""

    key: bytes
    event: CallExpired


def due(assembly: Assembly, time_ms: int, limits: ExpiryLimits) -> Iterator[Due]:
    """The keys that are due at `time_ms`. Cost: linear in the tracked keys, 50 ns each."""
    idle_since_ms = time_ms - limits.idle_ttl_ms
    born_before_ms = time_ms - limits.max_life_ms
    for key, call in assembly.calls.items():
        if call.last_ms > idle_since_ms and call.first_ms > born_before_ms:
            continue
        if call.state is State.CLOSED:
            continue
        cause: ExpiryCause = "max_life" if call.first_ms <= born_before_ms else "idle"
        last_seq = max(call.last_seq, len(call.items) - 1)
        yield Due(key, CallExpired(cause, last_seq))
