"""The six checkpoints of one call with their evidence, and what a person may do next.

Rules:
    Pure: what was found goes in, what is shown comes out. Offsets, counts, digests and names; never
    an argument, a result or a prompt.
    The verdict is the first record that the output topics hold. A later record of the same key is a
    repeat: the ledger knows the key.
"""

from collections.abc import Mapping
from typing import Final, Literal

from processor.audit.inspect_scan import Found, Verdict
from processor.core._record import record
from processor.core.outcomes import CallCompleted, CallRejected
from processor.core.reasons import Stage
from processor.ledger.port import CallView, Transition

Standing = Literal[
    "completed", "rejected", "open", "unread", "undecided", "unreadable", "gone", "unknown"
]
Status = Literal["passed", "refused", "waiting", "not reached", "not seen"]
Fields = Mapping[str, object]

CHECKPOINTS: Final = ("identity", "buffer", "ordering", "completion", "validation", "replay")
#: The clock's reason counts at the checkpoint that it ends: the end that never came.
_EXPIRY_AT: Final = "completion"

NEXT: Final[dict[Standing, str]] = {
    "completed": "an executor that serves the tool takes it; the ledger says what came of it",
    "rejected": "nothing: it never runs; the application may ask again under a new request id",
    "open": "wait for its next event; without one it expires, and never runs",
    "unread": "the assembler has not read its last event yet: look at its lag, or start one",
    "undecided": (
        "its events are read and no verdict lies there: `toolcalls verify` tells whether one is lost"
    ),
    "unreadable": (
        "its records cannot be read: see the dead letters' code, mend the publisher; the application"
        " may ask again under a new request id"
    ),
    "gone": "its records are gone from the topics; the ledger alone knows it",
    "unknown": (
        "check the spelling and the topics' prefix; records older than the start of the log are gone;"
        " publish the call's events if they never came"
    ),
}


@record
class LedgerSaid:
    """What the ledger knows; `note` says why it was not asked or did not answer."""

    view: CallView | None = None
    history: tuple[Transition, ...] = ()
    note: str | None = None


@record
class Checkpoint:
    """One checkpoint: passed or not, and what shows it."""

    name: str
    status: Status
    evidence: Fields


@record
class Inspection:
    """The answer to: what happened to this call?"""

    call_key: str
    standing: Standing
    reason: str | None
    stage: str | None
    checkpoints: tuple[Checkpoint, ...]
    next_step: str
    found: Found
    ledger: LedgerSaid


def inspect_found(
    found: Found, ledger: LedgerSaid, *, terms_note: str | None, next_of_state: Mapping[str, str]
) -> Inspection:
    """Judge what was found. `next_of_state` says what may follow a state of the ledger."""
    first = first_verdict(found)
    standing = _standing(found, first, ledger)
    refused = first.outcome if first and isinstance(first.outcome, CallRejected) else None
    statuses = _statuses(standing, refused.stage if refused else None, found, ledger)
    evidence = (
        _identity(found),
        _buffer(found, first),
        _ordering(found, first),
        _completion(found, first),
        _validation(first, terms_note),
        _replay(found, ledger),
    )
    next_step = NEXT[standing]
    if ledger.view is not None:
        next_step = next_of_state[ledger.view.state]
    return Inspection(
        call_key=found.key.encode().decode(),
        standing=standing,
        reason=refused.reason if refused else None,
        stage=refused.stage if refused else None,
        checkpoints=tuple(
            Checkpoint(name, status, fields)
            for name, status, fields in zip(CHECKPOINTS, statuses, evidence, strict=True)
        ),
        next_step=next_step,
        found=found,
        ledger=ledger,
    )


def first_verdict(found: Found) -> Verdict | None:
    """The verdict that counts: the one decided by the smallest offset."""
    return min(found.verdicts, key=lambda v: v.outcome.evidence.last_offset, default=None)


def _standing(found: Found, first: Verdict | None, ledger: LedgerSaid) -> Standing:
    if first is not None:
        return "completed" if isinstance(first.outcome, CallCompleted) else "rejected"
    if found.open_call is not None and not found.events.unread:
        return "open"
    if found.events.unread or (found.committed is None and found.events.first):
        return "unread"
    if found.dead_letters and set(found.events.kinds) <= {"unreadable"}:
        return "unreadable"
    if found.is_known:
        return "undecided"
    return "gone" if ledger.view is not None else "unknown"


def _statuses(
    standing: Standing, stage: Stage | None, found: Found, ledger: LedgerSaid
) -> tuple[Status, ...]:
    if standing == "completed":
        begun = ledger.view is not None
        return _row(len(CHECKPOINTS) - 1, "passed" if begun else "waiting")
    if standing == "gone":
        return ("not seen", "not seen", "not seen", "not seen", "not seen", "passed")
    if stage is not None:
        return _row(CHECKPOINTS.index(_EXPIRY_AT if stage == "expiry" else stage), "refused")
    if standing == "open" and found.open_call is not None:
        # What has arrived is in order; the call, or its response, has not ended.
        return _row(CHECKPOINTS.index("completion"), "waiting")
    return _row(0, "refused" if standing == "unreadable" else "waiting")


def _row(passed: int, then: Status) -> tuple[Status, ...]:
    """So many checkpoints passed, the next one as said, the others not reached."""
    row: list[Status] = ["not reached"] * len(CHECKPOINTS)
    for at in range(passed):
        row[at] = "passed"
    row[passed] = then
    return tuple(row)


def _identity(found: Found) -> Fields:
    key, started = found.key, found.events.started
    outcome = found.verdicts[0].outcome if found.verdicts else None
    known = started or outcome
    return {
        "tenant": key.tenant,
        "request_id": key.request_id,
        "response_id": key.response_id,
        "call_id": key.call_id,
        "item_id": known and known.item_id,
        "output_index": known and known.output_index,
        "tool": known and known.tool,
        "dialect": known and known.dialect,
        "model": known and known.model,
        "partition": found.partition,
        "started": started is not None,
    }


def _buffer(found: Found, first: Verdict | None) -> Fields:
    fields: dict[str, object] = {
        "fragments": found.events.kinds.get("ArgumentsDelta", 0),
        "fragment_bytes": found.events.fragment_bytes,
    }
    if first is not None and isinstance(first.outcome, CallCompleted):
        fields["arguments_bytes"] = first.arguments_bytes
        fields["arguments_sha256"] = first.outcome.arguments_sha256.hex()
    elif found.open_call is not None:
        fields["arguments_bytes"] = found.open_call.text_bytes
        fields["arguments_sha256"] = found.open_call.text_sha256
    return fields


def _ordering(found: Found, first: Verdict | None) -> Fields:
    events = found.events
    fields: dict[str, object] = {
        "events": dict(events.kinds),
        "seq_max": events.seq_max if events.first else None,
        "first_offset": events.first and events.first.offset,
        "last_offset": events.last and events.last.offset,
        "first_at_ms": events.first and events.first.timestamp_ms,
        "last_at_ms": events.last and events.last.timestamp_ms,
        "lives": events.lives,
    }
    if first is not None:
        proof = first.outcome.evidence
        fields["decided_from"] = proof.first_offset
        fields["decided_at"] = proof.last_offset
        fields["duplicates_dropped"] = proof.duplicates_dropped
    elif found.open_call is not None:
        fields["next_seq"] = found.open_call.next_seq
        fields["duplicates_dropped"] = found.open_call.duplicates_dropped
    if events.unread:
        fields["not_read_by_the_group"] = events.unread
    return fields


def _completion(found: Found, first: Verdict | None) -> Fields:
    end = found.events.response_end
    fields: dict[str, object] = {
        "call_ended_at": list(found.events.ends),
        "copies": found.events.copies,
        "response_ended_at": end and end[0],
        "response_outcome": end and end[1],
    }
    if first is not None:
        fields["final_copy"] = first.outcome.evidence.final_copy
        if isinstance(first.outcome, CallCompleted):
            fields["release"] = first.outcome.release
            fields["effect_class"] = first.outcome.effect_class
    return fields


def _validation(first: Verdict | None, terms_note: str | None) -> Fields:
    if first is None:
        return {"verdict": None}
    outcome, at = first.outcome, first.at
    fields: dict[str, object] = {
        "verdict": "completed" if isinstance(outcome, CallCompleted) else "rejected",
        "record": f"{at.topic}[{at.partition}]@{at.offset}",
    }
    if isinstance(outcome, CallCompleted):
        canonical = outcome.canonical_sha256
        fields["canonical_sha256"] = canonical and canonical.hex()
        fields["catalogue_digest"] = outcome.catalogue_digest
    else:
        fields |= {"reason": outcome.reason, "stage": outcome.stage, "detail": outcome.detail}
    if terms_note is None:
        fields["folded_again"] = {
            True: "same bytes",
            False: "other bytes",
            None: "no verdict there",
        }[first.is_confirmed]
    else:
        fields["folded_again"] = terms_note
    return fields


def _replay(found: Found, ledger: LedgerSaid) -> Fields:
    fields: dict[str, object] = {
        "idempotency_key": found.key.idempotency_key,
        "verdict_records": len(found.verdicts),
        "dead_letters": len(found.dead_letters),
        "results_published": len(found.results),
    }
    view = ledger.view
    if view is None:
        fields["ledger"] = ledger.note or "no such call"
        return fields
    return fields | {
        "ledger": view.state,
        "begun": f"{view.begun} of {view.max_begun}",
        "claims": view.claims,
        "fence": view.fence,
        "conflicts": view.conflicts,
        "decision_id": view.decision_id,
        "policy_revision": view.policy_rev,
        "result_bytes": view.result_bytes,
        "error_class": view.error_class,
        "next_key": view.retry,
    }
