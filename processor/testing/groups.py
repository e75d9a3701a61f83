"""The group coordinator of the classic protocol: generations, static members, offsets.

Rules:
    A group is `empty`, `preparing` (waits for its members to join), `completing` (waits for the
    leader's assignment) or `stable`.
    A static member that comes back under a new member id takes the place of the old one, which is
    fenced; in a stable group it gets its stored assignment and no rebalance begins (KIP-345).
    A member that is silent for its session is removed; one that waits for an answer is not silent.
    A transactional commit is refused for a wrong generation or member (KIP-447), but one without
    generation, member id and instance id is taken: such metadata fences nothing.
    Offsets of a transaction count when it has ended here; until then they are unstable.
"""

from collections.abc import Callable
from typing import Final, Literal

from processor.core._record import record
from processor.runtime.kafka import KafkaError
from processor.testing.assignor import Claim, assign
from processor.testing.errors import refused

State = Literal["empty", "preparing", "completing", "stable"]
Place = tuple[str, int]

NO_GENERATION: Final = -1


@record
class Offset:
    """A committed offset with its metadata."""

    offset: int
    metadata: str


@record
class GroupMetadata:
    """Who a consumer is; what `consumer_group_metadata` hands to the producer."""

    group: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


@record
class Joining:
    """What a member asks for when it joins. Times in milliseconds."""

    topic: str
    instance_id: str | None
    owned: frozenset[int]
    #: The generation that gave it what it says it owns.
    owned_since: int
    session_ms: int
    rebalance_ms: int


class Member:
    """A member as the coordinator sees it."""

    def __init__(self, member_id: str, joining: Joining, now_ms: int) -> None:
        self.member_id = member_id
        self.joining = joining
        self.heard_ms = now_ms
        #: Has asked to join the generation that is being prepared.
        self.joined = False
        self.assigned: frozenset[int] = frozenset()


class GroupCoordinator:
    """One group. Members ask; whoever must wait asks again when `version` has changed."""

    def __init__(
        self, name: str, partitions_of: Callable[[str], int], now_ms: Callable[[], int]
    ) -> None:
        self.name = name
        self._partitions_of = partitions_of
        self._now_ms = now_ms
        self.state: State = "empty"
        self.generation = 0
        self.members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._fenced: set[str] = set()
        self._leader = ""
        self._numbers = 0
        self._prepare_until_ms = 0
        #: Grows with every change that a waiting member may be waiting for.
        self.version = 0
        self.offsets: dict[Place, Offset] = {}
        self._pending: dict[int, dict[Place, Offset]] = {}

    # --- membership ----------------------------------------------------------------------------

    def join(self, member_id: str, joining: Joining) -> str:
        """Ask to join; returns the member id. `joined` tells when the generation is there."""
        if member_id:
            self._check_member(member_id)
            member = self.members[member_id]
            changed = member.joining.owned != joining.owned or member_id == self._leader
            member.joining = joining
        else:
            member = self._enter(joining)
            changed = True
            if joining.instance_id is not None:
                changed = self._replace(joining.instance_id, member)
        member.heard_ms = self._now_ms()
        if self.state == "stable" and not changed:
            return member.member_id
        if self.state != "preparing":
            self._prepare()
        member.joined = True
        self._complete_join()
        return member.member_id

    def _enter(self, joining: Joining) -> Member:
        self._numbers += 1
        name = joining.instance_id or "dynamic"
        member = Member(f"{name}-{self._numbers}", joining, self._now_ms())
        self.members[member.member_id] = member
        return member

    def _replace(self, instance_id: str, member: Member) -> bool:
        """Put `member` in the place of the static one of that name; False if nothing changes."""
        earlier_id = self._static.get(instance_id)
        self._static[instance_id] = member.member_id
        if earlier_id is None:
            return True
        earlier = self.members.pop(earlier_id)
        self._fenced.add(earlier_id)
        self.version += 1
        member.assigned = earlier.assigned
        if self._leader == earlier_id:
            self._leader = member.member_id
        return self.state != "stable"

    def joined(self, member_id: str) -> int | None:
        """The generation that a joining member is in, None while it waits."""
        self._check_member(member_id)
        return self.generation if self.state in ("completing", "stable") else None

    def sync(self, member_id: str, generation: int) -> frozenset[int] | None:
        """The member's assignment, None while it waits for the leader's."""
        self._check_generation(member_id, generation)
        if self.state == "preparing":
            raise refused(KafkaError.REBALANCE_IN_PROGRESS, "join again")
        if self.state == "completing":
            if member_id != self._leader:
                return None
            self._assign()
        return self.members[member_id].assigned

    def _assign(self) -> None:
        topic = self.members[self._leader].joining.topic
        claims = {
            m.member_id: Claim(m.joining.owned, m.joining.owned_since)
            for m in sorted(self.members.values(), key=_member_order)
        }
        for member_id, given in assign(claims, self._partitions_of(topic)).items():
            self.members[member_id].assigned = given
        self.state = "stable"
        self.version += 1

    def heartbeat(self, member_id: str, generation: int) -> None:
        """Say that a member lives. Raises: `KafkaException` telling it to join again, or why not."""
        self._check_generation(member_id, generation)
        self.members[member_id].heard_ms = self._now_ms()
        if self.state == "preparing":
            raise refused(KafkaError.REBALANCE_IN_PROGRESS, "join again")

    def leave(self, member_id: str) -> None:
        """A dynamic member goes; static ones just stop being heard of (KIP-345)."""
        if member_id in self.members:
            self._remove(member_id)

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        name = member.joining.instance_id
        if name is not None and self._static.get(name) == member_id:
            del self._static[name]
        self.version += 1
        if not self.members:
            self.state, self._leader = "empty", ""
            return
        if self.state in ("stable", "completing"):
            self._prepare()
        self._complete_join()

    def _prepare(self) -> None:
        self.state = "preparing"
        self.version += 1
        for member in self.members.values():
            member.joined = False
        longest_ms = max(m.joining.rebalance_ms for m in self.members.values())
        self._prepare_until_ms = self._now_ms() + longest_ms

    def _complete_join(self) -> None:
        if self.state != "preparing" or not all(m.joined for m in self.members.values()):
            return
        self.generation += 1
        self.state = "completing"
        self.version += 1
        if self._leader not in self.members:
            self._leader = min(self.members.values(), key=_member_order).member_id
        for member in self.members.values():
            member.heard_ms = self._now_ms()

    # --- time ----------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When a session or the preparation of a generation ends."""
        due = [self._session_end_ms(m) for m in self.members.values() if not self._waits(m)]
        if self.state == "preparing":
            due.append(self._prepare_until_ms)
        return min(due, default=None)

    def tick(self) -> None:
        """Remove the silent; go on without dynamic members that do not join in time."""
        now_ms = self._now_ms()
        for member in list(self.members.values()):
            if not self._waits(member) and self._session_end_ms(member) <= now_ms:
                self._remove(member.member_id)
        if self.state == "preparing" and self._prepare_until_ms <= now_ms:
            self._stop_waiting()

    def load(self) -> None:
        """Another broker coordinates from now on: all sessions begin again."""
        for member in self.members.values():
            member.heard_ms = self._now_ms()

    def _stop_waiting(self) -> None:
        for member in list(self.members.values()):
            if member.joined:
                continue
            if member.joining.instance_id is None:
                self._remove(member.member_id)
        if self.state == "preparing":
            if any(m.joined for m in self.members.values()):
                for member in self.members.values():
                    member.joined = True
                self._complete_join()
            else:
                self._prepare_until_ms = self._now_ms() + 1_000

    def _waits(self, member: Member) -> bool:
        return self.state == "preparing" and member.joined

    def _session_end_ms(self, member: Member) -> int:
        return member.heard_ms + member.joining.session_ms

    # --- offsets -------------------------------------------------------------------------------

    def add_pending(
        self, transaction: int, metadata: GroupMetadata, offsets: dict[Place, Offset]
    ) -> None:
        """Take offsets of a transaction. Raises: `KafkaException` for a member that is none."""
        self.check_commit(metadata)
        self._pending.setdefault(transaction, {}).update(offsets)

    def check_commit(self, metadata: GroupMetadata) -> None:
        """Refuse a commit of somebody who is no member of this generation."""
        anonymous = (
            metadata.generation == NO_GENERATION
            and not metadata.member_id
            and metadata.instance_id is None
        )
        if anonymous:
            return
        instance_id = metadata.instance_id
        if instance_id is not None:
            known = self._static.get(instance_id)
            if known is None:
                raise refused(KafkaError.UNKNOWN_MEMBER_ID, "no such member", abort=True)
            if known != metadata.member_id:
                raise refused(KafkaError.FENCED_INSTANCE_ID, "replaced", abort=True)
        elif metadata.member_id not in self.members:
            raise refused(KafkaError.UNKNOWN_MEMBER_ID, "no such member", abort=True)
        if metadata.generation != self.generation:
            raise refused(KafkaError.ILLEGAL_GENERATION, "an old generation", abort=True)

    def end_transaction(self, transaction: int, *, committed: bool) -> None:
        """Make the pending offsets of `transaction` count, or forget them."""
        pending = self._pending.pop(transaction, {})
        if committed:
            self.offsets.update(pending)
        self.version += 1

    def is_stable(self, place: Place) -> bool:
        """True when no transaction may still move the offset of `place`."""
        return all(place not in pending for pending in self._pending.values())

    # --- checks --------------------------------------------------------------------------------

    def _check_member(self, member_id: str) -> None:
        if member_id in self._fenced:
            raise refused(
                KafkaError.FENCED_INSTANCE_ID, "fenced: another one has this name", fatal=True
            )
        if member_id not in self.members:
            raise refused(KafkaError.UNKNOWN_MEMBER_ID, "no such member")

    def _check_generation(self, member_id: str, generation: int) -> None:
        self._check_member(member_id)
        if generation != self.generation:
            raise refused(KafkaError.ILLEGAL_GENERATION, "an old generation")


def _member_order(member: Member) -> tuple[str, str]:
    return member.joining.instance_id or "~", member.member_id
