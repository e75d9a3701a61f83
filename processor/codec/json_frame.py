"""Events as JSON texts: `{"seq":3,"type":"ArgumentsDelta","fragment":"..."}`.

Rules:
    Strict JSON, one flat object. A member that the type does not have is refused, not ignored: a
    misspelt one would otherwise be a lost field.
    Bytes are given as text; so a fragment must be cut between characters, unlike in Avro.
    Optional members may be left out or null. `at` is epoch milliseconds, optional.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, get_args

from processor.codec.dead_letter_codes import Undecodable
from processor.codec.event_fields import event_from
from processor.codec.fields import InvalidField
from processor.core.events import (
    RESPONSE_OUTCOMES,
    ArgumentsFormat,
    ExpiryCause,
    StreamEvent,
)
from processor.core.strict_json import Fault, JsonValue, parse_strict


class _Member(NamedTuple):
    """Rule of one member: `kind` is text, bytes or integer; `symbols` closes a list of texts."""

    kind: str
    needed: bool = True
    default: object = None
    symbols: frozenset[str] = frozenset()


_TEXT: Final = _Member("text")
_MAYBE_TEXT: Final = _Member("text", needed=False)

_MEMBERS: Final[dict[str, dict[str, _Member]]] = {
    "ArgumentsDelta": {"fragment": _Member("bytes")},
    "CallStarted": {
        "tenant": _TEXT,
        "request_id": _TEXT,
        "response_id": _TEXT,
        "call_id": _TEXT,
        "item_id": _MAYBE_TEXT,
        "output_index": _Member("integer", needed=False),
        "tool": _TEXT,
        "dialect": _TEXT,
        "model": _MAYBE_TEXT,
        "arguments_format": _Member(
            "text", needed=False, default="json", symbols=frozenset(get_args(ArgumentsFormat))
        ),
    },
    "ArgumentsDone": {"arguments": _Member("bytes", needed=False)},
    "ResponseEnded": {
        "outcome": _Member("text", symbols=RESPONSE_OUTCOMES),
        "detail": _MAYBE_TEXT,
    },
    "CallAborted": {"reason": _TEXT},
    "CallExpired": {
        "cause": _Member("text", symbols=frozenset(get_args(ExpiryCause))),
        "last_seq": _Member("integer"),
    },
}
_ENVELOPE: Final = frozenset({"seq", "at", "type"})


def read_json_event(value: bytes) -> StreamEvent:
    """Read one event. Cost: about 10 µs. Raises: `Undecodable`, `InvalidField`."""
    parsed = parse_strict(value, depth_max=1)
    if isinstance(parsed, Fault):
        raise Undecodable("malformed_json", f"{parsed.reason} {parsed.detail}")
    given = parsed.value
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in _MEMBERS:
        raise InvalidField(f"type is none of {', '.join(_MEMBERS)}")
    rules = _MEMBERS[kind]
    unknown_count = len(given.keys() - rules.keys() - _ENVELOPE)
    if unknown_count:
        raise InvalidField(f"{unknown_count} members are not those of {kind}")
    seq = _integer("seq", given.get("seq"))
    at_ms = 0 if given.get("at") is None else _integer("at", given["at"])
    return event_from(seq, at_ms, kind, {name: _read(name, given, rules[name]) for name in rules})


def _integer(name: str, value: object) -> int:
    if type(value) is not int:
        raise InvalidField(f"{name} is no whole number")
    return value


def _read(name: str, given: Mapping[str, JsonValue], rule: _Member) -> object:
    value = given.get(name)
    if value is None:
        if rule.needed:
            raise InvalidField(f"{name} is missing")
        return rule.default
    if rule.kind == "integer":
        return _integer(name, value)
    if not isinstance(value, str):
        raise InvalidField(f"{name} is no text")
    if rule.symbols and value not in rule.symbols:
        raise InvalidField(f"{name} is none of {', '.join(sorted(rule.symbols))}")
    return value.encode() if rule.kind == "bytes" else value
