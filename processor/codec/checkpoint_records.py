"""Checkpoints of tracked calls to Kafka values and back; the assembler's own, for nobody else.

Rules:
    The key is `<group> NUL <call key>`: two groups on one topic do not overwrite each other.
    The state has every slot of a call, since a restart goes on from it as if it had never stopped.
    It belongs to one version of the fold: another version reads none of it.
    An empty state says that the key was forgotten.
"""

from typing import Final, TypedDict, cast, get_args

from processor.codec.avro import load_record_schema
from processor.codec.avro_datum import compile_schema, read_datum
from processor.codec.event_fields import fields_of
from processor.codec.framed import read_framed, write_framed
from processor.codec.varint import Malformed, read_long, write_long
from processor.core.call import Call, Item, State
from processor.core.checkpoint import Checkpoint
from processor.core.errors import InvariantViolated
from processor.core.events import ArgumentsDone, ArgumentsFormat, CallStarted
from processor.core.judgement import Judged
from processor.resources import schemas_dir

OPEN_CALL_CHECKPOINT: Final = load_record_schema(schemas_dir(), "OpenCallCheckpoint")

_SEPARATOR: Final = b"\0"
_STATES: Final = [state.value for state in State]
_NUMBERS: Final = (
    "first_offset",
    "first_ms",
    "last_ms",
    "need_time_ms",
    "room_bytes",
    "last_seq",
    "duplicates",
    "repeat_offset",
    "repeat_ms",
)


def _maybe(kind: object) -> object:
    return ["null", kind]


_STARTED: Final = {
    "type": "record",
    "name": "Started",
    "fields": [
        *(
            {"name": name, "type": "string"}
            for name in ("tenant", "request_id", "response_id", "call_id", "tool", "dialect")
        ),
        {"name": "item_id", "type": _maybe("string")},
        {"name": "output_index", "type": _maybe("int")},
        {"name": "model", "type": _maybe("string")},
        {
            "name": "arguments_format",
            "type": {
                "type": "enum",
                "name": "Format",
                "symbols": list(get_args(ArgumentsFormat)),
            },
        },
    ],
}
_STATE: Final = compile_schema(
    {
        "type": "record",
        "name": "State",
        "fields": [
            {
                "name": "state",
                "type": {"type": "enum", "name": "Where", "symbols": _STATES},
            },
            *({"name": name, "type": "long"} for name in _NUMBERS),
            {"name": "started", "type": _maybe(_STARTED)},
            {"name": "begun", "type": "boolean"},
            {"name": "buffer", "type": "bytes"},
            {"name": "lengths", "type": "bytes"},
            {"name": "copies", "type": "bytes"},
            {"name": "text", "type": _maybe("bytes")},
            {"name": "final_copy_seen", "type": "boolean"},
            {"name": "outcome", "type": _maybe("string")},
            {"name": "is_judged", "type": "boolean"},
            {"name": "accepted", "type": _maybe("bytes")},
            {"name": "canonical_sha256", "type": _maybe("bytes")},
        ],
    }
)


class _State(TypedDict):
    state: str
    started: dict[str, object] | None
    begun: bool
    buffer: bytes
    lengths: bytes
    copies: bytes
    text: bytes | None
    final_copy_seen: bool
    outcome: str | None
    is_judged: bool
    accepted: bytes | None
    canonical_sha256: bytes | None


class UnreadableCheckpoint(InvariantViolated):
    """A checkpoint is not what this program writes; the text says why."""

    code = "checkpoint_unreadable"


def checkpoint_key(group: str, key: bytes) -> bytes:
    """Record key of a checkpoint."""
    return group.encode() + _SEPARATOR + key


def call_key_of(group: str, record_key: bytes | None) -> bytes | None:
    """The call key of one of the group's own checkpoints; None for another group's."""
    own = group.encode() + _SEPARATOR
    if record_key is None or not record_key.startswith(own):
        return None
    return record_key[len(own) :]


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Value of a checkpoint. Cost: about 15 µs and the buffer."""
    call = checkpoint.call
    state = b"" if call is None else _STATE.write(_fields_of(call))
    return write_framed(
        OPEN_CALL_CHECKPOINT, {"as_of": checkpoint.as_of, "state": state}, schema_id=None
    )


def decode_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """Read a checkpoint of the call `key`. Raises: `UnreadableCheckpoint`, `Undecodable`."""
    fields = read_framed(OPEN_CALL_CHECKPOINT, value)
    as_of, state = cast("int", fields["as_of"]), cast("bytes", fields["state"])
    if not state:
        return Checkpoint(key, as_of, None)
    try:
        call = _call_from(cast("dict[str, object]", read_datum(_STATE.read, state, 0)), as_of)
    except Malformed as e:
        raise UnreadableCheckpoint(f"a checkpoint of {len(state)} bytes: {e}") from e
    return Checkpoint(key, as_of, call)


def _fields_of(call: Call) -> dict[str, object]:
    items = call.items
    pieces = [item for item in items if type(item) is bytes]
    buffer = b"".join(pieces)
    judged, started = call.judged, call.started
    return {
        "state": call.state.value,
        **{name: getattr(call, name) for name in _NUMBERS},
        "started": None if started is None else fields_of(started),
        "begun": bool(items),
        "buffer": buffer,
        "lengths": b"".join(write_long(len(piece)) for piece in pieces),
        "copies": bytes(i.arguments is not None for i in items if isinstance(i, ArgumentsDone)),
        # Null stands for the same bytes once more: they are most of what is written.
        "text": None if call.text == buffer else call.text,
        "final_copy_seen": call.final_copy_seen,
        "outcome": call.outcome,
        "is_judged": judged is not None,
        "accepted": None if judged is None or judged.arguments == call.text else judged.arguments,
        "canonical_sha256": None if judged is None else judged.canonical_sha256,
    }


def _call_from(fields: dict[str, object], as_of: int) -> Call:
    given = cast("_State", fields)
    numbers = {name: cast("int", fields[name]) for name in _NUMBERS}
    call = Call(numbers["first_offset"], numbers["first_ms"], -1, 0)
    for name, number in numbers.items():
        setattr(call, name, number)
    call.need_offset = as_of
    call.state = State(given["state"])
    if given["started"] is not None:
        call.started = CallStarted(**given["started"])  # type: ignore[arg-type]  # the schema's types
    call.text = given["buffer"] if given["text"] is None else given["text"]
    call.items = _items(given, call)
    call.final_copy_seen = given["final_copy_seen"]
    call.outcome = given["outcome"]
    if given["is_judged"]:
        accepted = call.text if given["accepted"] is None else given["accepted"]
        call.judged = Judged(accepted, given["canonical_sha256"])
    return call


def _items(given: _State, call: Call) -> list[Item]:
    if not given["begun"]:
        return []
    items: list[Item] = [call.begun()]
    buffer, lengths, at, start = given["buffer"], given["lengths"], 0, 0
    while at < len(lengths):
        size, at = read_long(lengths, at)
        items.append(buffer[start : start + size])
        start += size
    if start != len(buffer):
        raise Malformed("its pieces are not its buffer")
    copy = ArgumentsDone(call.text)
    return [*items, *(copy if has_text else ArgumentsDone() for has_text in given["copies"])]
