"""What a response used, as the vendor reported it.

Rules:
    Absent is not zero: a counter that the wire did not carry is None, an explicit zero is 0.
    Counters are totals; where a vendor repeats them, the last value wins.
"""

from processor.core._record import field, record


@record
class ResponseUsage:
    """Counters of one response. `provider` holds every numeric counter of the wire by its path."""

    tenant: str
    request_id: str
    response_id: str
    dialect: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    provider: dict[str, int] = field(default_factory=dict[str, int])
