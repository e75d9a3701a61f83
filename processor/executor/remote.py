"""The tools of a catalogue that are no Python functions, and the connections behind them.

Rules:
    Everything is read and filled before anything is started: a missing variable or a wrong URL is named
    by its place in the catalogue.
    They share an event loop of their own, so no tool of a user's can hold it up.
"""

from collections.abc import Mapping
from typing import Final

from processor.core._record import record
from processor.core.errors import Misuse
from processor.core.outcomes import EffectClass
from processor.executor.http_lookup import HttpLookup
from processor.executor.http_tool import HttpClient, HttpTool
from processor.executor.invoke import EventLoop
from processor.executor.mcp_tool import McpCall, McpConnections
from processor.executor.served import Lookup
from processor.executor.tools import ToolDeclaration
from processor.policy.catalogue import Catalogue, CatalogueTool
from processor.policy.transports import HttpEndpoint, McpTool

#: Classes that may start twice, so that a doubt about a kept connection costs only a repetition.
_REPEATABLE: Final[frozenset[EffectClass]] = frozenset({"read_only", "idempotent"})
_PARAMETERS: Final = frozenset({"arguments", "context"})
_CLOSE_S: Final = 10.0


@record
class ServerProblem:
    """Something that a server says and the catalogue says otherwise; words only."""

    server: str
    tool: str | None
    code: str


class RemoteTools:
    """Built from a catalogue and the environment. `close` ends connections and child processes.

    Raises: `Misuse` naming the place in the catalogue.
    """

    def __init__(self, catalogue: Catalogue, environment: Mapping[str, str]) -> None:
        self._clients: list[HttpClient] = []
        self._mcp = McpConnections()
        listed = [t for name in sorted(catalogue.names()) if (t := catalogue.tool(name))]
        functions = {
            t.name: function
            for t in listed
            if (function := self._function(t, catalogue, environment)) is not None
        }
        lookups = {
            t.name: HttpLookup(self._client(t.reconcile.endpoint, environment, t), t.reconcile)
            for t in listed
            if t.reconcile is not None
        }
        self._loop = EventLoop(trusted=True) if functions or lookups else None
        self.declarations = [
            ToolDeclaration(
                name=t.name,
                function=functions[t.name].call,
                arguments=t.arguments,
                parameters=_PARAMETERS,
                exact_bytes=True,
                loop=self._loop,
            )
            for t in listed
            if t.name in functions
        ]
        self.lookups = {
            t.name: Lookup(lookups[t.name].ask, t.reconcile.absent_after_s, True, self._loop)  # noqa: FBT003 - a record's field
            for t in listed
            if t.reconcile is not None
        }

    def _function(
        self, tool: CatalogueTool, catalogue: Catalogue, environment: Mapping[str, str]
    ) -> HttpTool | McpCall | None:
        match tool.remote:
            case HttpEndpoint() as endpoint:
                return HttpTool(self._client(endpoint, environment, tool), tool.arguments)
            case McpTool() as place:
                server = catalogue.server(place.server)
                if server is None:
                    raise Misuse(f"tool {tool.name}: no MCP server is named {place.server}")
                return self._mcp.tool(tool, place, server, environment)
            case None:
                return None

    def _client(
        self, endpoint: HttpEndpoint, environment: Mapping[str, str], tool: CatalogueTool
    ) -> HttpClient:
        client = HttpClient(
            endpoint,
            environment,
            keep=tool.effect_class in _REPEATABLE,
            connections=tool.concurrency,
        )
        self._clients.append(client)
        return client

    def check(self) -> list[ServerProblem]:
        """Connect to every MCP server once; what is missing there, and what it says otherwise.

        Cost: at most the longest `start_timeout_s` of a server.
        """
        if self._loop is None or not self._mcp.servers:
            return []
        self._loop.call(self._mcp.check, {}, timeout_s=self._mcp.start_timeout_s + 1)
        return [ServerProblem(*problem) for problem in self._mcp.problems]

    def wait_for_end(self, server: str, timeout_s: float) -> None:
        """Let a server's session end by itself; for tests and for a careful stop."""
        if self._loop is not None:
            session = self._mcp.servers[server]
            self._loop.call(session.wait_for_end, {}, timeout_s=timeout_s)

    def close(self) -> None:
        """End what is open; bounded."""
        if self._loop is not None:
            self._loop.call(self._close, {}, timeout_s=_CLOSE_S)
            self._loop.close()

    async def _close(self) -> None:
        await self._mcp.close()
        for client in self._clients:
            await client.close()
