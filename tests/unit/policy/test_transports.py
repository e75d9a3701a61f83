"""HTTP endpoints, MCP servers and lookups in the catalogue: what is read, what is refused and where."""

import pytest

from processor.core.errors import Misuse
from processor.policy.catalogue import parse_catalogue
from processor.policy.transports import HttpEndpoint, McpTool, checked_header, checked_url

HEAD = "version: 1\ntools:\n  a:\n"
URL = "url: https://pay.example/refunds"


def test_an_http_tool_has_what_is_stated_and_defaults_for_the_rest() -> None:
    """Every field; the headers are filled from the environment only when they are used."""
    tool = parse_catalogue(
        HEAD
        + "    http:\n"
        + "      method: PUT\n"
        + "      url: 'https://${PAY_HOST}/refunds'\n"
        + "      headers: {X-Api-Key: 'key ${PAY_KEY}', X-Shop: '7'}\n"
        + "      connect_timeout_s: 2\n"
        + "      response_bytes_max: 1000\n"
        + "      refused: [402, 412]\n"
        + "      proxy: '${PROXY}'\n"
        + "      ca_file: /etc/ca.pem\n"
    ).tool("a")
    assert tool is not None
    http = tool.remote
    assert isinstance(http, HttpEndpoint)
    assert (http.method, http.connect_timeout_s, http.response_bytes_max) == ("PUT", 2.0, 1000)
    assert http.refused == {402, 412}
    environment = {"PAY_HOST": "pay.example", "PAY_KEY": "k1"}
    assert http.url.fill(environment) == "https://pay.example/refunds"
    assert http.headers["X-Api-Key"].fill(environment) == "key k1"
    assert http.proxy is not None
    with pytest.raises(Misuse, match=r"catalogue.yaml:11: tools.a.http.proxy: .* PROXY is not set"):
        http.proxy.fill(environment)
    plain = parse_catalogue(f"{HEAD}    http: {{{URL}}}").tool("a")
    assert plain is not None
    assert isinstance(plain.remote, HttpEndpoint)
    assert (plain.remote.method, plain.remote.refused, plain.remote.proxy) == (
        "POST",
        frozenset(),
        None,
    )


def test_an_mcp_tool_names_its_server_and_by_default_its_own_name() -> None:
    """A command, or a URL."""
    catalogue = parse_catalogue(
        "version: 1\n"
        "mcp_servers:\n"
        "  files: {command: python, args: [server.py, '${ROOT}'], env: {A_TOKEN: '${T}', MODE: x}}\n"
        "  remote: {url: 'https://tools.example/mcp', headers: {Authorization: 'Bearer ${T}'}}\n"
        "tools:\n"
        "  a: {mcp: {server: files}}\n"
        "  b: {mcp: {server: remote, tool: other, error_means: unknown}}\n"
    )
    files, remote = catalogue.server("files"), catalogue.server("remote")
    assert files is not None
    assert remote is not None
    assert [t.text for t in files.command] == ["python", "server.py", "${ROOT}"]
    assert {n: t.text for n, t in files.env.items()} == {"A_TOKEN": "${T}", "MODE": "x"}
    assert (files.url, files.stderr) == (None, "discard")
    assert remote.command == ()
    a, b = catalogue.tool("a"), catalogue.tool("b")
    assert a is not None
    assert b is not None
    assert a.remote == McpTool("files", "a", "failed")
    assert b.remote == McpTool("remote", "other", "unknown")
    assert catalogue.server("nobody") is None


def test_a_lookup_belongs_to_a_reconcilable_tool() -> None:
    """With the place of the key in its URL."""
    tool = parse_catalogue(
        HEAD
        + "    effect_class: reconcilable\n"
        + "    reconcile:\n"
        + "      absent_after_s: 60\n"
        + "      http: {url: 'https://pay.example/by-key/{idempotency_key}', member: state,\n"
        + "             happened: [paid], not_happened: [void]}\n"
    ).tool("a")
    assert tool is not None
    assert tool.remote is None
    assert tool.reconcile is not None
    assert (tool.reconcile.absent_after_s, tool.reconcile.member) == (60.0, "state")
    assert tool.reconcile.endpoint.method == "GET"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("http: 5", "t.yaml:4: tools.a.http: must be a mapping"),
        ("http: {}", "t.yaml:4: tools.a.http: needs a url"),
        ("http: {uri: x}", "t.yaml:4: tools.a.http.uri: unknown field"),
        ("http: {url: ftp://x/y}", "tools.a.http.url: must be an http:// or https:// URL"),
        ("http: {url: 'https:///x'}", "with a host"),
        ("http: {url: 'https://x:99999/'}", "tools.a.http.url: is not a URL"),
        ("http: {url: 'https://me:word@x/'}", "no user name or password in a URL"),
        ("http: {url: 'https://x/#part'}", "has no fragment"),
        ("http: {url: 'https://x/a b'}", "percent-encoded"),
        ("http: {url: 'https://x/{idempotency_key}'}", "the key is sent as a header"),
        ("http: {url: ''}", "tools.a.http.url: is empty"),
        ("http: {url: 'https://${9}/'}", "write a variable of the environment as ${NAME}"),
        (f"http: {{{URL}, method: HEAD}}", "tools.a.http.method: must be one of"),
        (f"http: {{{URL}, method: GET}}", "GET is for a tool of effect_class read_only"),
        (f"http: {{{URL}, refused: [500]}}", "statuses from 400 to 499"),
        (f"http: {{{URL}, refused: 402}}", "statuses from 400 to 499"),
        (f"http: {{{URL}, response_bytes_max: 0}}", "must be a whole number from 1"),
        (f"http: {{{URL}, headers: {{Authorization: Bearer x}}}}", "is a secret by its name"),
        (f"http: {{{URL}, headers: {{X-Api-Key: x}}}}", "is a secret by its name"),
        (f"http: {{{URL}, headers: {{Idempotency-Key: x}}}}", "is set by the executor"),
        (f"http: {{{URL}, headers: {{content-type: x}}}}", "is set by the executor"),
        (f"http: {{{URL}, headers: {{A: x, a: y}}}}", "a header is there twice"),
        (f"http: {{{URL}, headers: {{'A b': x}}}}", "is not a name that can be used here"),
        (f'http: {{{URL}, headers: {{A: "x\\ny"}}}}', "has blanks at its ends"),
        (f"http: {{{URL}, headers: {{A: 5}}}}", "must be a text"),
        (f"http: {{{URL}}}\n    effect_class: transactional", "it cannot be remote"),
        (f"http: {{{URL}}}\n    mcp: {{server: s}}", "http or mcp, not both"),
        ("mcp: {server: nobody}", "tools.a.mcp.server: must name one of mcp_servers"),
        ("mcp: {}", "tools.a.mcp: must name one of mcp_servers"),
        ("mcp: {server: s}\n    arguments: text", "takes an object, not free text"),
        ("mcp: {server: s, error_means: maybe}", "tools.a.mcp.error_means: must be one of"),
        ("reconcile: {}", "only a tool of effect_class reconcilable"),
        (
            "effect_class: reconcilable\n    reconcile: {}",
            "t.yaml:5: tools.a.reconcile: needs http",
        ),
        (
            f"effect_class: reconcilable\n    reconcile: {{http: {{{URL}}}}}",
            "must hold {idempotency_key} once",
        ),
        (
            "effect_class: reconcilable\n"
            "    reconcile: {http: {url: 'https://x/{idempotency_key}', member: state}}",
            "member and happened are given together",
        ),
        (
            "effect_class: reconcilable\n    reconcile: {http: {url: 'https://x/{idempotency_key}',"
            " member: state, happened: [a], not_happened: [a]}}",
            "shares no text with happened",
        ),
    ],
)
def test_a_mistake_in_a_tool_is_named_by_file_line_and_field(text: str, problem: str) -> None:
    """Before anything is connected."""
    servers = "\nmcp_servers: {s: {command: x}}\n"
    with pytest.raises(Misuse) as refused:
        parse_catalogue(f"{HEAD}    {text}{servers}", "t.yaml")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "t.yaml:2: mcp_servers.s: needs either command or url"),
        ("{command: x, url: 'https://x/'}", "needs either command or url"),
        ("{command: [x]}", "mcp_servers.s.command: must be a text"),
        ("{command: x, args: y}", "mcp_servers.s.args: must be a list of texts"),
        ("{command: x, args: [1]}", "mcp_servers.s.args: must be a list of texts"),
        ("{command: x, env: {A-B: y}}", "is not a name that can be used here"),
        ("{command: x, env: {DB_PASSWORD: y}}", "is a secret by its name"),
        ("{command: x, headers: {A: y}}", "belongs to a server with a url"),
        ("{url: 'https://x/', args: [y]}", "belongs to a server with a command"),
        ("{url: 'x'}", "must be an http:// or https:// URL"),
        ("{command: x, stderr: file}", "mcp_servers.s.stderr: must be one of"),
    ],
)
def test_a_mistake_in_a_server_is_named_by_file_line_and_field(text: str, problem: str) -> None:
    """As for tools."""
    with pytest.raises(Misuse) as refused:
        parse_catalogue(f"version: 1\nmcp_servers: {{s: {text}}}", "t.yaml")
    assert problem in str(refused.value)


def test_what_a_variable_brings_is_checked_and_not_quoted() -> None:
    """A secret in a wrong place must not come out in an error."""
    with pytest.raises(Misuse) as url:
        checked_url("https://user:CANARY@x/", "here")
    with pytest.raises(Misuse) as header:
        checked_header("CANARY\r\nHost: y", "here")
    assert "CANARY" not in f"{url.value}{header.value}"


def test_where_a_tool_is_belongs_to_the_digest() -> None:
    """Two catalogues that send money to two places are two."""
    one = parse_catalogue(f"{HEAD}    http: {{{URL}}}")
    two = parse_catalogue(f"{HEAD}    http: {{{URL}/}}")
    assert one.digest != two.digest
