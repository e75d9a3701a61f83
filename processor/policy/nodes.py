"""A catalogue's YAML as nodes that know their place: errors name file, line and field.

Rules:
    What would cost memory or stack is refused before a tree is built: aliases, depth.
    Values are those of JSON, in the spellings of JSON; dates, `no` and 010 are refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, cast

import yaml

from processor.core.errors import Misuse

#: Nesting of a schema that a person can still read, and that the parser's stack can take.
DEPTH_MAX: Final = 64

#: The parser in C, where the package has it, is about ten times faster.
_LOADER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def choice(members: Mapping[str, "Node"], field: str, allowed: frozenset[str], default: str) -> str:
    """One of `allowed`, or the default when the field is not there. Raises: `Misuse`."""
    node = members.get(field)
    if node is None:
        return default
    value = node.value()
    if not isinstance(value, str) or value not in allowed:
        raise node.misuse(f"must be one of {', '.join(sorted(allowed))}")
    return value


def text_of(members: Mapping[str, "Node"], field: str) -> str | None:
    """A text, or None when the field is not there. Raises: `Misuse`."""
    node = members.get(field)
    if node is None:
        return None
    value = node.value()
    if not isinstance(value, str):
        raise node.misuse("must be a text")
    return value


def number(members: Mapping[str, "Node"], field: str, default: float, at_most: float) -> float:
    """A number above 0, or the default when the field is not there. Raises: `Misuse`."""
    node = members.get(field)
    if node is None:
        return default
    value = node.value()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= at_most:
        raise node.misuse(f"must be a number above 0 and at most {at_most:g}")
    return float(value)


def whole(members: Mapping[str, "Node"], field: str, default: int, at_most: int) -> int:
    """A whole number from 1, or the default when the field is not there. Raises: `Misuse`."""
    node = members.get(field)
    if node is None:
        return default
    value = node.value()
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= at_most:
        raise node.misuse(f"must be a whole number from 1 to {at_most}")
    return value


def compose(text: str, file: str) -> yaml.Node:
    """The root of the text. Raises: `Misuse` naming file and line."""
    try:
        _check_events(text, file)
        node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark
        at = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise Misuse(f"{file}{at}: not YAML: {e.problem or 'cannot be read'}") from None
    except yaml.YAMLError as e:
        raise Misuse(f"{file}: not YAML ({type(e).__name__})") from None
    if node is None:
        raise Misuse(f"{file} is empty: it needs `version: 1` and `tools:`")
    return node


def _check_events(text: str, file: str) -> None:
    """Refuse what would cost memory or stack, before the tree is built."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            # Ten lines of aliases to aliases unfold into gigabytes.
            raise Misuse(f"{file}:{line}: aliases are not allowed; a schema can use $defs")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise Misuse(f"{file}:{line}: more than {DEPTH_MAX} levels deep")


class Node:
    """A YAML node that knows its place: errors name file, line and field."""

    __slots__ = ("_field", "_file", "_node")

    def __init__(self, file: str, field: str, node: yaml.Node) -> None:
        self._file = file
        self._field = field
        self._node = node

    def where(self) -> str:
        """File, line and field."""
        line = self._node.start_mark.line + 1
        return f"{self._file}:{line}: {self._field}" if self._field else f"{self._file}:{line}"

    def misuse(self, problem: str) -> Misuse:
        """The error for a mistake here."""
        return Misuse(f"{self.where()}: {problem}")

    def only(self, members: Mapping[str, "Node"], allowed: frozenset[str] | set[str]) -> None:
        """Refuse a member that is not among `allowed`. Raises: `Misuse`."""
        for name, node in members.items():
            if name not in allowed:
                raise node.misuse(f"unknown field; known are {', '.join(sorted(allowed))}")

    def members(self) -> dict[str, "Node"]:
        """The members of a mapping, by name. Raises: `Misuse`, also for a name that is there twice."""
        if self._node.tag != _MAPPING:
            raise self.misuse("must be a mapping")
        found: dict[str, Node] = {}
        pairs = cast("list[tuple[yaml.Node, yaml.Node]]", self._node.value)
        for name_node, value_node in pairs:
            name = name_node.value
            if name_node.tag != "tag:yaml.org,2002:str" or not isinstance(name, str):
                line = name_node.start_mark.line + 1
                raise self.misuse(f"line {line}: a member name must be a text: put it in quotes")
            field = f"{self._field}.{name}" if self._field else name
            node = Node(self._file, field, value_node)
            if name in found:
                raise node.misuse("is there twice")
            found[name] = node
        return found

    def json_object(self) -> dict[str, object]:
        """The value of a mapping. Raises: `Misuse`."""
        value = self.value()
        if not isinstance(value, dict):
            raise self.misuse("must be a mapping")
        return cast("dict[str, object]", value)

    def texts(self) -> tuple[str, ...]:
        """The items of a list of texts. Raises: `Misuse`."""
        value = self.value()
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(item, str) for item in items):
            raise self.misuse("must be a list of texts")
        return tuple(str(item) for item in items)

    def value(self) -> object:
        """The value as JSON would hold it. Raises: `Misuse` for dates, binaries and the like."""
        if self._node.tag == _MAPPING:
            return {name: node.value() for name, node in self.members().items()}
        if self._node.tag == _SEQUENCE:
            items = cast("list[yaml.Node]", self._node.value)
            return [
                Node(self._file, f"{self._field}[{i}]", item).value()
                for i, item in enumerate(items)
            ]
        scalar = _SCALARS.get(self._node.tag)
        if scalar is None:
            kind = self._node.tag.rpartition(":")[2]
            raise self.misuse(f"a YAML {kind} is not JSON: put the text in quotes")
        try:
            return scalar(str(self._node.value))
        except (KeyError, ValueError):
            raise self.misuse(
                "YAML reads this as something else than JSON does: put a text in quotes, write"
                " numbers as in JSON, and true or false"
            ) from None


def _text_scalar(text: str) -> object:
    return text


def _null(text: str) -> object:
    if text not in {"", "~", "null"}:
        raise ValueError(text)
    return None


def _boolean(text: str) -> object:
    return {"true": True, "false": False}[text]


def _integer(text: str) -> object:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _float(text: str) -> object:
    if _FLOAT.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


# YAML 1.1 reads `no` as false, 010 as eight and 1:30 as ninety. Only the spellings of JSON are taken.
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,30})")
_FLOAT: Final = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+([eE][+-]?[0-9]{1,2})?")

_MAPPING: Final = "tag:yaml.org,2002:map"
_SEQUENCE: Final = "tag:yaml.org,2002:seq"
_SCALARS: Final[dict[str, Callable[[str], object]]] = {
    "tag:yaml.org,2002:str": _text_scalar,
    "tag:yaml.org,2002:null": _null,
    "tag:yaml.org,2002:bool": _boolean,
    "tag:yaml.org,2002:int": _integer,
    "tag:yaml.org,2002:float": _float,
}
