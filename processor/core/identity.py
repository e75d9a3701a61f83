"""Who a call is: the call key, its text form, and the idempotency key.

Rules:
    A fragment joins a call only by the full call key; position never links anything.
    key text = tenant/request_id/response_id/call_id, each part percent-encoded for `/`, `%` and
    control characters, UTF-8. One identity has exactly one text form, and the reverse.
    The request id has no `:`; otherwise `a:b` + `c` and `a` + `b:c` would be one idempotency key.
"""

import re
from typing import Final, NamedTuple

from processor.core.limits import ID_BYTES_MAX, KEY_BYTES_MAX

_ENCODED: Final = re.compile(r"[/%\x00-\x1f\x7f]")
_ESCAPE: Final = re.compile(r"%([0-9A-F]{2})")
#: Texts that stand for "no id" in one language or another and became real ids in the field.
_NOT_AN_ID: Final = frozenset({"", "None", "null", "undefined"})


class IdentityError(ValueError):
    """A part of an identity is missing, too long or not allowed; the text names the part only."""


class CallKey(NamedTuple):
    """The identity of one call; hashable and ordered by its parts."""

    tenant: str
    request_id: str
    response_id: str
    call_id: str

    @property
    def idempotency_key(self) -> str:
        """`request_id:call_id`; unique under the tenant, the same for every repetition."""
        return f"{self.request_id}:{self.call_id}"

    def encode(self) -> bytes:
        """The Kafka record key."""
        return "/".join(_ENCODED.sub(_percent, part) for part in self).encode()


def _percent(match: re.Match[str]) -> str:
    return f"%{ord(match.group()):02X}"


def checked_id(name: str, value: str) -> str:
    """Return `value` if it may be an id, else raise `IdentityError` naming the part `name`."""
    if value in _NOT_AN_ID:
        raise IdentityError(f"{name} is empty or a word for nothing")
    if "\0" in value:
        # Postgres text cannot hold it, so such a call could never be claimed.
        raise IdentityError(f"{name} contains a NUL character")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as e:
        raise IdentityError(f"{name} is not valid Unicode") from e
    if size > ID_BYTES_MAX:
        raise IdentityError(f"{name} has {size} bytes, the limit is {ID_BYTES_MAX}")
    return value


def checked_request_id(value: str) -> str:
    """As `checked_id`, and without `:`, which separates the parts of the idempotency key."""
    if ":" in checked_id("request_id", value):
        raise IdentityError("request_id contains a colon")
    return value


def call_key(tenant: str, request_id: str, response_id: str, call_id: str) -> CallKey:
    """Build a checked key. Raises: `IdentityError`."""
    return CallKey(
        checked_id("tenant", tenant),
        checked_request_id(request_id),
        checked_id("response_id", response_id),
        checked_id("call_id", call_id),
    )


def decode_call_key(data: bytes) -> CallKey:
    """Read a record key back into its identity.

    Raises: `IdentityError` when the bytes are no key that `CallKey.encode` could have written.
    """
    if len(data) > KEY_BYTES_MAX:
        raise IdentityError(f"the key has {len(data)} bytes, the limit is {KEY_BYTES_MAX}")
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        raise IdentityError("the key is not UTF-8") from e
    parts = text.split("/")
    if len(parts) != len(CallKey._fields):
        raise IdentityError(f"the key has {len(parts)} parts instead of {len(CallKey._fields)}")
    key = call_key(*(_ESCAPE.sub(lambda m: chr(int(m.group(1), 16)), part) for part in parts))
    if key.encode() != data:
        raise IdentityError("the key is not in its one canonical form")
    return key
