"""The records that a stream of tool calls is made of: what happened, in the past tense.

Rules:
    An event belongs to the call named by its record's key, and to no other.
    `seq` counts the events of one call from 0, without holes; the publisher assigns it.
    `CallExpired` is appended by the assembler, stands outside the count and has `seq` -1.
"""

from typing import Final, Literal, get_args

from processor.core._record import record

ResponseOutcome = Literal[
    "completed",
    "truncated",
    "content_filter",
    "refusal",
    "failed",
    "cancelled",
    "stream_ended",
    "unknown",
]
RESPONSE_OUTCOMES: Final[frozenset[str]] = frozenset(get_args(ResponseOutcome))

ArgumentsFormat = Literal["json", "text"]
ExpiryCause = Literal["idle", "max_life"]

#: `seq` of events that stand outside the publisher's count.
SEQ_NONE: Final = -1


@record
class CallStarted:
    """The model began a call. Always `seq` 0; the identity must equal the record's key."""

    tenant: str
    request_id: str
    response_id: str
    call_id: str
    tool: str
    dialect: str
    item_id: str | None = None
    output_index: int | None = None
    model: str | None = None
    #: `text` is a free-form tool input (OpenAI custom tools): never parsed as JSON.
    arguments_format: ArgumentsFormat = "json"


@record
class ArgumentsDelta:
    """A run of bytes of the arguments text. A cut inside a UTF-8 sequence is allowed."""

    fragment: bytes


@record
class ArgumentsDone:
    """The call's own terminal event; with `arguments`, a final copy that must equal the buffer."""

    arguments: bytes | None = None


@record
class ResponseEnded:
    """The response that the call belongs to has ended; `detail` is a vendor's word, no content."""

    outcome: ResponseOutcome
    detail: str | None = None


@record
class CallAborted:
    """The publisher saw what only it can see: a contradiction on the wire. `reason` is ours."""

    reason: str


@record
class CallExpired:
    """The assembler's clock ran out; applied only if the call is still as it was then."""

    cause: ExpiryCause
    last_seq: int


Body = CallStarted | ArgumentsDelta | ArgumentsDone | ResponseEnded | CallAborted | CallExpired


@record
class StreamEvent:
    """One record of the events topic. `at_ms` is the publisher's epoch time, for people only."""

    seq: int
    body: Body
    at_ms: int | None = None
