"""What a ledger has to answer, written down a second time and as small as possible.

One `Row` is one call. It knows no clock: a lease, a deadline and a window are over when a test says so.
"""

from dataclasses import dataclass
from typing import Final, Literal

from processor.core.outcomes import EffectClass
from processor.ledger.port import UNSURE, CallState, Settled

ENDED: Final = frozenset({"succeeded", "failed", "denied", "cancelled", "expired"})
Failover = Literal["none", "undeclared", "lossless", "lossy"]


@dataclass
class World:
    """What all calls share."""

    failover: Failover = "none"
    pruned_until_ms: int = 0


@dataclass
class Row:
    """One call as the ledger must see it."""

    world: World
    effect: EffectClass
    most: int
    emitted_ms: int
    state: CallState | None = None
    fence: int = 0
    claims: int = 0
    begun: int = 0
    lease: bool = False
    owned: bool = False
    late: bool = False
    window_over: bool = False
    cancel: bool = False
    approved: bool = False
    of_old_primary: bool = False

    @property
    def unsure(self) -> bool:
        """May the effect neither be undone nor be repeated blindly?"""
        return self.effect in UNSURE

    @property
    def lost_tail(self) -> bool:
        """May something of this call have been lost with the old primary?"""
        return self.world.failover == "undeclared" or (
            self.world.failover == "lossy" and self.of_old_primary
        )

    def doubtful(self, *, gone: bool) -> bool:
        """May an effect have happened that must not be repeated?"""
        if self.unsure:
            return self.state == "executing" or self.lost_tail
        return self.effect == "idempotent" and self.begun > 0 and (self.window_over or gone)

    def move(self, state: CallState) -> None:
        """Change the state; only owned states have a lease."""
        self.state = state
        if state not in {"claimed", "executing"}:
            self.lease = self.owned = False

    def claim(self, *, same: bool) -> str:  # noqa: PLR0911 - one return for each verdict
        """The verdict."""
        if self.unsure and self.world.failover == "undeclared":
            return "paused"
        if self.state is None:
            return self._first()
        if not same:
            return "conflict"
        if self.state in ENDED:
            return "replay"
        if self.state in {"held", "in_doubt"}:
            return self.state
        if self.lease:
            return "busy"
        spent = self.begun >= self.most
        if self.doubtful(gone=spent or self.late):
            self.move("in_doubt")
            return "in_doubt"
        if self.late or spent or self.claims >= self.most + 10:
            self.move("expired" if self.late else "failed")
            return "replay"
        self.take()
        return "claimed"

    def _first(self) -> str:
        if self.emitted_ms <= self.world.pruned_until_ms:
            return "expired"
        if self.unsure and self.world.failover == "lossy":
            self.claims = 1
            self.of_old_primary = False
            self.move("in_doubt")
            return "in_doubt"
        self.take()
        return "claimed"

    def take(self) -> None:
        """A new ownership."""
        self.move("claimed")
        self.claims += 1
        self.lease = self.owned = True
        self.of_old_primary = False

    def begin(  # noqa: PLR0911 - one return for each answer
        self, fence: int, *, need_approval: bool
    ) -> tuple[bool, str | None]:
        """The answer of `begin_effect`."""
        if self.state is None or fence != self.fence:
            return False, "fenced"
        if self.state not in {"claimed", "executing"}:
            return False, f"state:{self.state}"
        if self.state == "claimed" and self.cancel:
            return False, "cancelled"
        if self.state == "claimed" and self.late:
            return False, "deadline"
        if not self.lease:
            return False, "lease_lost"
        if self.state == "executing":
            return True, "already_begun"
        if need_approval:
            if not self.approved:
                return False, "approval"
            self.approved = False
        self.state = "executing"
        self.begun += 1
        return True, None

    def finish(self, fence: int, outcome: Settled) -> tuple[bool, str | None]:
        """The answer of `finish`; a refused transactional success is an exception instead."""
        if self.state is None or fence != self.fence:
            return False, "fenced"
        if self.state == outcome:
            return True, "already"
        ran = self.state in {"executing", "in_doubt"} and outcome in {"succeeded", "failed"}
        unrun = self.state == "claimed" and outcome in {"denied", "cancelled", "failed"}
        if not (ran or unrun):
            return False, f"state:{self.state}"
        if unrun and self.begun > 0 and self.effect not in {"read_only", "transactional"}:
            self.move("in_doubt")
            return False, "in_doubt"
        self.move(outcome)
        return True, None

    def release(self, fence: int, *, not_sent: bool) -> CallState | None:
        """The answer of `release`."""
        if fence != self.fence or self.state not in {"claimed", "executing"}:
            return None
        if self.state == "executing" and not_sent:
            self.begun -= 1
        spent = self.begun >= self.most
        if self.begun > 0 and (self.unsure or (self.effect == "idempotent" and spent)):
            self.move("in_doubt")
        else:
            self.move("failed" if spent else "ready")
        return self.state

    def hold(self, fence: int) -> bool:
        """The answer of `hold`."""
        if fence != self.fence or self.state != "claimed":
            return False
        self.move("held")
        return True

    def decide(self, *, yes: bool) -> bool:
        """The answer of `decide`."""
        if self.state != "held" or self.late:
            return False
        self.move("ready" if yes else "denied")
        self.approved = yes
        return True

    def cancelled(self) -> CallState | None:
        """The answer of `cancel`."""
        if self.state is None or self.state in ENDED:
            return self.state
        self.cancel = True
        if self.state in {"held", "ready"} and self.begun == 0:
            self.move("cancelled")
        return self.state

    def resolve(self, to: CallState, *, right_fence: bool) -> bool:
        """The answer of `resolve`."""
        if self.state != "in_doubt" or not right_fence:
            return False
        self.move(to)
        self.of_old_primary = False
        if to == "ready":
            self.begun = 0
        return True

    def sweep(self) -> int:
        """How often the sweep moves this call: given back, and then told that it is too late."""
        moves = 0
        if self.owned and not self.lease:
            moves += 1
            self._swept(late=False)
        undeclared = self.unsure and self.world.failover == "undeclared"
        if self.state in {"held", "ready"} and self.late and not undeclared:
            moves += 1
            self._swept(late=True)
        return moves

    def _swept(self, *, late: bool) -> None:
        spent = self.begun >= self.most
        if self.doubtful(gone=spent or late):
            self.move("in_doubt")
        elif late:
            self.move("expired")
        else:
            self.move("failed" if spent else "ready")
