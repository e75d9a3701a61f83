"""The closed list of reasons for a rejection, by the checkpoint (stage) that refused.

Rules:
    A rejection carries exactly one reason of this list; a new one needs a test and a line in the README.
    The stages are the checkpoints in the order in which a call passes them; `expiry` is the clock's.
"""

from typing import Final, Literal

Stage = Literal["identity", "buffer", "ordering", "completion", "validation", "expiry"]

REASONS_BY_STAGE: Final[dict[Stage, tuple[str, ...]]] = {
    "identity": (
        "ambiguous_identity",
        "identity_conflict",
        "response_id_changed",
        "missing_call_id",
        "tool_name_missing",
        "tool_name_conflict",
        "missing_start",
        "key_mismatch",
    ),
    "buffer": (
        "invalid_utf8",
        "arguments_not_text",
        "too_large",
        "too_many_calls",
        "too_many_fragments",
    ),
    "ordering": (
        "sequence_gap",
        "sequence_conflict",
        "fragment_after_end",
        "provider_sequence_gap",
        "malformed_event",
    ),
    "completion": (
        "truncated",
        "content_filter",
        "refusal",
        "response_failed",
        "response_cancelled",
        "stream_error",
        "stream_ended",
        "unexpected_finish_reason",
        "provider_flagged",
        "final_copy_mismatch",
        "unsupported_call_type",
        "multiple_choices",
    ),
    "validation": (
        "empty_arguments",
        "invalid_json",
        "duplicate_member",
        "non_finite_number",
        "number_out_of_range",
        "nul_character",
        "not_an_object",
        "too_deep",
        "unknown_tool",
        "schema_mismatch",
        "not_authorized",
        "business_rule",
    ),
    "expiry": ("expired",),
}

STAGE_OF: Final[dict[str, Stage]] = {
    reason: stage for stage, reasons in REASONS_BY_STAGE.items() for reason in reasons
}

REASONS: Final[frozenset[str]] = frozenset(STAGE_OF)
