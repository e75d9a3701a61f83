"""Every bound of the fold, with its default and why it has that value.

Rules:
    Each limit is enforced while reading, before memory is spent on what passes it.
    The limits are part of the fold: two owners of one topic must run with the same ones.
"""

from typing import Final

from processor.core._record import record
from processor.core.errors import Misuse

#: Ids are opaque and may be long (gateways prefix them), but a key is repeated on every record.
ID_BYTES_MAX: Final = 128
#: Four ids of the longest kind, every byte percent-encoded, and the three slashes.
KEY_BYTES_MAX: Final = 4 * 3 * ID_BYTES_MAX + 3
#: Terminal events of one call, on top of its fragments; dialects send up to three.
ENDS_MAX: Final = 16
#: A completed record must fit the default 1 MiB of a topic with its identity and evidence.
ARGUMENTS_BYTES_CEILING: Final = 768 * 1024
#: More fragments than this would be less than a byte each of the largest arguments text.
FRAGMENTS_CEILING: Final = ARGUMENTS_BYTES_CEILING


@record
class Limits:
    """Bounds of one partition's fold. Bytes are raw bytes, times are log time in milliseconds.

    Raises: `Misuse` from `checked()` when two limits contradict each other.
    """

    arguments_bytes_max: int = 256 * 1024
    fragments_max: int = 65_536
    depth_max: int = 64
    open_calls_max: int = 100_000
    linger_ms: int = 10_000

    def checked(self) -> "Limits":
        """Return these limits, or refuse the contradictory ones by name."""
        if not 0 < self.arguments_bytes_max <= ARGUMENTS_BYTES_CEILING:
            raise Misuse(
                f"limits.arguments_bytes_max must be 1 to {ARGUMENTS_BYTES_CEILING},"
                f" not {self.arguments_bytes_max}: a completed record must fit its topic"
            )
        if self.fragments_max > FRAGMENTS_CEILING:
            raise Misuse(
                f"limits.fragments_max must be at most {FRAGMENTS_CEILING}, not {self.fragments_max}"
            )
        for name in ("fragments_max", "depth_max", "open_calls_max", "linger_ms"):
            value = getattr(self, name)
            if value < 1:
                raise Misuse(f"limits.{name} must be at least 1, not {value}")
        return self
