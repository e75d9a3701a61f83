"""A stream event as named fields and back, the same for Avro and for JSON, with every check.

Rules:
    The branch of the union carries the name of the class.
    `at` 0 means not given. It is for people only, so any long will do.
    A writer keeps to the checks of the readers: what cannot be read is not written.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypedDict, cast

from processor.codec.fields import (
    DETAIL_BYTES_MAX,
    DIALECT_BYTES_MAX,
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
from processor.core.events import (
    SEQ_NONE,
    ArgumentsDelta,
    ArgumentsDone,
    ArgumentsFormat,
    Body,
    CallAborted,
    CallExpired,
    CallStarted,
    ExpiryCause,
    ResponseEnded,
    ResponseOutcome,
    StreamEvent,
)

Fields = Mapping[str, object]


class _Started(TypedDict):
    tenant: str
    request_id: str
    response_id: str
    call_id: str
    item_id: str | None
    output_index: int | None
    tool: str
    dialect: str
    model: str | None
    arguments_format: ArgumentsFormat


def event_from(seq: int, at_ms: int, name: str, fields: Fields) -> StreamEvent:
    """The event of branch `name`, checked. Types of the fields are the schema's.

    Raises: `InvalidField`.
    """
    event = StreamEvent(seq, _MAKE[name](fields), at_ms or None)
    check_event(event)
    return event


def fields_of(body: Body) -> dict[str, object]:
    """The fields of the branch that carries `body`."""
    return _TAKE[type(body)](body)


def check_event(event: StreamEvent) -> None:
    """Refuse what no reader accepts. Raises: `InvalidField`."""
    body = event.body
    if event.at_ms is not None:
        check_range("at", event.at_ms, -LONG_MAX - 1, LONG_MAX)
    if isinstance(body, CallExpired):
        if event.seq != SEQ_NONE:
            raise InvalidField(f"seq of CallExpired is not {SEQ_NONE}")
        check_range("last_seq", body.last_seq, SEQ_NONE, SEQ_MAX)
        return
    check_range("seq", event.seq, 0, SEQ_MAX)
    if isinstance(body, CallStarted):
        _check_started(body)
    elif isinstance(body, ResponseEnded) and body.detail is not None:
        check_text("detail", body.detail, DETAIL_BYTES_MAX)
    elif isinstance(body, CallAborted):
        check_text("reason", body.reason, REASON_BYTES_MAX)


def _check_started(started: CallStarted) -> None:
    check_text("tool", started.tool, TOOL_BYTES_MAX)
    check_text("dialect", started.dialect, DIALECT_BYTES_MAX)
    if started.item_id is not None:
        check_id("item_id", started.item_id)
    if started.output_index is not None:
        check_range("output_index", started.output_index, 0, SEQ_MAX)
    if started.model is not None:
        check_text("model", started.model, MODEL_BYTES_MAX)


def _started(fields: Fields) -> CallStarted:
    return CallStarted(**cast("_Started", fields))


def _delta(fields: Fields) -> ArgumentsDelta:
    return ArgumentsDelta(cast("bytes", fields["fragment"]))


def _done(fields: Fields) -> ArgumentsDone:
    return ArgumentsDone(cast("bytes | None", fields["arguments"]))


def _ended(fields: Fields) -> ResponseEnded:
    return ResponseEnded(
        cast("ResponseOutcome", fields["outcome"]), cast("str | None", fields["detail"])
    )


def _aborted(fields: Fields) -> CallAborted:
    return CallAborted(cast("str", fields["reason"]))


def _expired(fields: Fields) -> CallExpired:
    return CallExpired(cast("ExpiryCause", fields["cause"]), cast("int", fields["last_seq"]))


_MAKE: Final[dict[str, Callable[[Fields], Body]]] = {
    "ArgumentsDelta": _delta,
    "CallStarted": _started,
    "ArgumentsDone": _done,
    "ResponseEnded": _ended,
    "CallAborted": _aborted,
    "CallExpired": _expired,
}


def _taker(*names: str) -> Callable[[Body], dict[str, object]]:
    def take(body: Body) -> dict[str, object]:
        return {name: getattr(body, name) for name in names}

    return take


_TAKE: Final[dict[type[Body], Callable[[Body], dict[str, object]]]] = {
    ArgumentsDelta: _taker("fragment"),
    CallStarted: _taker(*_Started.__annotations__),
    ArgumentsDone: _taker("arguments"),
    ResponseEnded: _taker("outcome", "detail"),
    CallAborted: _taker("reason"),
    CallExpired: _taker("cause", "last_seq"),
}
