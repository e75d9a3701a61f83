"""What the fold says of a call: completed with its exact arguments, or rejected by name.

Rules:
    At most one of the two is given out per tracked call, once.
    A rejection never carries argument content, in no field.
"""

from typing import Literal

from processor.core._record import record
from processor.core.events import ArgumentsFormat
from processor.core.evidence import Evidence
from processor.core.identity import CallKey
from processor.core.reasons import Stage

EffectClass = Literal["read_only", "idempotent", "reconcilable", "transactional", "at_most_once"]
Release = Literal["call_end", "response_end"]


@record
class CallCompleted:
    """A call that is safe to act on. `arguments` is the exact buffer, byte for byte.

    `canonical_sha256` is over the RFC 8785 form; None when the text holds a number that RFC 8785
    cannot carry exactly (an integer beyond 2^53, more digits than a double) or is free text.
    """

    key: CallKey
    tool: str
    dialect: str
    arguments: bytes
    arguments_format: ArgumentsFormat
    arguments_sha256: bytes
    canonical_sha256: bytes | None
    effect_class: EffectClass
    release: Release
    evidence: Evidence
    item_id: str | None = None
    output_index: int | None = None
    model: str | None = None
    catalogue_digest: str | None = None


@record
class CallRejected:
    """A call that must not run, and why. Identity as far as known: `tool` None without a start."""

    key: CallKey
    reason: str
    stage: Stage
    detail: str
    evidence: Evidence
    tool: str | None = None
    dialect: str | None = None
    item_id: str | None = None
    output_index: int | None = None
    model: str | None = None


Outcome = CallCompleted | CallRejected
