"""Records as one flat JSON object: which members each kind has, and how they are read.

Rules:
    Strict JSON, one flat object. A member that the kind does not have is refused, not ignored: a
    misspelt one would otherwise be a lost field.
    Bytes are given as text. Optional members may be left out or null.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from processor.codec.dead_letter_codes import Undecodable
from processor.codec.fields import InvalidField
from processor.core.strict_json import Fault, JsonValue, parse_strict


class Member(NamedTuple):
    """Rule of one member; `symbols` closes a list of texts."""

    kind: Literal["text", "bytes", "integer", "boolean"]
    needed: bool = True
    default: object = None
    symbols: frozenset[str] = frozenset()


Members = Mapping[str, Member]


class FlatObject:
    """A parsed object, of which members are taken by their rules.

    Raises: `Undecodable` (malformed_json) when the text is no strict, flat JSON object.
    """

    def __init__(self, value: bytes) -> None:
        parsed = parse_strict(value, depth_max=1)
        if isinstance(parsed, Fault):
            raise Undecodable("malformed_json", f"{parsed.reason} {parsed.detail}")
        self._given = parsed.value

    def kind(self, kinds: Mapping[str, Members]) -> str:
        """The member `type`, one of `kinds`. Raises: `InvalidField`."""
        kind = self._given.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            raise InvalidField(f"type is none of {', '.join(kinds)}")
        return kind

    def take(self, kind: str, *rules: Members) -> dict[str, object]:
        """The members of `rules`; there may be no others but `type`. Raises: `InvalidField`."""
        known: set[str] = {"type"}.union(*rules)
        unknown_count = len(self._given.keys() - known)
        if unknown_count:
            raise InvalidField(f"{unknown_count} members are not those of {kind}")
        return {
            name: _read(name, self._given.get(name), rule)
            for members in rules
            for name, rule in members.items()
        }


def _read(name: str, value: JsonValue, rule: Member) -> object:
    if value is None:
        if rule.needed:
            raise InvalidField(f"{name} is missing")
        return rule.default
    if rule.kind == "integer":
        if type(value) is not int:
            raise InvalidField(f"{name} is no whole number")
        return value
    if rule.kind == "boolean":
        if not isinstance(value, bool):
            raise InvalidField(f"{name} is not true or false")
        return value
    if not isinstance(value, str):
        raise InvalidField(f"{name} is no text")
    if rule.symbols and value not in rule.symbols:
        raise InvalidField(f"{name} is none of {', '.join(sorted(rule.symbols))}")
    return value.encode() if rule.kind == "bytes" else value
