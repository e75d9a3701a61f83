"""A tool's returned value as the bytes that are stored and published.

Rules:
    A value that is no JSON never turns a happened effect into a failure: the call succeeds, and what
    is missing is named. A value that breaks while it is read leaves the outcome unknown.
"""

import json
from decimal import Decimal
from typing import Final, Literal

from processor.core._record import record
from processor.core.canonical import sha256
from processor.ledger.port import RESULT_BYTES_MAX, Outcome

#: Why a call is in doubt whose returned value raised while it was read.
UNREADABLE: Final = "result_unreadable"


@record
class WithoutBody:
    """Returned for an effect that happened and whose result cannot be kept; `problem` is the word for it."""

    problem: str


@record
class _Body:
    """Bytes to store, their digest, or the word for why there are none."""

    data: bytes | None
    digest: bytes | None
    problem: str | None


def outcome_of(
    state: Literal["succeeded", "failed"], value: object, error_class: str | None = None
) -> Outcome | None:
    """The outcome for a returned value; None when the value raised while it was read.

    Bytes are kept as they are, everything else becomes JSON (a `Decimal` its exact text). Above 64 KiB
    only the digest is kept.
    """
    try:
        body = _encode(value)
    except BaseException:  # noqa: BLE001 - a tool's own object runs its own code here
        return None
    return Outcome(
        state,
        body=body.data,
        body_sha256=body.digest,
        error_class=error_class or body.problem,
    )


def _encode(value: object) -> _Body:
    if isinstance(value, WithoutBody):
        return _Body(None, None, value.problem)
    if isinstance(value, bytes):
        data = bytes(value)
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
    raise TypeError
