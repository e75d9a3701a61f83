"""The key of one effect, and the trace, as a system outside of the ledger sees them.

Rules:
    The ledger's key is unique under the tenant only, and a system behind a tool does not know tenants,
    so the tenant is part of the text: `tenant/request_id:call_id`.
    The text is printable ASCII without blanks, quotes and backslashes, whatever the ids hold, and has at
    most 255 characters (the limit of known payment services); a longer one is replaced by its digest.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

KEY_CHARACTERS_MAX: Final = 255

#: W3C Trace Context; whoever may write the topic writes these, so anything else is left out.
_TRACE: Final = {
    "traceparent": re.compile(
        r"[0-9a-f]{2}-[0-9a-f]{1,64}-[0-9a-f]{1,64}-[0-9a-f]{2}(-[!-~]{0,256})?"
    ),
    "tracestate": re.compile(r"[!-~]([ -~]{0,510}[!-~])?"),
}
_UNSAFE: Final = re.compile(rb"[^\x21-\x7e]|[\"\\%]")


def effect_key(tenant: str, idempotency_key: str) -> str:
    """The text; equal for every repetition of a call and for no other call."""
    text = f"{_plain(tenant).replace('/', '%2F')}/{_plain(idempotency_key)}"
    if len(text) <= KEY_CHARACTERS_MAX:
        return text
    return f"sha256-{hashlib.sha256(text.encode()).hexdigest()}"


def key_header(key: str) -> str:
    """The value of `Idempotency-Key`: a string in quotes (RFC 9651, section 3.3.3).

    Source: draft-ietf-httpapi-idempotency-key-header, section 2.1.
    """
    return f'"{key}"'


def trace_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that continue a trace, as far as they can stand in a request."""
    return {n: v for n, v in headers.items() if n in _TRACE and _TRACE[n].fullmatch(v)}


def _plain(text: str) -> str:
    encoded = text.encode()
    return _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], encoded).decode("ascii")
