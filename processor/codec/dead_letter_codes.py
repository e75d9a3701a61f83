"""Why a record cannot be read: the closed list of codes, and the refusal that carries one.

Rules:
    A refused record keeps its bytes on the dead-letter topic; its code and detail go to headers.
    A detail names fields, sizes and places. It never quotes what a key or a value holds.
"""

from typing import Final, Literal, get_args

from processor.core.errors import ProcessorError

DeadLetterCode = Literal[
    "null_key",
    "null_value",
    "malformed_key",
    "key_mismatch",
    "too_large",
    "unknown_frame",
    "unknown_schema",
    "malformed_avro",
    "malformed_json",
    "invalid_field",
    "chunk_gap",
    "chunk_conflict",
    "missing_first_chunk",
    "envelope_changed",
    "too_many_chunks",
    "too_many_responses",
    "unknown_dialect",
    "not_that_dialect",
]
DEAD_LETTER_CODES: Final[frozenset[str]] = frozenset(get_args(DeadLetterCode))


class Undecodable(ProcessorError):
    """Key and value are no record of ours; `code` says why, `detail` where, without content."""

    def __init__(self, code: DeadLetterCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Unencodable(ProcessorError):
    """A record that every reader would refuse; nothing was written. The text names the field."""

    code = "unencodable"
