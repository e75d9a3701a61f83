"""The consumer, with the names and the errors of the client's `Consumer`.

Rules:
    `committed` asks for stable offsets: it waits while a transaction may still move them.
    A position outside of the log is an error message, never a jump (auto.offset.reset=error).
    Rebalance callbacks run inside `poll`, `consume` and `close`, on the caller's thread.
"""

# ruff: noqa: SLF001 - the client's own error codes are public, their names begin with an underscore.

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from processor.runtime.kafka import KafkaError, KafkaException, TopicPartition
from processor.runtime.restore import NO_OFFSET
from processor.testing.errors import Blocked, refused
from processor.testing.groups import NO_GENERATION, GroupMetadata
from processor.testing.host import Host
from processor.testing.log import SimulatedMessage
from processor.testing.membership import MemberSettings, Membership, Notice

T = TypeVar("T")
Callback = Callable[["SimulatedConsumer", list[TopicPartition]], None]
#: What `position` says before the first record of a partition was handed out.
NO_POSITION = -1001
_LOCAL_S = 10.0
_FOR_EVER_MS = 3_600_000
#: Waits below this have a reason of their own, such as a commit that is due.
_WORTH_MS = 100


class SimulatedConsumer:
    """One consumer; `config` takes the client's own names, the unknown ones are passed over."""

    def __init__(
        self,
        host: Host,
        config: Mapping[str, object],
        *,
        batch: Callable[[int], int] = lambda size: size,
        idle_ms: int = 0,
    ) -> None:
        self._host = host
        self._config = config
        #: How many records a `consume` hands out at most, given how many were asked for.
        self._batch = batch
        #: A longest wait below this is made as long as this: a machine may oversleep, and a schedule
        #: with fewer turns runs sooner.
        self._idle_ms = idle_ms
        self._on_error = config.get("error_cb")
        self._committed_only = config.get("isolation.level", "read_committed") == "read_committed"
        self._tells_end = bool(config.get("enable.partition.eof"))
        self._group = str(config.get("group.id", ""))
        instance_id = config.get("group.instance.id")
        self._instance_id = None if instance_id is None else str(instance_id)
        self._membership: Membership | None = None
        self._callbacks: dict[str, Callback | None] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._handed: dict[tuple[str, int], int] = {}
        self._paused: set[tuple[str, int]] = set()
        self._at_end: set[tuple[str, int]] = set()
        self._turn = 0
        self._fatal_told = False
        self._closed = False

    # --- the client's own thread ---------------------------------------------------------------

    def work(self) -> None:
        """Do what the client does beside the application's calls."""
        if self._membership is not None:
            self._membership.work()

    def next_due_ms(self) -> int | None:
        """When it has something to do by itself."""
        return None if self._membership is None else self._membership.next_due_ms()

    # --- group ---------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Join the group for one topic."""
        config = self._config
        settings = MemberSettings(
            self._group,
            self._instance_id,
            int(str(config.get("session.timeout.ms", 45_000))),
            int(str(config.get("max.poll.interval.ms", 300_000))),
        )

        def join() -> None:
            self._callbacks = {
                "assign": on_assign,
                "revoke": on_revoke,
                "lost": on_lost or on_revoke,
            }
            self._membership = Membership(self._host, settings, topics[0])
            self._host.cluster.attach(self)

        self._host.request("subscribe", join, remote=False)

    def memberid(self) -> str:
        """Member id of the group; empty while it has none."""
        return "" if self._membership is None else self._membership.member_id

    def consumer_group_metadata(self) -> GroupMetadata:
        """Who this consumer is now."""

        def metadata() -> GroupMetadata:
            if self._membership is not None:
                return self._membership.metadata
            return GroupMetadata(self._group, NO_GENERATION, "", self._instance_id)

        return self._host.request("consumer_group_metadata", metadata, remote=False)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Stable committed offsets with their metadata; -1001 where there is none."""
        group = self._host.cluster.group(self._group)

        def ask() -> list[TopicPartition]:
            places = [(tp.topic, tp.partition) for tp in partitions]
            if self._committed_only and not all(group.is_stable(p) for p in places):
                raise Blocked(lambda: all(group.is_stable(p) for p in places))
            found: list[TopicPartition] = []
            for topic, partition in places:
                offset = group.offsets.get((topic, partition))
                if offset is None:
                    found.append(TopicPartition(topic, partition, NO_OFFSET))
                else:
                    found.append(
                        TopicPartition(topic, partition, offset.offset, metadata=offset.metadata)
                    )
            return found

        return self._remote("committed", ask, timeout)

    # --- assignment ----------------------------------------------------------------------------

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions and no others, outside of any group."""

        def replace() -> None:
            self._positions.clear()
            self._handed.clear()
            self._at_end.clear()
            self._add(partitions)

        self._host.request("assign", replace, remote=False)

    def unassign(self) -> None:
        """Read nothing any more."""
        self.assign([])

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions too, each from its offset."""

        def add() -> None:
            if any((tp.topic, tp.partition) in self._positions for tp in partitions):
                raise refused(KafkaError._CONFLICT, "it is assigned already")
            self._add(partitions)

        self._host.request("incremental_assign", add, remote=False)

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop to read these partitions."""

        def remove() -> None:
            places = [(tp.topic, tp.partition) for tp in partitions]
            if any(place not in self._positions for place in places):
                raise refused(KafkaError._INVALID_ARG, "it is not assigned")
            for place in places:
                self._forget(place)

        self._host.request("incremental_unassign", remove, remote=False)

    def _add(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            self._positions[tp.topic, tp.partition] = tp.offset
        if self._membership is not None:
            self._membership.owned |= {tp.partition for tp in partitions}

    def _forget(self, place: tuple[str, int]) -> None:
        if self._membership is not None:
            self._membership.owned -= {place[1]}
        for of_place in (self._positions, self._handed):
            of_place.pop(place, None)
        self._at_end.discard(place)
        self._paused.discard(place)

    def assignment(self) -> list[TopicPartition]:
        """What is read now."""
        return [TopicPartition(topic, partition) for topic, partition in sorted(self._positions)]

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """One above the last record handed out; -1001 before the first."""
        return [
            TopicPartition(
                tp.topic, tp.partition, self._handed.get((tp.topic, tp.partition), NO_POSITION)
            )
            for tp in partitions
        ]

    def seek(self, partition: TopicPartition) -> None:
        """Go on reading from another offset."""
        place = (partition.topic, partition.partition)
        if place not in self._positions:
            raise refused(KafkaError._STATE, "it is not assigned")
        self._positions[place] = partition.offset
        self._at_end.discard(place)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Hand out nothing of these partitions."""
        self._paused.update((tp.topic, tp.partition) for tp in partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Hand out records of these partitions again."""
        self._paused.difference_update((tp.topic, tp.partition) for tp in partitions)

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002 - the client's own signature
    ) -> tuple[int, int]:
        """First offset, and the end as this consumer's isolation level sees it."""
        del cached

        def ask() -> tuple[int, int]:
            log = self._host.cluster.log(partition.topic, partition.partition)
            end = log.stable_offset if self._committed_only else log.end_offset
            return log.start_offset, end

        return self._remote("get_watermark_offsets", ask, timeout)

    # --- reading -------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> SimulatedMessage | None:
        """Serve callbacks, then hand out one record or event, waiting up to `timeout` seconds."""
        found = self._read("poll", 1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[SimulatedMessage]:
        """Serve callbacks, then hand out up to `num_messages`."""
        return self._read("consume", num_messages, timeout)

    def _read(self, call: str, size: int, timeout: float) -> list[SimulatedMessage]:
        if self._closed:
            raise RuntimeError("Consumer closed")
        member = self._membership
        if member is not None:
            member.polling = True
        try:
            size = self._host.request(call, lambda: min(size, self._batch(size)), remote=False)
            found = self._served(size)
            if not found and timeout:
                limit_ms = _FOR_EVER_MS if timeout < 0 else math.ceil(timeout * 1000)
                if limit_ms >= _WORTH_MS:
                    limit_ms = max(limit_ms, self._idle_ms)
                self._host.wait(self._has_something, limit_ms)
                found = self._served(size)
            return found
        finally:
            if member is not None:
                member.polling = False
                member.polled_ms = self._host.cluster.now_ms

    def _has_something(self) -> bool:
        member = self._membership
        if member is not None and (member.notices or member.error):
            return True
        if member is not None and member.fatal and not self._fatal_told:
            return True
        return self._host.reachable and any(self._has_next(place) for place in self._positions)

    def _served(self, size: int) -> list[SimulatedMessage]:
        """Callbacks first, errors next, records last."""
        member = self._membership
        if member is not None:
            while member.notices:
                self._serve(member, member.notices.popleft())
                member.told()
            errors = self._errors_of(member)
            if errors:
                return errors
            if member.fatal is not None:
                return []
        return self._fetched(size) if self._host.reachable else []

    def _errors_of(self, member: Membership) -> list[SimulatedMessage]:
        error, member.error = member.error, None
        if error is None and member.fatal is not None and not self._fatal_told:
            self._fatal_told = True
            error = member.fatal
            if callable(self._on_error):
                self._on_error(error)
        return [] if error is None else [SimulatedMessage("", -1, NO_POSITION, error=error)]

    def _serve(self, member: Membership, notice: Notice) -> None:
        partitions = [TopicPartition(member.topic, p) for p in sorted(notice.partitions)]
        callback = self._callbacks[notice.kind]
        if callback is not None:
            callback(self, partitions)
        elif notice.kind == "assign":
            self._add(partitions)
        if notice.kind != "assign":
            for tp in partitions:
                self._forget((tp.topic, tp.partition))

    def _fetched(self, size: int) -> list[SimulatedMessage]:
        """Records of the partitions in turn, whole runs of each as fetches bring them."""
        places = [p for p in sorted(self._positions) if p not in self._paused]
        if not places:
            return []
        self._turn += 1
        first = self._turn % len(places)
        found: list[SimulatedMessage] = []
        for place in places[first:] + places[:first]:
            if len(found) >= size:
                break
            self._fetch(place, size, found)
        return found

    def _fetch(self, place: tuple[str, int], size: int, found: list[SimulatedMessage]) -> None:
        log = self._host.cluster.log(*place)
        position = self._positions[place]
        if not log.start_offset <= position <= log.end_offset:
            del self._positions[place]
            text = f"offset {position} is out of range and no reset policy is set"
            error = KafkaError(KafkaError._AUTO_OFFSET_RESET, text)
            found.append(SimulatedMessage(*place, position, error=error))
            return
        end = log.stable_offset if self._committed_only else log.end_offset
        for message in log.read(position, committed=self._committed_only):
            if len(found) >= size:
                return
            found.append(message)
            self._positions[place] = self._handed[place] = message.offset() + 1
            self._at_end.discard(place)
        # Records that nobody sees, behind the last one that somebody does.
        self._positions[place] = max(self._positions[place], end)
        if self._tells_end and place not in self._at_end and len(found) < size:
            self._at_end.add(place)
            error = KafkaError(KafkaError._PARTITION_EOF, "the end for now")
            found.append(SimulatedMessage(*place, self._positions[place], error=error))

    def _has_next(self, place: tuple[str, int]) -> bool:
        """True when there is something to hand out of `place`."""
        if place in self._paused:
            return False
        log = self._host.cluster.log(*place)
        position = self._positions[place]
        if not log.start_offset <= position <= log.end_offset:
            return True
        if self._tells_end and place not in self._at_end:
            return True
        return next(log.read(position, committed=self._committed_only), None) is not None

    def close(self) -> None:
        """Serve the revocation of everything, then go."""

        def leave() -> None:
            member = self._membership
            if member is None or self._closed:
                return
            if member.owned and member.fatal is None:
                self._serve(member, Notice("revoke", member.owned))
            member.close()
            self._host.cluster.detach(self)

        self._host.request("close", leave, remote=False)
        self._closed = True

    def _remote(self, call: str, effect: Callable[[], T], timeout: float) -> T:
        limit_s = _LOCAL_S if timeout < 0 else timeout
        member = self._membership
        if member is not None and member.fatal is not None:
            raise KafkaException(member.fatal)
        return self._host.request(call, effect, int(limit_s * 1000))
