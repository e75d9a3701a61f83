"""What an HTTP answer proves about a tool's effect, and what of it is kept. No input or output here.

Rules:
    2xx: done. The statuses of `REFUSED`, and those that the catalogue adds: refused, nothing was done.
    Every other status says nothing about the effect: by class it runs again, or is in doubt.
    An answer counts when it is whole. A body that is no JSON does not undo an effect.
"""

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from processor.executor.results import WithoutBody
from processor.ledger.port import RESULT_BYTES_MAX

#: RFC 9110 section 15.5: bad request, credentials, rights, no such thing, method, gone, size, type, content.
REFUSED: Final = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})
#: A service that wants to be left alone for longer is asked again after this.
RETRY_AFTER_S_MAX: Final = 3600.0
_DIGITS_MAX: Final = 9

Judged = Literal["done", "refused", "unknown"]


def judged(status: int, refused: frozenset[int] = frozenset()) -> Judged:
    """What a status proves; `refused` are the catalogue's additions."""
    if 200 <= status < 300:
        return "done"
    return "refused" if status in REFUSED or status in refused else "unknown"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait that `Retry-After` asks for, 0 to 3600 seconds; None without a readable one.

    A date is taken relative to the answer's own `Date` (RFC 9110, section 10.2.3), so that no clock of
    ours has to agree with theirs.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:_DIGITS_MAX]), RETRY_AFTER_S_MAX) if text else None
    try:
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(headers.get("date", ""))
        seconds = (until - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_S_MAX)


def result_of(body: bytes, content_type: str) -> object:
    """The value to store for a whole body: JSON as its exact bytes, text as a string, nothing as None."""
    if not body:
        return None
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return body if is_json(body) else WithoutBody("result_not_json")
    if kind.startswith("text/"):
        try:
            return body.decode()
        except UnicodeDecodeError:
            return WithoutBody("result_not_json")
    return WithoutBody("result_not_json")


def is_json(body: bytes) -> bool:
    """True for a JSON text; one that is too large to be stored is not looked at."""
    if len(body) > RESULT_BYTES_MAX:
        return True
    try:
        json.loads(body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(word: str) -> object:
    raise ValueError(word)
