"""How a verdict of the fold becomes an outcome: the call's own data and the evidence, nothing else.

Rules:
    Identity comes from the CallStarted; without one, from the record's key.
    A rejection takes no argument content along.
"""

from processor.core.call import Call
from processor.core.canonical import sha256
from processor.core.events import CallStarted
from processor.core.evidence import Evidence, Place
from processor.core.gate import Rules
from processor.core.identity import CallKey, decode_call_key
from processor.core.judgement import Judged
from processor.core.outcomes import CallCompleted, CallRejected, Release
from processor.core.reasons import STAGE_OF


def completed(
    call: Call, judged: Judged, rules: Rules, release: Release, evidence: Evidence
) -> CallCompleted:
    """The record of a call that was accepted. Cost: one SHA-256 over its arguments."""
    started = call.begun()
    return CallCompleted(
        key=_identity(started),
        tool=started.tool,
        dialect=started.dialect,
        arguments=judged.arguments,
        arguments_format=started.arguments_format,
        arguments_sha256=sha256(judged.arguments),
        canonical_sha256=judged.canonical_sha256,
        effect_class=rules.rule(started.tool).effect_class,
        release=release,
        evidence=evidence,
        item_id=started.item_id,
        output_index=started.output_index,
        model=started.model,
        catalogue_digest=rules.digest,
    )


def rejected(call: Call, key: bytes, reason: str, detail: str, evidence: Evidence) -> CallRejected:
    """The record of a call that must not run; `reason` is one of the closed list."""
    started, stage = call.started, STAGE_OF[reason]
    if started is None:
        return CallRejected(decode_call_key(key), reason, stage, detail, evidence)
    return CallRejected(
        key=_identity(started),
        reason=reason,
        stage=stage,
        detail=detail,
        evidence=evidence,
        tool=started.tool,
        dialect=started.dialect,
        item_id=started.item_id,
        output_index=started.output_index,
        model=started.model,
    )


def evidence_of(call: Call, place: Place, last_offset: int, ended_at_ms: int) -> Evidence:
    """What was read of `call` up to the record that decided, `last_offset`."""
    return Evidence(
        topic=place.topic,
        partition=place.partition,
        first_offset=call.first_offset,
        last_offset=last_offset,
        events=len(call.items),
        fragments=call.fragments,
        duplicates_dropped=call.duplicates,
        started_at_ms=call.first_ms,
        ended_at_ms=ended_at_ms,
        final_copy="equal" if call.final_copy_seen else "absent",
        outcome=call.outcome,
    )


def _identity(started: CallStarted) -> CallKey:
    return CallKey(started.tenant, started.request_id, started.response_id, started.call_id)
