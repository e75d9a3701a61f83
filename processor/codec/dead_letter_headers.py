"""Headers of a dead letter: where the original lies, and why it was refused."""

from processor.codec.dead_letter_codes import Undecodable
from processor.codec.headers import Headers, cloudevents_headers, position_id
from processor.core.canonical import sha256


def dead_letter_headers(
    writer: str, topic: str, partition: int | None, offset: int | None, refusal: Undecodable
) -> Headers:
    """The place, the code and the detail, which quotes no content. A new list each time."""
    place = position_id(topic, partition or 0, offset or 0)
    return [
        *cloudevents_headers(place, writer, "toolcall.dead_letter"),
        ("origin_topic", topic.encode()),
        ("origin_partition", str(partition).encode()),
        ("origin_offset", str(offset).encode()),
        ("error_code", refusal.code.encode()),
        ("error_detail", refusal.detail.encode()),
    ]


def left_out_headers(value: bytes | None) -> Headers:
    """For a value that is too large to be copied: its size and digest."""
    data = value or b""
    return [
        ("value_bytes", str(len(data)).encode()),
        ("value_sha256", sha256(data).hex().encode()),
    ]
