"""A session with one MCP server: started when it is needed, again after it has ended. The SDK's importer.

Rules:
    A session lives in a task of its own; its end, noticed or asked for, ends the child process too.
    After a start that failed the next one waits, longer each time; calls meanwhile were not sent.
    A call is one request of the session's lowest level: the SDK's own `call_tool` sends it again for
    some answers, and asks for other things after the effect.
    `NotSent`: there was no session, or the HTTP client never began to write. All else is unknown.
    The SDK's log lines and errors can quote messages, so they go nowhere.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import ContextVar
from typing import Final, TextIO, cast

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client import ClientSession
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
)
from pydantic import TypeAdapter, ValidationError

from processor import __version__
from processor.executor.backoff import Backoff
from processor.executor.http_answer import REFUSED
from processor.executor.http_tool import Sent
from processor.executor.mcp_tool import ListedTool, McpAnswer
from processor.executor.signals import NotSent, OutcomeUnknown, ToolFailed
from processor.policy.transports import McpServer, checked_header, checked_url

_PAGES_MAX: Final = 100
_CONNECT_S: Final = 5.0
#: What only a server says, and only instead of doing something.
_REFUSED_CODES: Final = {
    METHOD_NOT_FOUND: "mcp_method_not_found",
    INVALID_PARAMS: "mcp_invalid_params",
}
#: No status of HTTP; the SDK tells the call that the server answered with an error.
_NO_ANSWER: Final = 599
_FIRST_WAIT_S: Final = 1.0
_WAIT_S_MAX: Final = 60.0
#: The SDK gives a child 2 s to end by itself and 2 s after SIGTERM.
_STOP_S: Final = 6.0

_RESULT: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(
    CallToolResult | InputRequiredResult
)

for _logger in ("mcp", "httpx2", "httpcore2"):
    logging.getLogger(_logger).setLevel(logging.CRITICAL + 1)


class _Post(Sent):
    """What became of the one POST of a call. `cut`: it has no whole answer within its bound."""

    status: int | None = None
    cut: bool = False


#: The SDK posts in the context of the one who asked, so each POST finds its own call.
_POST: ContextVar[_Post | None] = ContextVar("toolcalls_mcp_post", default=None)


class McpSession:
    """See `mcp_tool.Session`. Raises, at construction: `Misuse` for what cannot be filled."""

    def __init__(self, server: McpServer, environment: Mapping[str, str]) -> None:
        self._server = server
        self._connect = _connector(server, environment)
        self._backoff = Backoff(first_s=_FIRST_WAIT_S, most_s=_WAIT_S_MAX)
        self._not_before_s = 0.0
        self._life: _Life | None = None

    async def call(
        self, tool: str, arguments: dict[str, object], meta: dict[str, object], limit_s: float
    ) -> McpAnswer:
        """See `Session.call`."""
        post = _Post()
        try:
            async with asyncio.timeout(limit_s):
                life = await self._alive()
                return await self._ask(life, post, tool, arguments, meta)
        except TimeoutError:
            raise (
                OutcomeUnknown("mcp_timed_out") if post.begun else NotSent("mcp_not_started")
            ) from None

    async def _ask(
        self,
        life: "_Life",
        post: "_Post",
        tool: str,
        arguments: dict[str, object],
        meta: dict[str, object],
    ) -> McpAnswer:
        session = life.session
        if session is None:
            raise NotSent("mcp_not_started")
        params = CallToolRequestParams.model_validate(
            {"name": tool, "arguments": arguments, "_meta": meta}
        )
        # What goes into a pipe cannot be called back; what goes over HTTP is watched.
        post.begun = self._server.url is None
        token = _POST.set(post)
        try:
            result = await session.send_request(CallToolRequest(params=params), _RESULT)
        except MCPError as e:
            raise self._meaning(e.code, post, life) from None
        except (ValidationError, ValueError, RuntimeError):
            raise OutcomeUnknown("mcp_unreadable") from None
        finally:
            _POST.reset(token)
        if isinstance(result, InputRequiredResult):
            raise OutcomeUnknown("mcp_input_required")
        body = result.model_dump_json(by_alias=True, exclude_none=True, exclude={"meta"})
        return McpAnswer(body.encode(), bool(result.is_error))

    def _meaning(
        self, code: int, post: _Post, life: "_Life"
    ) -> NotSent | OutcomeUnknown | ToolFailed:
        """What an error of the SDK proves. Some codes it makes up itself, so the status goes first."""
        if not post.begun:
            return NotSent("mcp_connect_failed")
        if post.cut:
            return OutcomeUnknown("mcp_cut")
        if post.status == 404:
            life.end()
            return NotSent("mcp_session_ended")
        if post.status is not None and post.status >= 300:
            word = f"mcp_http_{post.status}"
            return ToolFailed(word) if post.status in REFUSED else OutcomeUnknown(word)
        if code in _REFUSED_CODES:
            return ToolFailed(_REFUSED_CODES[code])
        return OutcomeUnknown("mcp_cut" if code == CONNECTION_CLOSED else "mcp_error")

    async def listed(self) -> Mapping[str, ListedTool]:
        """See `Session.listed`."""
        return (await self._alive()).tools

    async def _alive(self) -> "_Life":
        life = self._life
        if life is None or life.over:
            wait_s = self._not_before_s - asyncio.get_running_loop().time()
            if wait_s > 0:
                raise NotSent("mcp_not_started", retry_after_s=wait_s)
            life = self._life = _Life(self._connect)
        if not await life.started(self._server.start_timeout_s):
            life.end()
            if self._life is life:
                self._life = None
                wait_s = self._backoff.next_s(self._server.name)
                self._not_before_s = asyncio.get_running_loop().time() + wait_s
            raise NotSent("mcp_not_started")
        self._backoff.forget(self._server.name)
        return life

    async def wait_for_end(self) -> None:
        """See `Session.wait_for_end`."""
        if self._life is not None:
            await self._life.over_by_itself()

    async def close(self) -> None:
        """See `Session.close`."""
        life, self._life = self._life, None
        if life is not None:
            await life.ended()


_Streams = AsyncGenerator[TransportStreams]
Connect = Callable[[Callable[[], None]], AbstractAsyncContextManager[TransportStreams]]


class _Life:
    """One life of a session, from its start to its end."""

    def __init__(self, connect: Connect) -> None:
        self.session: ClientSession | None = None
        self.tools: dict[str, ListedTool] = {}
        self._connect = connect
        self._decided = asyncio.Event()
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._live())

    @property
    def over(self) -> bool:
        """It has ended, or is about to."""
        return self._ending.is_set() or self._task.done()

    async def started(self, limit_s: float) -> bool:
        """True once there is a session; False when it could not be started."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._decided.wait()
        return self.session is not None and not self.over

    def end(self) -> None:
        """Ask for the end."""
        self._ending.set()
        if self.session is None:
            self._task.cancel()

    async def over_by_itself(self) -> None:
        """Wait for an end that nobody here asks for."""
        await self._ending.wait()

    async def ended(self) -> None:
        """Ask for the end and wait for it, with a bound."""
        self.end()
        await asyncio.wait([self._task], timeout=_STOP_S)

    async def _live(self) -> None:
        try:
            transport = self._connect(self._ending.set)
            client = Client(
                transport,
                cache=None,
                client_info=Implementation(name="toolcalls", version=__version__),
            )
            async with client:
                self.tools = await _tools_of(client.session)
                self.session = client.session
                self._decided.set()
                await self._ending.wait()
        except Exception:  # noqa: BLE001,S110 - whatever ends a session ends it; its text may quote
            pass
        finally:
            self.session = None
            self._ending.set()
            self._decided.set()


async def _tools_of(session: ClientSession) -> dict[str, ListedTool]:
    found: dict[str, ListedTool] = {}
    cursor: str | None = None
    for _ in range(_PAGES_MAX):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        for tool in page.tools:
            hints = tool.annotations
            found[tool.name] = ListedTool(
                schema=cast("Mapping[str, object]", tool.input_schema),
                read_only_hint=hints.read_only_hint if hints else None,
                idempotent_hint=hints.idempotent_hint if hints else None,
            )
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


# --- transports


def _connector(server: McpServer, environment: Mapping[str, str]) -> Connect:
    if server.url is None:
        return _command(server, environment)
    url = checked_url(server.url.fill(environment), server.url.where)
    headers = {
        name: checked_header(template.fill(environment), template.where)
        for name, template in server.headers.items()
    }

    @asynccontextmanager
    async def connect(ended: Callable[[], None]) -> _Streams:
        del ended  # a request at a time says whether the server is there
        watching = _Watching(server.response_bytes_max)
        async with (
            httpx2.AsyncClient(
                transport=watching,
                headers=headers,
                trust_env=False,
                timeout=httpx2.Timeout(None, connect=_CONNECT_S, pool=_CONNECT_S),
            ) as client,
            streamable_http_client(url, http_client=client) as streams,
        ):
            yield streams

    return connect


def _command(server: McpServer, environment: Mapping[str, str]) -> Connect:
    command, *args = (template.fill(environment) for template in server.command)
    parameters = StdioServerParameters(
        command=command,
        args=args,
        env={name: template.fill(environment) for name, template in server.env.items()},
        cwd=None if server.cwd is None else server.cwd.fill(environment),
    )

    @asynccontextmanager
    async def connect(ended: Callable[[], None]) -> _Streams:
        with _errors_of(server) as errors:
            async with (
                stdio_client(parameters, errlog=errors) as (read, write),
                anyio.create_task_group() as tasks,
            ):
                send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)

                async def pass_on() -> None:
                    async with send:
                        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                            async for message in read:
                                await send.send(message)
                    # The child has closed its output: it is no server any more.
                    ended()

                tasks.start_soon(pass_on)
                async with receive:
                    yield receive, write
                tasks.cancel_scope.cancel()

    return connect


@contextmanager
def _errors_of(server: McpServer) -> Generator[TextIO]:
    if server.stderr == "inherit":
        yield sys.stderr
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        yield nowhere


class _Watching(httpx2.AsyncBaseTransport):
    """Notes for a call's own POST whether it was written and what came of it; bounds every answer.

    What one POST suffers stays with its call: the SDK ends the session, and with it every other call,
    for an error that leaves here, so an answer takes its place.
    A connection is used for one request: on one that was kept, a server that is just closing it would
    leave a doubt about a request that it never read.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._inner = httpx2.AsyncHTTPTransport(
            trust_env=False,
            retries=0,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        post = _POST.get()
        if post is None or request.method != "POST":
            return self._bounded(await self._inner.handle_async_request(request), None)
        request.extensions = {**request.extensions, "trace": post.note}
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.HTTPError, OSError):
            post.cut = True
            return httpx2.Response(_NO_ANSWER)
        post.status = response.status_code
        return self._bounded(response, post)

    def _bounded(self, response: httpx2.Response, post: _Post | None) -> httpx2.Response:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            # Endless by nature; the SDK bounds each event, and outlives its end.
            return response
        stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), self._bytes_max, post)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=stream,
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, bytes_max: int, post: _Post | None) -> None:
        self._inner = inner
        self._bytes_max = bytes_max
        self._post = post

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for part in self._inner:
                size += len(part)
                if size > self._bytes_max:
                    raise httpx2.ReadError("the answer is larger than the bound")
                yield part
        except (httpx2.HTTPError, OSError):
            if self._post is None:
                raise
            self._post.cut = True

    async def aclose(self) -> None:
        await self._inner.aclose()
