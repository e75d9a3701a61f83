"""What travels with every offset commit: enough to build the state again, and to refuse a wrong log.

Rules:
    The metadata moves in the same transaction as the offset and the outputs, so the three agree.
    `low` is where the re-fold begins, `time` the log time just before it.
    A recreated topic has another id and a grown one another partition count; both are refused.
    The broker keeps at most 4,096 bytes (`offset.metadata.max.bytes`); this text has about 100.
"""

import json
from typing import Final, cast

from processor.core._record import record

METADATA_VERSION: Final = 1


class MetadataError(ValueError):
    """The metadata of a committed offset is not ours; the text says what is wrong with it."""


@record
class OffsetMetadata:
    """Parsed metadata of one committed offset. Offsets are the topic's, times epoch milliseconds."""

    fold: int
    low: int
    log_time_ms: int
    partitions: int
    topic_id: str

    def encode(self) -> str:
        """The text that is committed."""
        return json.dumps(
            {
                "v": METADATA_VERSION,
                "fold": self.fold,
                "low": self.low,
                "time": self.log_time_ms,
                "parts": self.partitions,
                "topic": self.topic_id,
            },
            separators=(",", ":"),
        )


def decode_metadata(text: str) -> OffsetMetadata:
    """Read the metadata back. Raises: `MetadataError`."""
    try:
        fields = json.loads(text)
    except ValueError as e:
        raise MetadataError("it is not JSON") from e
    if not isinstance(fields, dict):
        raise MetadataError("it is not a JSON object")
    fields = cast("dict[str, object]", fields)
    if fields.get("v") != METADATA_VERSION:
        raise MetadataError(f"its version is not {METADATA_VERSION}")
    return OffsetMetadata(
        fold=_integer(fields, "fold"),
        low=_integer(fields, "low"),
        log_time_ms=_integer(fields, "time"),
        partitions=_integer(fields, "parts"),
        topic_id=_text(fields, "topic"),
    )


def _integer(fields: dict[str, object], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:
        raise MetadataError(f"its field {name} is no integer")
    return value


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise MetadataError(f"its field {name} is no text")
    return value
