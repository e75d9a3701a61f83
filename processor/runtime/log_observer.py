"""The loop's life as log lines: who owns what, where it began, and how it ended."""

from structlog.stdlib import BoundLogger

from processor.runtime.restore import StartAt
from processor.telemetry.logging import RepeatFilter


class LogObserver:
    """An `Observer` of the loop that writes one line per change of ownership."""

    def __init__(self, logger: BoundLogger, topic: str) -> None:
        self._logger = logger.bind(topic=topic)
        self._repeats = RepeatFilter()

    def assigned(self, partition: int, plan: StartAt) -> None:
        """A partition was taken over."""
        self._logger.info(
            "partition_assigned",
            partition=partition,
            origin=plan.origin,
            low_offset=plan.offset,
            committed_offset=plan.mute_below,
        )

    def restored(self, partition: int, records: int) -> None:
        """A partition has been re-folded."""
        self._logger.info("partition_restored", partition=partition, records_ahead=records)

    def revoked(self, partitions: list[int]) -> None:
        """Partitions were given up."""
        self._logger.info("partitions_revoked", partitions=partitions)

    def committed(self, partitions: int, outputs: int) -> None:
        """Too frequent for a line; metrics count it."""
        del partitions, outputs

    def input_paused(self, partitions: list[int]) -> None:
        """Open calls hold too much: these wait for their turn."""
        self._logger.warning("input_paused", partitions=partitions)

    def input_resumed(self) -> None:
        """All partitions are read again."""
        self._logger.info("input_resumed")

    def without_owner(self, partitions: list[int]) -> None:
        """The group had left partitions to nobody."""
        self._logger.warning("partitions_without_owner", partitions=partitions)

    def client_error(self, name: str) -> None:
        """An error that the client goes on after; repeats are thinned out."""
        total = self._repeats.count(name)
        if total is not None:
            self._logger.warning("kafka_client_error", error=name, seen=total)
