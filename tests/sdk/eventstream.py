"""Frames of `application/vnd.amazon.eventstream`, written as a service writes them.

Rules (the AWS event stream encoding, as botocore's `eventstream.py` reads it):
    A frame is total length, headers length, checksum of the two, headers, payload, checksum of all;
    the numbers are big-endian, the checksums CRC-32. A text header has type 7.
"""

import json
import struct
import zlib
from collections.abc import Mapping

_TEXT_HEADER = 7


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One frame with text headers."""
    head = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack("!II", len(head) + len(payload) + 16, len(head))
    body = prelude + struct.pack("!I", zlib.crc32(prelude)) + head + payload
    return body + struct.pack("!I", zlib.crc32(body))


def frames_of(lines: bytes) -> list[bytes]:
    """The frames of a fixture: one JSON line each, with `event` or `exception` and `payload`."""
    return [_frame_of(json.loads(line)) for line in lines.splitlines() if line.strip()]


def _frame_of(of: Mapping[str, object]) -> bytes:
    kind = "exception" if "exception" in of else "event"
    payload = json.dumps(of["payload"], separators=(",", ":")).encode()
    headers = {
        ":message-type": kind,
        f":{kind}-type": str(of[kind]),
        ":content-type": "application/json",
    }
    return frame(headers, payload)


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return bytes([len(key)]) + key + struct.pack("!BH", _TEXT_HEADER, len(text)) + text
