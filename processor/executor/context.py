"""What a tool may know about the call it runs, besides its arguments."""

from processor.core._record import field, record


@record
class ToolContext:
    """Given to a tool that asks for it; holds no arguments.

    Pass `idempotency_key` on to whatever the tool calls (as `Idempotency-Key` over HTTP), and `fence`
    wherever a system accepts a condition on a version. `attempt_deadline_s` is the time limit of this
    attempt in seconds from its start; stop by then. `connection` is the ledger's open transaction for
    a `transactional` tool (a `psycopg.Connection`), else None. `headers` continue the trace.
    """

    tenant: str
    request_id: str
    response_id: str
    call_id: str
    tool: str
    idempotency_key: str
    fence: int
    attempt_deadline_s: float
    headers: dict[str, str] = field(default_factory=dict[str, str])
    connection: object = None
