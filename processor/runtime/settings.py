"""Settings of one process of the exactly-once loop, checked as a whole before any client is made.

Rules:
    transaction timeout < session timeout < poll interval, so that a process which lost its
    partitions can no longer commit when another one has taken them over (KIP-447).
    The slot is stable over restarts, never random: a restarted slot aborts its dead self at once.
    With the protocol `consumer` (KIP-848) the session is a setting of the group on the broker; the
    start asks for it and holds it to the same rule.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, Literal

from processor.core._record import field, record
from processor.core.errors import Misuse
from processor.core.expiry import ExpiryLimits
from processor.core.limits import Limits

Start = Literal["earliest", "latest"]
GroupProtocol = Literal["classic", "consumer"]

#: A slot has no hyphen, so that `<group>-<slot>` belongs to one group and one slot only.
SLOT_PATTERN: Final = r"^[A-Za-z0-9._]+$"
#: How far the wall clock may be ahead of the broker's before it counts on an idle partition.
EXPIRY_MARGIN_MS: Final = 10_000
CHECKPOINT_AFTER_MS: Final = 10_000
BUFFERED_BYTES_MAX: Final = 1024 * 1024 * 1024
#: Client settings that the exactly-once loop owns; changing one breaks a promise.
OWNED_CLIENT_SETTINGS: Final = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "client.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "transactional.id",
    }
)


@record
class CommitSettings:
    """When a transaction is made and how long it may take. Times in milliseconds."""

    interval_ms: int = 100
    records_max: int = 50_000
    outputs_max: int = 20_000
    output_bytes_max: int = 32 * 1024 * 1024
    transaction_timeout_ms: int = 8_000
    session_timeout_ms: int = 12_000
    poll_interval_max_ms: int = 60_000


@record
class RuntimeSettings:
    """One process of the consumer group. `start` is what a group without offsets does."""

    bootstrap: str
    input_topic: str
    group: str = "toolcalls-assembler"
    slot: str = "0"
    start: Start | None = None
    accept_reset: bool = False
    group_protocol: GroupProtocol = "classic"
    wait_for_response: bool = False
    #: Small, so that a batch is still in the processor cache when it is folded (measured: +20 %).
    batch_records: int = 500
    value_bytes_max: int = 1024 * 1024
    commit: CommitSettings = field(default_factory=CommitSettings)
    limits: Limits = field(default_factory=Limits)
    expiry: ExpiryLimits = field(default_factory=ExpiryLimits)
    expiry_margin_ms: int = EXPIRY_MARGIN_MS
    #: Log time after which what a key needs is written down; bounds what a restart reads again.
    checkpoint_after_ms: int = CHECKPOINT_AFTER_MS
    #: What open calls may hold before one partition is read at a time (runtime/back_pressure.py).
    buffered_bytes_max: int = BUFFERED_BYTES_MAX
    client: Mapping[str, str] = field(default_factory=dict[str, str])

    def check_session(self, session_ms: int) -> None:
        """Hold the group's session on the broker, in milliseconds, to the rule of the time limits.

        Raises: `Misuse` when a transaction could outlive the session of its process.
        """
        if self.commit.transaction_timeout_ms >= session_ms:
            raise Misuse(
                f"commit.transaction_timeout_ms ({self.commit.transaction_timeout_ms}) must be below"
                f" consumer.session.timeout.ms ({session_ms}) of the group {self.group}. Lower"
                " TOOLCALLS_TRANSACTION_TIMEOUT_MS or raise the group's setting (kafka-configs"
                " --entity-type groups)"
            )

    @property
    def transactional_id(self) -> str:
        """`<group>-<slot>`; the broker lets one live producer at a time use it."""
        return f"{self.group}-{self.slot}"

    def checked(self) -> "RuntimeSettings":
        """Return these settings, or refuse the contradictory ones by name."""
        commit = self.commit
        for name in ("bootstrap", "input_topic", "group", "slot"):
            if not getattr(self, name):
                raise Misuse(f"runtime.{name} is empty")
        if not re.match(SLOT_PATTERN, self.slot):
            raise Misuse("runtime.slot may hold letters, digits, dots and underscores only")
        times = (
            ("transaction_timeout_ms", commit.transaction_timeout_ms),
            ("session_timeout_ms", commit.session_timeout_ms),
            ("poll_interval_max_ms", commit.poll_interval_max_ms),
        )
        for (low_name, low), (high_name, high) in pairwise(times):
            if low >= high:
                raise Misuse(f"commit.{low_name} ({low}) must be below commit.{high_name} ({high})")
        if not 0 < commit.interval_ms < commit.transaction_timeout_ms:
            raise Misuse(
                "commit.interval_ms must be above 0 and below commit.transaction_timeout_ms"
            )
        self._check_least()
        if any(ord(character) < 32 for character in self.group):
            raise Misuse("runtime.group must have no control characters")
        owned = sorted(OWNED_CLIENT_SETTINGS & set(self.client))
        if owned:
            raise Misuse(f"client setting {owned[0]} is owned by the exactly-once loop; remove it")
        self.limits.checked()
        self.expiry.checked()
        return self

    def _check_least(self) -> None:
        for name, least in (("checkpoint_after_ms", 0), ("buffered_bytes_max", 1)):
            if getattr(self, name) < least:
                raise Misuse(f"runtime.{name} must be at least {least}")
