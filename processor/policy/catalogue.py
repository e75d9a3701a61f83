"""The tool catalogue: what the platform team states about each tool, read from YAML.

Rules:
    Parsing is pure: the caller reads the file and passes its text.
    What is not known is refused: an unknown field, a field twice, an alias, a value that is not JSON.
    A tool that is not listed is `at_most_once` and has no schema.
    The digest names the meaning, not the layout: comments and the order of members do not change it.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final, cast, get_args

import rfc8785
import yaml

from processor.core._record import record
from processor.core.errors import Misuse
from processor.core.events import ArgumentsFormat
from processor.core.gate import UNLISTED, ToolRule
from processor.core.outcomes import EffectClass
from processor.policy.schema import compile_schema

#: A catalogue is written by people; a larger text is a mistake or an attack.
CATALOGUE_BYTES_MAX: Final = 4 * 1024 * 1024
#: Nesting of a schema that a person can still read, and that the parser's stack can take.
DEPTH_MAX: Final = 64
VERSION: Final = 1

TIMEOUT_S_DEFAULT: Final = 30.0
MAX_ATTEMPTS_DEFAULT: Final = 3
CONCURRENCY_DEFAULT: Final = 8
#: How long payment services are known to remember an idempotency key.
REDRIVE_WINDOW_S_DEFAULT: Final = 86_400.0

#: The parser in C, where the package has it, is about ten times faster.
_LOADER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

_EFFECT_CLASSES: Final = frozenset(get_args(EffectClass))
_FORMATS: Final = frozenset(get_args(ArgumentsFormat))


@record
class CatalogueTool:
    """What is stated about one tool. Times are seconds.

    `max_attempts` bounds the starts of one call, for classes that may start again.
    `redrive_window_s` is how long the system behind an `idempotent` tool remembers the key.
    """

    name: str
    effect_class: EffectClass
    description: str | None
    arguments: ArgumentsFormat
    empty_arguments_allowed: bool
    validate: Callable[[object], str | None] | None
    timeout_s: float
    max_attempts: int
    concurrency: int
    redrive_window_s: float


class Catalogue:
    """The tools by name, and the digest that every verdict carries. Safe to share."""

    def __init__(self, tools: Mapping[str, CatalogueTool], digest: str) -> None:
        self._tools = dict(tools)
        self._rules = {
            name: ToolRule(t.effect_class, t.empty_arguments_allowed, t.validate)
            for name, t in tools.items()
        }
        self._digest = digest

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the canonical form of the whole catalogue."""
        return self._digest

    def rule(self, tool: str) -> ToolRule:
        """What the assembler must know of `tool`; for an unlisted one the pessimistic rule."""
        return self._rules.get(tool, UNLISTED)

    def tool(self, name: str) -> CatalogueTool | None:
        """Everything stated about a tool, or None when it is not listed."""
        return self._tools.get(name)

    def names(self) -> frozenset[str]:
        """The listed names."""
        return frozenset(self._tools)


def parse_catalogue(text: str, file: str = "catalogue.yaml") -> Catalogue:
    """Read a catalogue; `file` names it in errors.

    Raises: `Misuse` naming file, line and field; all of a file's first mistake, not of the later.
    """
    if len(text.encode()) > CATALOGUE_BYTES_MAX:
        raise Misuse(f"{file} has more than {CATALOGUE_BYTES_MAX} bytes")
    root = _Node(file, "", _compose(text, file))
    members = root.members()
    root.only(members, {"version", "tools"})
    version = members.get("version")
    if version is None or version.value() != VERSION:
        raise (version or root).misuse(f"version must be {VERSION}")
    listed = members["tools"].members() if "tools" in members else {}
    tools = {name: _tool(name, node) for name, node in listed.items()}
    return Catalogue(tools, _digest(root))


def _digest(root: "_Node") -> str:
    try:
        canonical = rfc8785.dumps(cast("dict[str, str]", root.value()))
    except rfc8785.CanonicalizationError:
        raise root.misuse("a number in it has no exact canonical form (beyond 2^53)") from None
    return hashlib.sha256(canonical).hexdigest()


def _tool(name: str, node: "_Node") -> CatalogueTool:
    m = node.members()
    node.only(m, _FIELDS)
    schema = m.get("schema")
    arguments = _choice(m, "arguments", _FORMATS, "json")
    if arguments == "text" and schema is not None:
        raise schema.misuse("a tool with free-text arguments has no schema")
    effect_class = _choice(m, "effect_class", _EFFECT_CLASSES, "at_most_once")
    return CatalogueTool(
        name=name,
        effect_class=cast("EffectClass", effect_class),
        description=_text(m, "description"),
        arguments=cast("ArgumentsFormat", arguments),
        empty_arguments_allowed=_choice(m, "empty_arguments", _EMPTY, "reject") == "object",
        validate=None if schema is None else compile_schema(schema.json_object(), schema.where()),
        timeout_s=_number(m, "timeout_s", TIMEOUT_S_DEFAULT, 86_400),
        max_attempts=_whole(m, "max_attempts", MAX_ATTEMPTS_DEFAULT, 1000),
        concurrency=_whole(m, "concurrency", CONCURRENCY_DEFAULT, 10_000),
        redrive_window_s=_number(m, "redrive_window_s", REDRIVE_WINDOW_S_DEFAULT, 31_536_000),
    )


_EMPTY: Final = frozenset({"object", "reject"})
_FIELDS: Final = frozenset(
    {
        "arguments",
        "concurrency",
        "description",
        "effect_class",
        "empty_arguments",
        "max_attempts",
        "redrive_window_s",
        "schema",
        "timeout_s",
    }
)


def _choice(
    members: Mapping[str, "_Node"], field: str, allowed: frozenset[str], default: str
) -> str:
    node = members.get(field)
    if node is None:
        return default
    value = node.value()
    if not isinstance(value, str) or value not in allowed:
        raise node.misuse(f"must be one of {', '.join(sorted(allowed))}")
    return value


def _text(members: Mapping[str, "_Node"], field: str) -> str | None:
    node = members.get(field)
    if node is None:
        return None
    value = node.value()
    if not isinstance(value, str):
        raise node.misuse("must be a text")
    return value


def _number(members: Mapping[str, "_Node"], field: str, default: float, at_most: float) -> float:
    node = members.get(field)
    if node is None:
        return default
    value = node.value()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= at_most:
        raise node.misuse(f"must be a number above 0 and at most {at_most:g}")
    return float(value)


def _whole(members: Mapping[str, "_Node"], field: str, default: int, at_most: int) -> int:
    node = members.get(field)
    if node is None:
        return default
    value = node.value()
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= at_most:
        raise node.misuse(f"must be a whole number from 1 to {at_most}")
    return value


def _compose(text: str, file: str) -> yaml.Node:
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
        raise Misuse(f"{file} is empty: it needs `version: {VERSION}` and `tools:`")
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


class _Node:
    """A YAML node that knows its place: errors name file, line and field."""

    __slots__ = ("_field", "_file", "_node")

    def __init__(self, file: str, field: str, node: yaml.Node) -> None:
        self._file = file
        self._field = field
        self._node = node

    def where(self) -> str:
        line = self._node.start_mark.line + 1
        return f"{self._file}:{line}: {self._field}" if self._field else f"{self._file}:{line}"

    def misuse(self, problem: str) -> Misuse:
        return Misuse(f"{self.where()}: {problem}")

    def only(self, members: Mapping[str, "_Node"], allowed: frozenset[str] | set[str]) -> None:
        for name, node in members.items():
            if name not in allowed:
                raise node.misuse(f"unknown field; known are {', '.join(sorted(allowed))}")

    def members(self) -> dict[str, "_Node"]:
        if self._node.tag != _MAPPING:
            raise self.misuse("must be a mapping")
        found: dict[str, _Node] = {}
        pairs = cast("list[tuple[yaml.Node, yaml.Node]]", self._node.value)
        for name_node, value_node in pairs:
            name = name_node.value
            if name_node.tag != "tag:yaml.org,2002:str" or not isinstance(name, str):
                line = name_node.start_mark.line + 1
                raise self.misuse(f"line {line}: a member name must be a text: put it in quotes")
            field = f"{self._field}.{name}" if self._field else name
            node = _Node(self._file, field, value_node)
            if name in found:
                raise node.misuse("is there twice")
            found[name] = node
        return found

    def json_object(self) -> dict[str, object]:
        value = self.value()
        if not isinstance(value, dict):
            raise self.misuse("must be a mapping")
        return cast("dict[str, object]", value)

    def value(self) -> object:
        """The value as JSON would hold it; dates, binaries and the like are refused."""
        if self._node.tag == _MAPPING:
            return {name: node.value() for name, node in self.members().items()}
        if self._node.tag == _SEQUENCE:
            items = cast("list[yaml.Node]", self._node.value)
            return [
                _Node(self._file, f"{self._field}[{i}]", item).value()
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
