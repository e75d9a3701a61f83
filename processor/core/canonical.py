"""Digests of arguments: of the raw bytes, and of their one canonical form.

Rules:
    The canonical form is RFC 8785 (JSON Canonicalization Scheme), the only written-down one that
    other languages share. It holds doubles, so a text with a number that a double would change has
    no canonical form here: rounding would make two different calls equal.
"""

import hashlib
import json
from typing import Final

import rfc8785

from processor.core.strict_json import Parsed


def sha256(data: bytes) -> bytes:
    """The 32 bytes of SHA-256 over `data`."""
    return hashlib.sha256(data).digest()


def canonical_bytes(parsed: Parsed) -> bytes:
    """The RFC 8785 form of an exact text. Cost: 2 µs for a small plain one, else about 5 µs."""
    if parsed.plain:
        return _PLAIN_ENCODER.encode(parsed.value).encode()
    return rfc8785.dumps(parsed.value)  # type: ignore[arg-type]  # its alias admits no Decimal


def canonical_sha256(parsed: Parsed) -> bytes | None:
    """SHA-256 of the canonical form, or None when a number cannot be carried exactly."""
    return sha256(canonical_bytes(parsed)) if parsed.exact else None


#: Sorted names, no spaces, the short escapes: for a plain value that is RFC 8785 to the byte, in C.
_PLAIN_ENCODER: Final = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), check_circular=False, allow_nan=False
)
