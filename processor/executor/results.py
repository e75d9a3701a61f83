"""A tool's returned value as the bytes that are stored and published.

Rules:
    A value that cannot be stored never turns a happened effect into a failure: the call succeeds,
    and what is missing is named.
"""

import json
from decimal import Decimal
from typing import Literal

from processor.core._record import record
from processor.core.canonical import sha256
from processor.ledger.port import RESULT_BYTES_MAX, Outcome


@record
class _Body:
    """Bytes to store, their digest, or the word for why there are none."""

    data: bytes | None
    digest: bytes | None
    problem: str | None


def outcome_of(
    state: Literal["succeeded", "failed"], value: object, error_class: str | None = None
) -> Outcome:
    """The outcome for a returned value.

    Bytes are kept as they are, everything else becomes JSON (a `Decimal` its exact text). Above 64 KiB
    only the digest is kept.
    """
    body = _encode(value)
    return Outcome(
        state,
        body=body.data,
        body_sha256=body.digest,
        error_class=error_class or body.problem,
    )


def _encode(value: object) -> _Body:
    if isinstance(value, bytes):
        data = value
    else:
        try:
            text = json.dumps(
                value,
                ensure_ascii=False,
                allow_nan=False,
                separators=(",", ":"),
                default=_exact_text,
            )
            data = text.encode()
        except (TypeError, ValueError, RecursionError):
            return _Body(None, None, "result_not_json")
    digest = sha256(data)
    if len(data) > RESULT_BYTES_MAX:
        return _Body(None, digest, "result_too_large")
    return _Body(data, digest, None)


def _exact_text(value: object) -> str:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(type(value).__name__)
