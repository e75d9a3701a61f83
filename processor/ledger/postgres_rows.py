"""Values for the ledger's functions, and records from their rows; nothing here talks to a server."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from processor.core.identity import CallKey
from processor.ledger.port import (
    CallLine,
    CallView,
    Claim,
    Outcome,
    Owned,
    Source,
    StoredResult,
    Transition,
    next_key,
)

#: A row by column name, as the driver gives it; every column is read into a typed record here.
Row = dict[str, Any]


def claim_values(claim: Claim) -> tuple[object, ...]:
    """Parameters of `tcl.claim`, in order."""
    source = claim.source
    return (
        *claim.key,
        claim.tool,
        claim.effect_class,
        claim.args_hash,
        claim.owner,
        timedelta(seconds=claim.lease_s),
        time_of(claim.emitted_at_ms),
        time_of(claim.deadline_ms),
        claim.max_begun,
        source.topic if source else None,
        source.partition if source else None,
        source.offset if source else None,
    )


def finish_values(owned: Owned, outcome: Outcome) -> tuple[object, ...]:
    """Parameters of `tcl.finish`, in order."""
    usage = [
        {"component": u.component, "quantity": u.quantity, "unit": u.unit, "origin": u.origin}
        for u in outcome.usage
    ]
    return (
        *owned_values(owned),
        outcome.state,
        outcome.body,
        outcome.body_ref,
        outcome.body_sha256,
        outcome.error_class,
        json.dumps(usage),
    )


def owned_values(owned: Owned) -> tuple[str, str, int]:
    """The first three parameters of every owner's function."""
    return (owned.tenant, owned.idempotency_key, owned.fence)


def time_of(ms: int) -> datetime:
    """Epoch milliseconds as the driver wants them."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _maybe_ms(time: datetime | None) -> int | None:
    return None if time is None else _ms(time)


def _key(tenant: str, idempotency_key: str, response_id: str) -> CallKey:
    # The request id has no colon (a constraint of the table), so the first one separates.
    request_id, _, call_id = idempotency_key.partition(":")
    return CallKey(tenant, request_id, response_id, call_id)


def stored_of(tenant: str, idempotency_key: str, row: Row) -> StoredResult:
    """A row of `tcl.fetch_result`."""
    return StoredResult(
        key=_key(tenant, idempotency_key, row["response_id"]),
        tool=row["tool"],
        state=row["state"],
        fence=row["fence"],
        retry=row["retry"],
        body=row["body"],
        body_ref=row["body_ref"],
        body_sha256=row["body_hash"],
        error_class=row["error_class"],
    )


def view_of(tenant: str, idempotency_key: str, row: Row) -> CallView:
    """A row of `tcl.show_call`."""
    topic = row["source_topic"]
    return CallView(
        key=_key(tenant, idempotency_key, row["response_id"]),
        tool=row["tool"],
        effect_class=row["effect"],
        args_hash=row["args_hash"],
        state=row["state"],
        fence=row["fence"],
        claims=row["claims"],
        begun=row["begun"],
        max_begun=row["max_begun"],
        emitted_at_ms=_ms(row["emitted_at"]),
        deadline_ms=_ms(row["deadline"]),
        created_at_ms=_ms(row["created_at"]),
        started_at_ms=_maybe_ms(row["started_at"]),
        finished_at_ms=_maybe_ms(row["finished_at"]),
        cancel_requested=row["cancel_requested"],
        decision_id=row["decision_id"],
        policy_rev=row["policy_rev"],
        source=Source(topic, row["source_partition"], row["source_offset"]) if topic else None,
        owner=row["owner"],
        lease_until_ms=_maybe_ms(row["lease_until"]),
        error_class=row["error_class"],
        result_bytes=row["result_bytes"],
        conflicts=row["conflicts"],
        retry=next_key(row["state"]),
    )


def line_of(row: Row) -> CallLine:
    """A row of `tcl.list_calls`."""
    return CallLine(
        tenant=row["tenant"],
        idempotency_key=row["idempotency_key"],
        response_id=row["response_id"],
        tool=row["tool"],
        state=row["state"],
        effect_class=row["effect"],
        fence=row["fence"],
        created_at_ms=_ms(row["created_at"]),
        since_ms=_ms(row["since"]),
        retry=row["retry"],
    )


def transition_of(row: Row) -> Transition:
    """One line of a call's history."""
    return Transition(
        at_ms=_ms(row["at"]),
        from_state=row["from_state"],
        to_state=row["to_state"],
        fence=row["fence"],
        by=row["by"],
        why=row["why"],
    )
