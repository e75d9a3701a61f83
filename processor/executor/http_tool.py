"""A tool behind an HTTP endpoint: one request per start, and an honest word for what came of it.

Rules:
    The body is the exact text that was checked and authorised.
    One start is one request: nothing below repeats it, no redirect is followed but a GET's inside of its
    own origin, no proxy is used that the catalogue does not name.
    `NotSent` only when the client never began to write the request; the client's own trace says so.
    A call whose effect cannot be asked for twice gets a connection of its own: on one that was kept, a
    server that is just closing it leaves a doubt about a request that it never read.
    Nothing that is sent or received stands in an error.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from typing import Final, cast

import httpx

from processor.core._record import record
from processor.core.errors import Misuse
from processor.core.events import ArgumentsFormat
from processor.executor.context import ToolContext
from processor.executor.effect_key import effect_key, key_header, trace_of
from processor.executor.http_answer import is_json, judged, result_of, retry_after_s
from processor.executor.results import WithoutBody
from processor.executor.signals import NotSent, OutcomeUnknown, ToolFailed
from processor.ledger.port import RESULT_BYTES_MAX
from processor.policy.transports import HttpEndpoint, checked_header, checked_url

_REDIRECTS_MAX: Final = 3
_WRITING: Final = "send_request_headers.started"

# At INFO the client logs each URL, and a query may hold arguments.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.ERROR)


@record
class Answer:
    """A whole answer. `body` None: it was larger than the bound and was not read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None


class Sent:
    """Whether a request may have left: set before its first byte is written."""

    def __init__(self) -> None:
        self.begun = False

    async def note(self, event: str, info: Mapping[str, object]) -> None:
        """Hear of one step of the client."""
        del info
        if event.endswith(_WRITING):
            self.begun = True


class HttpClient:
    """The connections to one endpoint, and its request as far as it is the same for all calls.

    Used on one event loop. Raises: `Misuse` for a URL, header, proxy or file that cannot be used.
    """

    def __init__(
        self,
        endpoint: HttpEndpoint,
        environment: Mapping[str, str],
        *,
        keep: bool,
        connections: int,
    ) -> None:
        self.endpoint = endpoint
        self.url = endpoint.url.fill(environment)
        checked_url(self.url.replace("{idempotency_key}", "key"), endpoint.url.where)
        self._headers = {
            name: checked_header(template.fill(environment), template.where)
            for name, template in endpoint.headers.items()
        }
        self._proxy = _proxy(endpoint, environment)
        self._verify = _authorities(endpoint, environment)
        self._limits = httpx.Limits(
            max_connections=connections, max_keepalive_connections=connections if keep else 0
        )
        self._client: httpx.AsyncClient | None = None

    async def send(
        self,
        method: str,
        url: str,
        *,
        sent: Sent,
        limit_s: float,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Answer:
        """One request and its whole answer.

        Raises: `NotSent`, `OutcomeUnknown`.
        """
        try:
            async with asyncio.timeout(limit_s):
                return await self._answer(method, url, sent, headers or {}, content)
        except TimeoutError:
            raise _unanswered(sent, "http_connect_timed_out", "http_timed_out") from None
        except httpx.TimeoutException:
            # The only limit of its own that the client has is the one for connecting.
            raise _unanswered(sent, "http_connect_timed_out", "http_timed_out") from None
        except (httpx.HTTPError, httpx.StreamError, OSError):
            raise _unanswered(sent, "http_connect_failed", "http_cut") from None

    async def _answer(
        self, method: str, url: str, sent: Sent, headers: Mapping[str, str], content: bytes | None
    ) -> Answer:
        client = self._opened()
        connect_s = self.endpoint.connect_timeout_s
        request = client.build_request(
            method,
            url,
            headers={**self._headers, **headers, "Accept-Encoding": "identity"},
            content=content,
            timeout=httpx.Timeout(None, connect=connect_s, pool=connect_s),
            extensions={"trace": sent.note},
        )
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            body = await _bounded(response, self.endpoint.response_bytes_max)
        finally:
            await response.aclose()
        if body is not None and _ends_with_connection(response) and _is_cut(response, body):
            raise OutcomeUnknown("http_cut")
        return Answer(response.status_code, response.headers, body)

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                transport=httpx.AsyncHTTPTransport(
                    verify=self._verify,
                    trust_env=False,
                    http2=False,
                    limits=self._limits,
                    proxy=self._proxy,
                    retries=0,
                ),
                trust_env=False,
                headers={
                    "User-Agent": "toolcalls-executor",
                    "Accept": "application/json, */*;q=0.1",
                },
            )
        return self._client

    async def close(self) -> None:
        """Close what is open."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class HttpTool:
    """See the module. `call` is the function of the tool's declaration."""

    def __init__(self, client: HttpClient, arguments: ArgumentsFormat) -> None:
        self._client = client
        text = arguments == "text"
        self._content_type = "text/plain; charset=utf-8" if text else "application/json"

    async def call(self, arguments: bytes, context: ToolContext) -> object:
        """Make the request. Raises: `NotSent`, `OutcomeUnknown`, `ToolFailed`."""
        endpoint = self._client.endpoint
        headers = {
            **trace_of(context.headers),
            "Idempotency-Key": key_header(effect_key(context.tenant, context.idempotency_key)),
        }
        sent = Sent()
        if endpoint.method == "GET":
            url = _with_query(self._client.url, arguments)
            answer = await self._follow(url, headers, sent, context.attempt_deadline_s)
        else:
            answer = await self._client.send(
                endpoint.method,
                self._client.url,
                sent=sent,
                limit_s=context.attempt_deadline_s,
                headers={**headers, "Content-Type": self._content_type},
                content=arguments,
            )
        return concluded(answer, endpoint.refused)

    async def _follow(
        self, url: str, headers: Mapping[str, str], sent: Sent, limit_s: float
    ) -> Answer:
        """A GET, which reads and may be sent on; never to another origin, with our headers."""
        at = httpx.URL(url)
        for _ in range(_REDIRECTS_MAX + 1):
            answer = await self._client.send(
                "GET", str(at), sent=sent, limit_s=limit_s, headers=headers
            )
            if answer.status not in {301, 302, 303, 307, 308}:
                return answer
            try:
                there = at.join(answer.headers.get("location", ""))
            except (httpx.InvalidURL, ValueError):
                break
            if (there.scheme, there.host, there.port) != (at.scheme, at.host, at.port):
                break
            at = there
        raise ToolFailed("http_redirect_refused")


def concluded(answer: Answer, refused: frozenset[int]) -> object:
    """The value to store. Raises: `ToolFailed` for a refusal, else `OutcomeUnknown`."""
    content_type = answer.headers.get("content-type", "")
    match judged(answer.status, refused):
        case "done" if answer.body is None:
            return WithoutBody("result_too_large")
        case "done":
            return result_of(answer.body or b"", content_type)
        case "refused":
            body = answer.body or b""
            keep = len(body) <= RESULT_BYTES_MAX and "json" in content_type and is_json(body)
            raise ToolFailed(f"http_{answer.status}", result=body if body and keep else None)
        case "unknown":
            wait_s = retry_after_s(answer.headers)
            raise OutcomeUnknown(f"http_{answer.status}", retry_after_s=wait_s)


async def _bounded(response: httpx.Response, bytes_max: int) -> bytes | None:
    """The body as it came, or None as soon as it is larger than the bound."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > bytes_max:
            return None
        parts.append(part)
    if response.headers.get("content-encoding", "identity").lower() != "identity" and parts:
        # It was not asked for, and unfolding it is not bounded.
        return None
    return b"".join(parts)


def _ends_with_connection(response: httpx.Response) -> bool:
    """True when only the end of the connection says where the body ends."""
    headers = response.headers
    return "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "")


def _is_cut(response: httpx.Response, body: bytes) -> bool:
    return bool(body) and "json" in response.headers.get("content-type", "") and not is_json(body)


def _unanswered(sent: Sent, before: str, after: str) -> NotSent | OutcomeUnknown:
    return OutcomeUnknown(after) if sent.begun else NotSent(before)


def _with_query(url: str, arguments: bytes) -> str:
    """The members of the arguments as a query: texts as they are, the rest as JSON."""
    members = cast(
        "dict[str, object]", json.loads(arguments, parse_int=_Number, parse_float=_Number)
    )
    query = {
        name: str(value) if isinstance(value, str) else _compact(value)
        for name, value in members.items()
    }
    try:
        return str(httpx.URL(url).copy_merge_params(query))
    except httpx.InvalidURL:
        raise ToolFailed("http_url_too_long") from None


class _Number(str):
    """A number's own spelling."""

    __slots__ = ()


def _compact(value: object) -> str:
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return "{" + ",".join(f"{json.dumps(n)}:{_nested(v)}" for n, v in items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_nested(v) for v in cast("list[object]", value)) + "]"
    return json.dumps(value)


def _nested(value: object) -> str:
    return str(value) if isinstance(value, _Number) else _compact(value)


def _proxy(endpoint: HttpEndpoint, environment: Mapping[str, str]) -> httpx.Proxy | None:
    if endpoint.proxy is None:
        return None
    try:
        proxy = httpx.Proxy(endpoint.proxy.fill(environment))
    except (ValueError, httpx.InvalidURL):
        raise Misuse(f"{endpoint.proxy.where}: is not the URL of an HTTP proxy") from None
    if proxy.url.scheme not in {"http", "https"}:
        raise Misuse(f"{endpoint.proxy.where}: must be an http:// or https:// URL")
    return proxy


def _authorities(endpoint: HttpEndpoint, environment: Mapping[str, str]) -> ssl.SSLContext | bool:
    if endpoint.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=endpoint.ca_file.fill(environment))
    except (OSError, ssl.SSLError):
        raise Misuse(f"{endpoint.ca_file.where}: is not a readable file of certificates") from None
