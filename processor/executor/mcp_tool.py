"""A tool of an MCP server: what is asked, and what its answer proves.

Rules:
    One start is one `tools/call`. Nothing below repeats it.
    The idempotency key and the trace travel in `_meta`, as `idempotencyKey`, `traceparent`, `tracestate`.
    A server's annotations are hints (so says MCP itself): they are compared and never believed.
    MCP carries numbers as JSON numbers; a fraction that a double cannot hold is refused, not rounded.
"""

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Protocol, cast

from processor.core._record import record
from processor.core.errors import Misuse
from processor.core.limits import Limits
from processor.core.strict_json import Fault, parse_strict
from processor.executor.context import ToolContext
from processor.executor.effect_key import effect_key, trace_of
from processor.executor.signals import NotSent, OutcomeUnknown, ToolFailed
from processor.policy.catalogue import CatalogueTool
from processor.policy.transports import McpServer, McpTool

_DEPTH_MAX: Final = Limits().depth_max

Problem = tuple[str, str | None, str]


@record
class ListedTool:
    """What a server says of a tool. Hints are None when it says nothing."""

    schema: Mapping[str, object]
    read_only_hint: bool | None
    idempotent_hint: bool | None


@record
class McpAnswer:
    """A result as JSON, without `_meta`; `is_error` when the tool itself says so."""

    body: bytes
    is_error: bool


class Session(Protocol):
    """One MCP server. Used on one event loop."""

    async def call(
        self, tool: str, arguments: dict[str, object], meta: dict[str, object], limit_s: float
    ) -> McpAnswer:
        """Ask once. Raises: `NotSent`, `OutcomeUnknown`, `ToolFailed` when the server refused."""
        ...

    async def listed(self) -> Mapping[str, ListedTool]:
        """Its tools. Raises: `NotSent`."""
        ...

    async def wait_for_end(self) -> None:
        """Until the session has ended by itself."""
        ...

    async def close(self) -> None:
        """End the session and, for a command, the process."""
        ...


class McpCall:
    """`call` is the function of the tool's declaration."""

    def __init__(self, session: Session, place: McpTool) -> None:
        self._session = session
        self._place = place

    async def call(self, arguments: bytes, context: ToolContext) -> object:
        """Ask the server. Raises: `NotSent`, `OutcomeUnknown`, `ToolFailed`."""
        meta: dict[str, object] = {
            "idempotencyKey": effect_key(context.tenant, context.idempotency_key),
            **trace_of(context.headers),
        }
        known = self._place.error_means == "failed"
        try:
            answer = await self._session.call(
                self._place.tool, exact_members(arguments), meta, context.attempt_deadline_s
            )
        except ToolFailed as refused:
            if known:
                raise
            raise OutcomeUnknown(refused.error_class) from None
        if not answer.is_error:
            return answer.body
        if known:
            raise ToolFailed("mcp_tool_error", result=answer.body)
        raise OutcomeUnknown("mcp_tool_error")


class McpConnections:
    """The servers that the tools of a catalogue need, each once."""

    def __init__(self) -> None:
        self.servers: dict[str, Session] = {}
        self.problems: list[Problem] = []
        self.start_timeout_s = 0.0
        self._wanted: list[tuple[CatalogueTool, McpTool]] = []

    def tool(
        self,
        tool: CatalogueTool,
        place: McpTool,
        server: McpServer,
        environment: Mapping[str, str],
    ) -> McpCall:
        """A tool on its server. Raises: `Misuse`, also when the MCP SDK is not installed."""
        if server.name not in self.servers:
            self.servers[server.name] = _session(server, environment)
            self.start_timeout_s = max(self.start_timeout_s, server.start_timeout_s)
        self._wanted.append((tool, place))
        return McpCall(self.servers[server.name], place)

    async def check(self) -> None:
        """Ask every server for its tools, all at once, and note what does not fit."""
        found = await asyncio.gather(*(self._check(name) for name in sorted(self.servers)))
        self.problems = [problem for problems in found for problem in problems]

    async def _check(self, server: str) -> list[Problem]:
        try:
            listed = await self.servers[server].listed()
        except NotSent as e:
            return [(server, None, e.word)]
        wanted = [(tool, place) for tool, place in self._wanted if place.server == server]
        return [
            (server, tool.name, code)
            for tool, place in wanted
            for code in differences(tool, listed.get(place.tool))
        ]

    async def close(self) -> None:
        """End every session."""
        await asyncio.gather(*(session.close() for session in self.servers.values()))


def differences(tool: CatalogueTool, listed: ListedTool | None) -> list[str]:
    """Words for what a server says otherwise than the catalogue."""
    if listed is None:
        return ["mcp_tool_missing"]
    found: list[str] = []
    if tool.schema is not None and tool.schema != listed.schema:
        found.append("mcp_schema_differs")
    if tool.effect_class == "read_only" and listed.read_only_hint is False:
        found.append("mcp_hint_not_read_only")
    if tool.effect_class == "idempotent" and listed.idempotent_hint is False:
        found.append("mcp_hint_not_idempotent")
    return found


def exact_members(arguments: bytes) -> dict[str, object]:
    """The arguments as an object whose numbers say exactly what the text says.

    Raises: `ToolFailed` when a number cannot.
    """
    parsed = parse_strict(arguments, depth_max=_DEPTH_MAX, decimals=True)
    if isinstance(parsed, Fault):
        raise ToolFailed(parsed.reason)
    return cast("dict[str, object]", _exact(parsed.value))


def _exact(value: object) -> object:
    if isinstance(value, dict):
        return {n: _exact(v) for n, v in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_exact(v) for v in cast("list[object]", value)]
    if isinstance(value, Decimal):
        number = float(value)
        if Decimal(repr(number)) != value:
            raise ToolFailed("number_not_exact")
        return number
    return value


def _session(server: McpServer, environment: Mapping[str, str]) -> Session:
    try:
        from processor.executor.mcp_session import McpSession
    except ImportError as e:
        if e.name is None or not e.name.startswith(("mcp", "httpx2", "anyio")):
            raise
        raise Misuse(
            f"mcp_servers.{server.name}: the MCP SDK is not installed:"
            " install toolcall-processor[mcp]"
        ) from None
    return McpSession(server, environment)
