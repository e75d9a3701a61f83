"""One record of a model response as its vendor sent it, before any dialect has read it.

Rules:
    Records of a response are numbered from 0 without holes, as the events of a call are.
    Tenant, request and response together name the stream; the vendor's own response id, where the
    stream has one, names its calls.
"""

from processor.core._record import record


@record
class JsonChunk:
    """One whole event of the vendor, as the text of a JSON object."""

    json: bytes


@record
class RawChunk:
    """Bytes of the stream with its framing, cut anywhere."""

    data: bytes


@record
class StreamClosed:
    """The stream was read to its end or, `cancelled`, left before."""

    cancelled: bool


ChunkBody = JsonChunk | RawChunk | StreamClosed


@record
class ResponseChunk:
    """A numbered piece of one response. `at_ms` is epoch milliseconds, None when not given."""

    tenant: str
    request_id: str
    response_id: str
    dialect: str
    number: int
    body: ChunkBody
    model: str | None = None
    at_ms: int | None = None
