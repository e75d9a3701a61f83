"""What travels with every offset commit: enough to build the state again, and to refuse a wrong log.

Rules:
    The metadata moves in the same transaction as the offset and the outputs, so the three agree.
    `low` is where the re-fold begins, `time` the log time just before it.
    `ckpts` is how many checkpoints live once this transaction has; a restart must find as many.
    A recreated topic has another id and a grown one another partition count; both are refused.
    The terms of the fold are part of it: a re-fold decides by those of the time (core/terms.py).
    The broker keeps at most 4,096 bytes (`offset.metadata.max.bytes`); this text has about 300.
"""

import json
from typing import Final, cast

from processor.core._record import record
from processor.core.limits import Limits
from processor.core.terms import TermsMark

METADATA_VERSION: Final = 1

_LIMITS: Final = (
    "arguments_bytes_max",
    "fragments_max",
    "depth_max",
    "open_calls_max",
    "linger_ms",
)


class MetadataError(ValueError):
    """The metadata of a committed offset is not ours; the text says what is wrong with it."""


@record
class OffsetMetadata:
    """Parsed metadata of one committed offset. Offsets are the topic's, times epoch milliseconds.

    `checkpoints` is how many the group has for the partition; None: the fold has none, or the commit
    is an older release's. `terms` are in force from offset `since` on; `former` are those before, kept while `low` lies
    below `since`.
    """

    fold: int
    low: int
    log_time_ms: int
    partitions: int
    topic_id: str
    terms: TermsMark
    since: int
    former: TermsMark | None = None
    checkpoints: int | None = None

    def encode(self) -> str:
        """The text that is committed."""
        fields: dict[str, object] = {
            "v": METADATA_VERSION,
            "fold": self.fold,
            "low": self.low,
            "time": self.log_time_ms,
            "parts": self.partitions,
            "topic": self.topic_id,
            "terms": _terms_fields(self.terms),
            "since": self.since,
        }
        if self.former is not None:
            fields["former"] = _terms_fields(self.former)
        if self.checkpoints is not None:
            fields["ckpts"] = self.checkpoints
        return json.dumps(fields, separators=(",", ":"))


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
        terms=_terms(fields, "terms"),
        since=_integer(fields, "since"),
        former=_terms(fields, "former") if "former" in fields else None,
        checkpoints=_integer(fields, "ckpts") if "ckpts" in fields else None,
    )


def _terms_fields(terms: TermsMark) -> list[object]:
    limits = [getattr(terms.limits, name) for name in _LIMITS]
    return [terms.catalogue_digest, terms.wait_for_response, *limits]


def _terms(fields: dict[str, object], name: str) -> TermsMark:
    value = fields.get(name)
    parts = cast("list[object]", value) if isinstance(value, list) else []
    if len(parts) != len(_LIMITS) + 2:
        raise MetadataError(f"its field {name} are no terms")
    digest, wait, *limits = parts
    if not (digest is None or isinstance(digest, str)) or not isinstance(wait, bool):
        raise MetadataError(f"its field {name} are no terms")
    if not all(type(limit) is int for limit in limits):
        raise MetadataError(f"its field {name} are no terms")
    named = dict(zip(_LIMITS, cast("list[int]", limits), strict=True))
    return TermsMark(digest, Limits(**named), wait)


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
