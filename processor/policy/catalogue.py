"""The tool catalogue: what the platform team states about each tool, read from YAML.

Rules:
    Parsing is pure: the caller reads the file and passes its text.
    What is not known is refused: an unknown field, a field twice, an alias, a value that is not JSON.
    A tool that is not listed is `at_most_once` and has no schema.
    The digest names the meaning, not the layout: comments and the order of members do not change it.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, cast, get_args

import rfc8785

from processor.core._record import record
from processor.core.errors import Misuse
from processor.core.events import ArgumentsFormat
from processor.core.gate import UNLISTED, ToolRule
from processor.core.outcomes import EffectClass
from processor.policy.nodes import Node, choice, compose, number, text_of, whole
from processor.policy.schema import compile_schema
from processor.policy.transports import (
    HttpEndpoint,
    McpServer,
    McpTool,
    Reconcile,
    mcp_servers,
    transport_of,
)

#: A catalogue is written by people; a larger text is a mistake or an attack.
CATALOGUE_BYTES_MAX: Final = 4 * 1024 * 1024
VERSION: Final = 1

TIMEOUT_S_DEFAULT: Final = 30.0
MAX_ATTEMPTS_DEFAULT: Final = 3
CONCURRENCY_DEFAULT: Final = 8
#: How long payment services are known to remember an idempotency key.
REDRIVE_WINDOW_S_DEFAULT: Final = 86_400.0

_EFFECT_CLASSES: Final = frozenset(get_args(EffectClass))
_FORMATS: Final = frozenset(get_args(ArgumentsFormat))


@record
class CatalogueTool:
    """What is stated about one tool. Times are seconds.

    `max_attempts` bounds the starts of one call, for classes that may start again.
    `redrive_window_s` is how long the system behind an `idempotent` tool remembers the key. `remote` says
    where the tool is, when the executor calls it without a Python function; `reconcile` whom to ask what
    became of a call in doubt. `schema` is what `validate` was compiled from.
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
    schema: dict[str, object] | None = None
    remote: HttpEndpoint | McpTool | None = None
    reconcile: Reconcile | None = None


class Catalogue:
    """The tools by name, and the digest that every verdict carries. Safe to share."""

    def __init__(
        self,
        tools: Mapping[str, CatalogueTool],
        digest: str,
        servers: Mapping[str, McpServer] | None = None,
    ) -> None:
        self._tools = dict(tools)
        self._servers = dict(servers or {})
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

    def server(self, name: str) -> McpServer | None:
        """How to reach an MCP server, or None when it is not listed."""
        return self._servers.get(name)


def parse_catalogue(text: str, file: str = "catalogue.yaml") -> Catalogue:
    """Read a catalogue; `file` names it in errors.

    Raises: `Misuse` naming file, line and field; all of a file's first mistake, not of the later.
    """
    if len(text.encode()) > CATALOGUE_BYTES_MAX:
        raise Misuse(f"{file} has more than {CATALOGUE_BYTES_MAX} bytes")
    root = Node(file, "", compose(text, file))
    members = root.members()
    root.only(members, {"version", "tools", "mcp_servers"})
    version = members.get("version")
    if version is None or version.value() != VERSION:
        raise (version or root).misuse(f"version must be {VERSION}")
    listed = members["tools"].members() if "tools" in members else {}
    servers = mcp_servers(members.get("mcp_servers"))
    tools = {name: _tool(name, node, servers) for name, node in listed.items()}
    return Catalogue(tools, _digest(root), servers)


def _digest(root: Node) -> str:
    try:
        canonical = rfc8785.dumps(cast("dict[str, str]", root.value()))
    except rfc8785.CanonicalizationError:
        raise root.misuse("a number in it has no exact canonical form (beyond 2^53)") from None
    return hashlib.sha256(canonical).hexdigest()


def _tool(name: str, node: Node, servers: Mapping[str, McpServer]) -> CatalogueTool:
    m = node.members()
    node.only(m, _FIELDS)
    schema = m.get("schema")
    arguments = choice(m, "arguments", _FORMATS, "json")
    if arguments == "text" and schema is not None:
        raise schema.misuse("a tool with free-text arguments has no schema")
    effect_class = cast("EffectClass", choice(m, "effect_class", _EFFECT_CLASSES, "at_most_once"))
    remote, reconcile = transport_of(
        name, m, effect_class, cast("ArgumentsFormat", arguments), servers
    )
    object_of_schema = None if schema is None else schema.json_object()
    return CatalogueTool(
        name=name,
        effect_class=effect_class,
        description=text_of(m, "description"),
        arguments=cast("ArgumentsFormat", arguments),
        empty_arguments_allowed=choice(m, "empty_arguments", _EMPTY, "reject") == "object",
        validate=compile_schema(object_of_schema, schema.where())
        if schema is not None and object_of_schema is not None
        else None,
        timeout_s=number(m, "timeout_s", TIMEOUT_S_DEFAULT, 86_400),
        max_attempts=whole(m, "max_attempts", MAX_ATTEMPTS_DEFAULT, 1000),
        concurrency=whole(m, "concurrency", CONCURRENCY_DEFAULT, 10_000),
        redrive_window_s=number(m, "redrive_window_s", REDRIVE_WINDOW_S_DEFAULT, 31_536_000),
        schema=object_of_schema,
        remote=remote,
        reconcile=reconcile,
    )


_EMPTY: Final = frozenset({"object", "reject"})
_FIELDS: Final = frozenset(
    {
        "arguments",
        "concurrency",
        "description",
        "effect_class",
        "empty_arguments",
        "http",
        "max_attempts",
        "mcp",
        "reconcile",
        "redrive_window_s",
        "schema",
        "timeout_s",
    }
)
