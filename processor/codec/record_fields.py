"""The records other than stream events as named fields and back, with every check.

Rules:
    A value repeats the identity of its key; both must agree.
    What can be derived (digest of the arguments, idempotency key) is derived again and compared.
"""

from typing import TypedDict, cast

from processor.codec.fields import (
    COUNTER_NAME_BYTES_MAX,
    COUNTERS_MAX,
    DIALECT_BYTES_MAX,
    DIGEST_BYTES_MAX,
    ERROR_CLASS_BYTES_MAX,
    LONG_MAX,
    MODEL_BYTES_MAX,
    REASON_BYTES_MAX,
    SEQ_MAX,
    TOOL_BYTES_MAX,
    InvalidField,
    check_id,
    check_range,
    check_text,
)
from processor.core.canonical import sha256
from processor.core.events import ArgumentsFormat
from processor.core.evidence import Evidence, FinalCopy
from processor.core.identity import CallKey
from processor.core.outcomes import CallCompleted, CallRejected, EffectClass, Release
from processor.core.reasons import Stage
from processor.core.results import CallResult, ResultState, Retry
from processor.core.usage import ResponseUsage

Fields = dict[str, object]


class _Evidence(TypedDict):
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    events: int
    fragments: int
    duplicates_dropped: int
    started_at: int
    ended_at: int
    final_copy: FinalCopy
    outcome: str | None


class _Completed(TypedDict):
    tool: str
    dialect: str
    arguments: bytes
    arguments_format: ArgumentsFormat
    arguments_sha256: bytes
    canonical_sha256: bytes | None
    idempotency_key: str
    effect_class: EffectClass
    release: Release
    catalogue_digest: str | None
    item_id: str | None
    output_index: int | None
    model: str | None
    evidence: _Evidence


class _Rejected(TypedDict):
    reason: str
    stage: Stage
    detail: str
    tool: str | None
    dialect: str | None
    item_id: str | None
    output_index: int | None
    model: str | None
    evidence: _Evidence


class _Result(TypedDict):
    tool: str
    state: ResultState
    retry: Retry
    body: bytes | None
    error_class: str | None
    replayed: bool


def identity_of(fields: Fields) -> CallKey:
    """The identity that the value repeats."""
    parts = (fields["tenant"], fields["request_id"], fields["response_id"], fields["call_id"])
    return CallKey(*cast("tuple[str, str, str, str]", parts))


def _identity_fields(key: CallKey) -> Fields:
    return {
        "tenant": key.tenant,
        "request_id": key.request_id,
        "response_id": key.response_id,
        "call_id": key.call_id,
    }


def completed_fields(completed: CallCompleted) -> Fields:
    """Fields of a completed call; its parts were checked when its events were read."""
    key = completed.key
    return {
        "tenant": key.tenant,
        "request_id": key.request_id,
        "response_id": key.response_id,
        "call_id": key.call_id,
        "tool": completed.tool,
        "dialect": completed.dialect,
        "arguments": completed.arguments,
        "arguments_format": completed.arguments_format,
        "arguments_sha256": completed.arguments_sha256,
        "canonical_sha256": completed.canonical_sha256,
        "idempotency_key": key.idempotency_key,
        "effect_class": completed.effect_class,
        "release": completed.release,
        "catalogue_digest": completed.catalogue_digest,
        "item_id": completed.item_id,
        "output_index": completed.output_index,
        "model": completed.model,
        "evidence": _evidence_fields(completed.evidence),
    }


def completed_from(key: CallKey, fields: Fields) -> CallCompleted:
    """The completed call, checked. Raises: `InvalidField`."""
    given = cast("_Completed", fields)
    if given["idempotency_key"] != key.idempotency_key:
        raise InvalidField("idempotency_key is not request_id:call_id")
    if given["arguments_sha256"] != sha256(given["arguments"]):
        raise InvalidField("arguments_sha256 is not the digest of arguments")
    completed = CallCompleted(
        key=key,
        tool=given["tool"],
        dialect=given["dialect"],
        arguments=given["arguments"],
        arguments_format=given["arguments_format"],
        arguments_sha256=given["arguments_sha256"],
        canonical_sha256=given["canonical_sha256"],
        effect_class=given["effect_class"],
        release=given["release"],
        evidence=_evidence_from(given["evidence"]),
        item_id=given["item_id"],
        output_index=given["output_index"],
        model=given["model"],
        catalogue_digest=given["catalogue_digest"],
    )
    _check_origin(completed)
    if completed.catalogue_digest is not None:
        check_text("catalogue_digest", completed.catalogue_digest, DIGEST_BYTES_MAX)
    return completed


def rejected_fields(rejected: CallRejected) -> Fields:
    """Fields of a rejected call."""
    return {
        **_identity_fields(rejected.key),
        "reason": rejected.reason,
        "stage": rejected.stage,
        "detail": rejected.detail,
        "tool": rejected.tool,
        "dialect": rejected.dialect,
        "item_id": rejected.item_id,
        "output_index": rejected.output_index,
        "model": rejected.model,
        "evidence": _evidence_fields(rejected.evidence),
    }


def rejected_from(key: CallKey, fields: Fields) -> CallRejected:
    """The rejected call, checked. Raises: `InvalidField`."""
    given = cast("_Rejected", fields)
    rejected = CallRejected(
        key=key,
        reason=given["reason"],
        stage=given["stage"],
        detail=given["detail"],
        evidence=_evidence_from(given["evidence"]),
        tool=given["tool"],
        dialect=given["dialect"],
        item_id=given["item_id"],
        output_index=given["output_index"],
        model=given["model"],
    )
    check_text("reason", rejected.reason, REASON_BYTES_MAX)
    _check_origin(rejected)
    return rejected


def result_fields(result: CallResult) -> Fields:
    """Fields of a result, checked. Raises: `InvalidField`."""
    _check_result(result)
    return {
        **_identity_fields(result.key),
        "tool": result.tool,
        "state": result.state,
        "retry": result.retry,
        "body": result.body,
        "error_class": result.error_class,
        "replayed": result.replayed,
    }


def result_from(key: CallKey, fields: Fields) -> CallResult:
    """The result, checked. Raises: `InvalidField`."""
    given = cast("_Result", fields)
    result = CallResult(
        key=key,
        tool=given["tool"],
        state=given["state"],
        retry=given["retry"],
        body=given["body"],
        error_class=given["error_class"],
        replayed=given["replayed"],
    )
    _check_result(result)
    return result


def usage_fields(usage: ResponseUsage) -> Fields:
    """Fields of a usage record, checked. Raises: `InvalidField`."""
    _check_usage(usage)
    return {name: getattr(usage, name) for name in ResponseUsage.__dataclass_fields__}


def usage_from(fields: Fields) -> ResponseUsage:
    """The usage record, checked. Raises: `InvalidField`."""
    usage = ResponseUsage(**fields)  # type: ignore[arg-type]  # names and types are the schema's
    _check_usage(usage)
    return usage


def _check_origin(outcome: CallCompleted | CallRejected) -> None:
    if outcome.tool is not None:
        check_text("tool", outcome.tool, TOOL_BYTES_MAX)
    if outcome.dialect is not None:
        check_text("dialect", outcome.dialect, DIALECT_BYTES_MAX)
    if outcome.item_id is not None:
        check_id("item_id", outcome.item_id)
    if outcome.output_index is not None:
        check_range("output_index", outcome.output_index, 0, SEQ_MAX)
    if outcome.model is not None:
        check_text("model", outcome.model, MODEL_BYTES_MAX)


def _check_result(result: CallResult) -> None:
    check_text("tool", result.tool, TOOL_BYTES_MAX)
    if result.error_class is not None:
        check_text("error_class", result.error_class, ERROR_CLASS_BYTES_MAX)


def _check_usage(usage: ResponseUsage) -> None:
    check_text("dialect", usage.dialect, DIALECT_BYTES_MAX)
    if usage.model is not None:
        check_text("model", usage.model, MODEL_BYTES_MAX)
    for name in _COUNTERS:
        counter: int | None = getattr(usage, name)
        if counter is not None:
            check_range(name, counter, 0, LONG_MAX)
    if len(usage.provider) > COUNTERS_MAX:
        raise InvalidField(f"provider has more than {COUNTERS_MAX} entries")
    for name, value in usage.provider.items():
        check_text("a name in provider", name, COUNTER_NAME_BYTES_MAX)
        check_range("a number in provider", value, 0, LONG_MAX)


_COUNTERS = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cached_input_tokens",
    "reasoning_tokens",
)


def _evidence_fields(evidence: Evidence) -> Fields:
    return {
        "topic": evidence.topic,
        "partition": evidence.partition,
        "first_offset": evidence.first_offset,
        "last_offset": evidence.last_offset,
        "events": evidence.events,
        "fragments": evidence.fragments,
        "duplicates_dropped": evidence.duplicates_dropped,
        "started_at": evidence.started_at_ms,
        "ended_at": evidence.ended_at_ms,
        "final_copy": evidence.final_copy,
        "outcome": evidence.outcome,
    }


def _evidence_from(given: _Evidence) -> Evidence:
    return Evidence(
        topic=given["topic"],
        partition=given["partition"],
        first_offset=given["first_offset"],
        last_offset=given["last_offset"],
        events=given["events"],
        fragments=given["fragments"],
        duplicates_dropped=given["duplicates_dropped"],
        started_at_ms=given["started_at"],
        ended_at_ms=given["ended_at"],
        final_copy=given["final_copy"],
        outcome=given["outcome"],
    )
