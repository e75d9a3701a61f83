"""What a consumer's client does on its own thread: join, sync, heartbeat, tell the application.

Rules:
    Cooperative: a member keeps what it owns while it joins. What it must give up is revoked first,
    then what is new is assigned, be it nothing, then it joins again (KIP-429).
    Callbacks are only queued here; the application serves them inside `poll` and `consume`.
    A member that was thrown out, or heard of nobody for its session, has lost its partitions.
"""

# ruff: noqa: SLF001 - the client's own error codes are public, their names begin with an underscore.

from collections import deque
from typing import Final, Literal, NamedTuple

from processor.core._record import record
from processor.runtime.kafka import KafkaError, KafkaException, kafka_error
from processor.testing.groups import NO_GENERATION, GroupCoordinator, GroupMetadata, Joining
from processor.testing.host import Host

Stage = Literal["out", "joining", "syncing", "telling", "steady", "closed"]
#: How often the client's thread looks after a group that waits for somebody.
HEARTBEAT_MS: Final = 3_000


class Notice(NamedTuple):
    """A callback that the application has to be given."""

    kind: Literal["assign", "revoke", "lost"]
    partitions: frozenset[int]


@record
class MemberSettings:
    """Who a consumer is in its group. Times in milliseconds."""

    group: str
    instance_id: str | None
    session_ms: int
    poll_interval_ms: int


class Membership:
    """One consumer's part in one group; `owned` is what the application has been given."""

    def __init__(self, host: Host, settings: MemberSettings, topic: str) -> None:
        self._host = host
        self._settings = settings
        self.topic = topic
        self.member_id = ""
        self.generation = NO_GENERATION
        self.owned: frozenset[int] = frozenset()
        self.notices: deque[Notice] = deque()
        self.fatal: KafkaError | None = None
        #: An error to hand to the application once.
        self.error: KafkaError | None = None
        self.polled_ms = host.cluster.now_ms
        self.polling = False
        self._stage: Stage = "out"
        self._heard_ms = host.cluster.now_ms
        self._again = False
        self._owned_since = NO_GENERATION

    @property
    def metadata(self) -> GroupMetadata:
        """Who this member is now."""
        settings = self._settings
        return GroupMetadata(settings.group, self.generation, self.member_id, settings.instance_id)

    @property
    def group(self) -> GroupCoordinator:
        """The coordinator's side."""
        return self._host.cluster.group(self._settings.group)

    # --- the client's own thread ---------------------------------------------------------------

    def work(self) -> None:
        """Go on as far as possible now."""
        if not self._host.running or self._stage == "closed" or self.fatal is not None:
            return
        if self._timed_out():
            return
        if not self._host.reachable or self._host.cluster.coordinators_away:
            return
        try:
            while self._advance():
                pass
            self._heard_ms = self._host.cluster.now_ms
        except KafkaException as e:
            self._judge(kafka_error(e))

    def next_due_ms(self) -> int | None:
        """When this member must be heard of again."""
        if not self._host.running or self._stage in ("closed", "out") or self.fatal is not None:
            return None
        return self._host.cluster.now_ms + HEARTBEAT_MS

    def _advance(self) -> bool:
        group = self.group
        if self._stage == "out":
            self.member_id = group.join(self.member_id, self._joining())
            self._stage = "joining"
            return True
        if self._stage == "joining":
            generation = group.joined(self.member_id)
            if generation is None:
                return False
            self.generation = generation
            self._stage = "syncing"
            return True
        if self._stage == "syncing":
            assigned = group.sync(self.member_id, self.generation)
            if assigned is None:
                return False
            self._take(assigned)
            return False
        group.heartbeat(self.member_id, self.generation)
        return False

    def _joining(self) -> Joining:
        settings = self._settings
        return Joining(
            self.topic,
            settings.instance_id,
            self.owned,
            self._owned_since,
            settings.session_ms,
            settings.poll_interval_ms,
        )

    def _take(self, assigned: frozenset[int]) -> None:
        self._owned_since = self.generation
        revoked, added = self.owned - assigned, assigned - self.owned
        if revoked:
            self.notices.append(Notice("revoke", revoked))
            self._again = True
        self.notices.append(Notice("assign", added))
        self._stage = "telling"

    def _judge(self, error: KafkaError) -> None:
        """What librdkafka does about an answer of the coordinator."""
        code = error.code()
        if code == KafkaError.FENCED_INSTANCE_ID:
            text = f"Fatal error: {error.name()}: static consumer fenced by another one"
            self.fatal = KafkaError(KafkaError._FATAL, text)
            return
        if code == KafkaError.REBALANCE_IN_PROGRESS:
            if self._stage != "telling":
                self._stage = "out"
                self.work()
            return
        if code == KafkaError.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self._lose()

    def _lose(self) -> None:
        """Another generation went on without this member.

        The client says nothing of it while callbacks of a rebalance are under way: it then joins
        again as if it owned what it had, and what it does not get back is revoked, not lost.
        """
        if self._stage == "telling":
            return
        self.generation = NO_GENERATION
        self._stage = "out"
        if self.owned:
            self.notices.append(Notice("lost", self.owned))
            self._stage = "telling"
            self._again = True
        else:
            self.work()

    def _timed_out(self) -> bool:
        """True when the member has taken itself out of the group."""
        now_ms, settings = self._host.cluster.now_ms, self._settings
        if self._stage in ("out", "telling", "closed"):
            return False
        if not self.polling and now_ms - self.polled_ms > settings.poll_interval_ms:
            self.error = KafkaError(KafkaError._MAX_POLL_EXCEEDED, "the application did not poll")
            if self._host.reachable and settings.instance_id is None:
                self.group.leave(self.member_id)
            self.member_id = ""
            self._lose()
            return True
        if now_ms - self._heard_ms > settings.session_ms:
            self._heard_ms = now_ms
            self.member_id = ""
            self._lose()
            return True
        return False

    # --- the application's side ----------------------------------------------------------------

    def told(self) -> None:
        """The application has served a notice."""
        if self.notices or self._stage != "telling":
            return
        self._stage = "out" if self._again else "steady"
        self._again = False

    def close(self) -> None:
        """Go; a static member is only not heard of any more."""
        if self._host.reachable and self._settings.instance_id is None and self.member_id:
            self.group.leave(self.member_id)
        self._stage = "closed"
