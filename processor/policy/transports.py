"""Where a tool of the catalogue is, when it is no Python function: an HTTP endpoint or an MCP server.

Rules:
    Parsing is pure. A text may hold `${NAME}`, filled from the environment by whoever starts the tools.
    A header or variable that by its name is a secret must hold a `${NAME}`: the file is no place for it.
    A URL holds no user name, password or fragment; what it is filled with is checked again.
    What the transport itself says on the wire (key, trace, length, host) cannot be set by hand.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, cast
from urllib.parse import urlsplit

from processor.core._record import field, record
from processor.core.errors import Misuse
from processor.core.events import ArgumentsFormat
from processor.core.outcomes import EffectClass
from processor.policy.nodes import Node, choice, number, text_of, whole

#: Placeholder of a lookup's URL; percent-encoded when it is filled.
KEY_PLACEHOLDER: Final = "{idempotency_key}"

CONNECT_TIMEOUT_S_DEFAULT: Final = 5.0
RESPONSE_BYTES_MAX_DEFAULT: Final = 1024 * 1024
#: A request that was under way when its caller was lost has arrived or never will, after this.
ABSENT_AFTER_S_DEFAULT: Final = 900.0
START_TIMEOUT_S_DEFAULT: Final = 20.0

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e]*")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET: Final = re.compile(
    r"auth|cookie|token|secret|passw|credential|signature|api[-_]?key|access[-_]?key|private", re.I
)
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "te",
        "traceparent",
        "tracestate",
        "transfer-encoding",
        "upgrade",
    }
)

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


@record
class Template:
    """A text with `${NAME}` in it. `where` is its place in the catalogue."""

    where: str
    text: str

    def fill(self, environment: Mapping[str, str]) -> str:
        """The text with every variable's value. Raises: `Misuse` naming a variable that is not set."""
        for name in _VARIABLE.findall(self.text):
            if not environment.get(name):
                raise Misuse(f"{self.where}: the environment variable {name} is not set")
        return _VARIABLE.sub(lambda found: environment[found[1]], self.text)


@record
class HttpEndpoint:
    """One request per call. `refused` are further statuses that mean: refused, and nothing was done.

    `proxy` None: no proxy, whatever the environment says. `ca_file` None: the usual authorities.
    """

    method: Method
    url: Template
    headers: dict[str, Template]
    connect_timeout_s: float = CONNECT_TIMEOUT_S_DEFAULT
    response_bytes_max: int = RESPONSE_BYTES_MAX_DEFAULT
    refused: frozenset[int] = field(default_factory=frozenset[int])
    proxy: Template | None = None
    ca_file: Template | None = None


@record
class Reconcile:
    """Whom to ask what became of a call in doubt. `endpoint.url` holds the key's placeholder.

    An answer with success means that the effect happened, 404 and 410 that it did not. With `member`, an
    answer with success is read: the text of that member of its object decides by the two lists, and
    any other text leaves the doubt. `absent_after_s` is how long the answer "it did not happen" must
    stand before it counts: a request may still be under way.
    """

    endpoint: HttpEndpoint
    absent_after_s: float = ABSENT_AFTER_S_DEFAULT
    member: str | None = None
    happened: frozenset[str] = field(default_factory=frozenset[str])
    not_happened: frozenset[str] = field(default_factory=frozenset[str])


@record
class McpTool:
    """A tool of an MCP server. `error_means` says what a result with `isError` proves.

    `failed`: the tool says that it did not do it. `unknown`: it may have, so the effect class decides.
    """

    server: str
    tool: str
    error_means: Literal["failed", "unknown"] = "failed"


@record
class McpServer:
    """An MCP server: a command that speaks over its pipes, or the URL of a streamable HTTP endpoint.

    A command gets `env` and a few harmless variables (PATH, HOME), never the executor's environment.
    `stderr` says where its own messages go; they may quote arguments, so by default nowhere.
    """

    name: str
    command: tuple[Template, ...] = ()
    env: dict[str, Template] = field(default_factory=dict[str, Template])
    cwd: Template | None = None
    stderr: Literal["discard", "inherit"] = "discard"
    url: Template | None = None
    headers: dict[str, Template] = field(default_factory=dict[str, Template])
    start_timeout_s: float = START_TIMEOUT_S_DEFAULT
    response_bytes_max: int = RESPONSE_BYTES_MAX_DEFAULT


def transport_of(
    name: str,
    members: Mapping[str, Node],
    effect_class: EffectClass,
    arguments: ArgumentsFormat,
    servers: Mapping[str, McpServer],
) -> tuple[HttpEndpoint | McpTool | None, Reconcile | None]:
    """What the members `http`, `mcp` and `reconcile` of a tool say. Raises: `Misuse`."""
    http, mcp, reconcile = members.get("http"), members.get("mcp"), members.get("reconcile")
    remote: HttpEndpoint | McpTool | None = None
    if http is not None and mcp is not None:
        raise mcp.misuse("a tool is at one place: http or mcp, not both")
    at = http or mcp
    if at is not None and effect_class == "transactional":
        raise at.misuse(
            "a transactional tool writes into the ledger's database: it cannot be remote"
        )
    if http is not None:
        remote = _endpoint(http, effect_class)
    if mcp is not None:
        if arguments == "text":
            raise mcp.misuse("an MCP tool takes an object, not free text")
        remote = _mcp_tool(name, mcp, servers)
    if reconcile is not None and effect_class != "reconcilable":
        raise reconcile.misuse("only a tool of effect_class reconcilable is asked about")
    return remote, None if reconcile is None else _reconcile(reconcile)


def mcp_servers(node: Node | None) -> dict[str, McpServer]:
    """The member `mcp_servers` of a catalogue. Raises: `Misuse`."""
    if node is None:
        return {}
    return {name: _server(name, each) for name, each in node.members().items()}


def checked_url(text: str, where: str) -> str:
    """The URL, or a refusal that does not quote it. Raises: `Misuse`."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise Misuse(f"{where}: is not a URL") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise Misuse(f"{where}: must be an http:// or https:// URL with a host")
    if "@" in parts.netloc:
        raise Misuse(f"{where}: no user name or password in a URL: use a header with ${{NAME}}")
    if parts.fragment:
        raise Misuse(f"{where}: a URL that is requested has no fragment")
    if re.search(r"[\x00-\x20\x7f-\U0010ffff]", text):
        raise Misuse(f"{where}: write spaces, control and non-ASCII characters percent-encoded")
    return text


def checked_header(text: str, where: str) -> str:
    """The header's value, or a refusal that does not quote it. Raises: `Misuse`."""
    if _HEADER_TEXT.fullmatch(text) is None or text != text.strip():
        raise Misuse(
            f"{where}: has blanks at its ends, a line break or anything else that is not printable ASCII"
        )
    return text


# --- parts

_HTTP_FIELDS: Final = frozenset(
    {
        "ca_file",
        "connect_timeout_s",
        "headers",
        "method",
        "proxy",
        "refused",
        "response_bytes_max",
        "url",
    }
)
_LOOKUP_FIELDS: Final = _HTTP_FIELDS - {"method", "refused"} | {
    "happened",
    "member",
    "not_happened",
}
_SERVER_FIELDS: Final = frozenset(
    {
        "args",
        "command",
        "cwd",
        "env",
        "headers",
        "response_bytes_max",
        "start_timeout_s",
        "stderr",
        "url",
    }
)


def _endpoint(node: Node, effect_class: EffectClass) -> HttpEndpoint:
    m = node.members()
    node.only(m, _HTTP_FIELDS)
    method = cast("Method", choice(m, "method", _METHODS, "POST"))
    if method == "GET" and effect_class != "read_only":
        raise m["method"].misuse("GET is for a tool of effect_class read_only")
    url = _url(node, m)
    if KEY_PLACEHOLDER in url.text:
        raise m["url"].misuse("the key is sent as a header; only a reconcile URL holds it")
    return _built(m, method, url, _statuses(m.get("refused")))


def _built(
    m: Mapping[str, Node], method: Method, url: Template, refused: frozenset[int]
) -> HttpEndpoint:
    return HttpEndpoint(
        method=method,
        url=url,
        headers=_headers(m.get("headers")),
        connect_timeout_s=number(m, "connect_timeout_s", CONNECT_TIMEOUT_S_DEFAULT, 3600),
        response_bytes_max=whole(
            m, "response_bytes_max", RESPONSE_BYTES_MAX_DEFAULT, 64 * 1024 * 1024
        ),
        refused=refused,
        proxy=_template(m, "proxy"),
        ca_file=_template(m, "ca_file"),
    )


def _url(node: Node, m: Mapping[str, Node]) -> Template:
    url = _template(m, "url")
    if url is None:
        raise node.misuse("needs a url")
    if not _VARIABLE.search(url.text):
        checked_url(url.text.replace(KEY_PLACEHOLDER, "key"), url.where)
    return url


def _statuses(node: Node | None) -> frozenset[int]:
    if node is None:
        return frozenset()
    value = node.value()
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    found = {item for item in items if isinstance(item, int) and 400 <= item < 500}
    if len(found) != len(items):
        raise node.misuse("must be a list of statuses from 400 to 499, each once")
    return frozenset(found)


def _reconcile(node: Node) -> Reconcile:
    outer = node.members()
    node.only(outer, {"http", "absent_after_s"})
    if "http" not in outer:
        raise node.misuse("needs http: with the url to ask")
    http = outer["http"]
    m = http.members()
    http.only(m, _LOOKUP_FIELDS)
    url = _url(http, m)
    if url.text.count(KEY_PLACEHOLDER) != 1:
        raise m["url"].misuse(f"must hold {KEY_PLACEHOLDER} once")
    member = text_of(m, "member")
    happened, not_happened = _words(m, "happened"), _words(m, "not_happened")
    if (member is None) != (not happened):
        raise http.misuse("member and happened are given together")
    if (not_happened and member is None) or happened & not_happened:
        raise m["not_happened"].misuse("needs member, and shares no text with happened")
    return Reconcile(
        endpoint=_built(m, "GET", url, frozenset()),
        absent_after_s=number(outer, "absent_after_s", ABSENT_AFTER_S_DEFAULT, 31_536_000),
        member=member,
        happened=happened,
        not_happened=not_happened,
    )


def _words(m: Mapping[str, Node], name: str) -> frozenset[str]:
    node = m.get(name)
    return frozenset() if node is None else frozenset(node.texts())


def _mcp_tool(name: str, node: Node, servers: Mapping[str, McpServer]) -> McpTool:
    m = node.members()
    node.only(m, {"error_means", "server", "tool"})
    server = text_of(m, "server")
    if server is None or server not in servers:
        raise m.get("server", node).misuse("must name one of mcp_servers")
    meaning = choice(m, "error_means", frozenset({"failed", "unknown"}), "failed")
    return McpTool(
        server, text_of(m, "tool") or name, cast('Literal["failed", "unknown"]', meaning)
    )


def _server(name: str, node: Node) -> McpServer:
    m = node.members()
    node.only(m, _SERVER_FIELDS)
    command, url = _template(m, "command"), _template(m, "url")
    if (command is None) == (url is None):
        raise node.misuse("needs either command or url")
    for only_with_command in ("args", "env", "cwd", "stderr"):
        if url is not None and only_with_command in m:
            raise m[only_with_command].misuse("belongs to a server with a command")
    if url is None and "headers" in m:
        raise m["headers"].misuse("belongs to a server with a url")
    if url is not None:
        url = _url(node, m)
    args = m.get("args")
    words = () if args is None else args.texts()
    stderr = choice(m, "stderr", frozenset({"discard", "inherit"}), "discard")
    return McpServer(
        name=name,
        command=() if command is None else (command, *(_checked(args or node, w) for w in words)),
        env=_named(m.get("env"), _VARIABLE_NAME, lambda text, where: text),
        cwd=_template(m, "cwd"),
        stderr=cast('Literal["discard", "inherit"]', stderr),
        url=url,
        headers=_headers(m.get("headers")),
        start_timeout_s=number(m, "start_timeout_s", START_TIMEOUT_S_DEFAULT, 600),
        response_bytes_max=whole(
            m, "response_bytes_max", RESPONSE_BYTES_MAX_DEFAULT, 64 * 1024 * 1024
        ),
    )


def _template(m: Mapping[str, Node], name: str) -> Template | None:
    text = text_of(m, name)
    return None if text is None else _checked(m[name], text)


def _checked(node: Node, text: str) -> Template:
    if not text:
        raise node.misuse("is empty")
    if "${" in _VARIABLE.sub("", text):
        raise node.misuse("write a variable of the environment as ${NAME}")
    if "\x00" in text:
        raise node.misuse("holds a NUL character")
    return Template(node.where(), text)


def _headers(node: Node | None) -> dict[str, Template]:
    found = _named(node, _HEADER_NAME, checked_header)
    for name, template in found.items():
        if name.lower() in _OURS:
            raise Misuse(f"{template.where}: this header is set by the executor")
    if len({name.lower() for name in found}) != len(found) and node is not None:
        raise node.misuse("a header is there twice")
    return found


def _named(
    node: Node | None, names: re.Pattern[str], checked: Callable[[str, str], str]
) -> dict[str, Template]:
    found: dict[str, Template] = {}
    for name, each in ({} if node is None else node.members()).items():
        if names.fullmatch(name) is None:
            raise each.misuse("is not a name that can be used here")
        value = each.value()
        if not isinstance(value, str):
            raise each.misuse("must be a text")
        template = _checked(each, value)
        if _SECRET.search(name) and not _VARIABLE.search(value):
            raise each.misuse("is a secret by its name: write ${NAME} and set that variable")
        if not _VARIABLE.search(value):
            checked(value, template.where)
        found[name] = template
    return found
