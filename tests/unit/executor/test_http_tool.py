"""HTTP tools against a real server that misbehaves: what the ledger says, and what really happened."""

import socket

import pytest

from processor.core.outcomes import EffectClass
from processor.executor.runner import Ran
from tests.unit.executor.hostile_http import OK, HostileServer
from tests.unit.executor.http_rig import catalogue_text, remote_rig
from tests.unit.executor.runner_rig import SOURCE, call_of

REMOTE: tuple[EffectClass, ...] = ("read_only", "idempotent", "reconcilable", "at_most_once")
REPEATABLE = frozenset({"read_only", "idempotent"})
KEY = '"acme/req_1001:call_1"'
UNKNOWN = [
    ("/reset", "http_cut"),
    ("/closed", "http_cut"),
    ("/half_head", "http_cut"),
    ("/no_http", "http_cut"),
    ("/reset_after_head", "http_cut"),
    ("/cut", "http_cut"),
    ("/cut_chunks", "http_cut"),
    ("/cut_old", "http_cut"),
    ("/redirect_303", "http_303"),
    ("/redirect_307", "http_307"),
    ("/408", "http_408"),
    ("/409", "http_409"),
    ("/418", "http_418"),
    ("/425", "http_425"),
    ("/429", "http_429"),
    ("/500", "http_500"),
    ("/502", "http_502"),
    ("/503", "http_503"),
    ("/504", "http_504"),
]


@pytest.mark.parametrize("effect_class", REMOTE)
@pytest.mark.parametrize("path", ["/ok", "/created", "/old"])
def test_success_is_the_result_byte_for_byte(path: str, effect_class: EffectClass) -> None:
    """One request, the exact arguments as its body, the key in quotes, the trace passed on."""
    arguments = b'{ "order" : "ORDER-1001", "amount": 1.10 }'
    with (
        HostileServer() as server,
        remote_rig(catalogue_text(server.url(path), effect_class)) as rig,
    ):
        call = call_of(arguments)
        assert rig.run(call) == Ran("settled", "succeeded")
        assert rig.result(call).body == OK
        assert rig.run(call) == Ran("settled", "replay")
    (request,) = server.requests
    assert (request.method, request.body) == ("POST", arguments)
    headers = request.headers
    assert headers["idempotency-key"] == KEY
    assert headers["traceparent"] == "00-1-2-01"
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == "Bearer CANARY-token"
    assert headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("effect_class", REMOTE)
@pytest.mark.parametrize(("path", "why"), UNKNOWN)
def test_an_answer_that_leaves_it_open_goes_by_class_and_is_never_failed(
    path: str, why: str, effect_class: EffectClass
) -> None:
    """A repeatable call runs again, every other is in doubt; one start is one request."""
    with (
        HostileServer() as server,
        remote_rig(catalogue_text(server.url(path), effect_class)) as rig,
    ):
        call = call_of()
        word = "ready" if effect_class in REPEATABLE else "in_doubt"
        assert rig.run(call) == Ran("parked", word)
        assert rig.ledger.history("acme", call.key.idempotency_key)[-1].why == why
        assert len(server.requests) == 1
        if word == "in_doubt":
            assert rig.run(call) == Ran("parked", "in_doubt")
            assert server.effects.total() == 1


@pytest.mark.parametrize("path", ["/never", "/stuck"])
@pytest.mark.parametrize("effect_class", ["idempotent", "at_most_once"])
def test_no_answer_in_time_is_unknown(path: str, effect_class: EffectClass) -> None:
    """Before the head or inside of the body; the limit is the tool's own."""
    with (
        HostileServer() as server,
        remote_rig(
            catalogue_text(server.url(path), effect_class).replace("timeout_s: 5", "timeout_s: 1.5")
        ) as rig,
    ):
        call = call_of()
        word = "ready" if effect_class in REPEATABLE else "in_doubt"
        assert rig.run(call) == Ran("parked", word)
        assert rig.ledger.history("acme", call.key.idempotency_key)[-1].why == "http_timed_out"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 415, 422])
def test_a_refusal_is_failed_by_name_with_its_body(status: int) -> None:
    """The server said that nothing was done; the application decides about a new key."""
    with (
        HostileServer() as server,
        remote_rig(catalogue_text(server.url(f"/{status}"), "at_most_once")) as rig,
    ):
        call = call_of()
        assert rig.run(call) == Ran("settled", "failed")
        stored = rig.result(call)
        assert (stored.error_class, stored.body, stored.retry) == (
            f"http_{status}",
            b'{"why":"no"}',
            "new_key",
        )
    assert server.effects.total() == 0


def test_the_catalogue_can_name_more_refusals() -> None:
    """A service whose 402 means that the card was declined."""
    with HostileServer() as server:
        url = server.url("/402")
        with remote_rig(catalogue_text(url, "at_most_once")) as rig:
            assert rig.run(call_of()) == Ran("parked", "in_doubt")
        with remote_rig(catalogue_text(url, "at_most_once", ", refused: [402]")) as rig:
            assert rig.run(call_of()) == Ran("settled", "failed")
            assert rig.result(call_of()).error_class == "http_402"


@pytest.mark.parametrize("effect_class", REMOTE)
def test_a_refused_connection_was_not_sent_whatever_the_class(effect_class: EffectClass) -> None:
    """Given back without counting as a start."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with remote_rig(catalogue_text(f"http://127.0.0.1:{port}/x", effect_class)) as rig:
        call = call_of()
        assert rig.run(call) == Ran("parked", "ready")
        assert rig.view(call).begun == 0
        assert rig.ledger.history("acme", call.key.idempotency_key)[-1].why == "http_connect_failed"


@pytest.mark.parametrize("url", ["https://127.0.0.1:{port}/ok", "http://no-such-host.invalid/x"])
def test_a_failed_tls_handshake_or_name_was_not_sent(url: str) -> None:
    """A server that does not speak TLS, and a host that nobody knows."""
    with (
        HostileServer() as server,
        remote_rig(
            catalogue_text(url.format(port=server.port), "at_most_once", ", connect_timeout_s: 2")
        ) as rig,
    ):
        assert rig.run(call_of()) == Ran("parked", "ready")
        assert rig.view(call_of()).begun == 0
    assert server.effects.total() == 0


def test_a_connection_that_is_not_made_in_time_was_not_sent() -> None:
    """A full backlog: the handshake never ends, and the limit is the one of the whole call."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        taken = [socket.socket() for _ in range(4)]
        for each in taken:
            each.settimeout(0)
            each.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/x"
        text = catalogue_text(url, "at_most_once").replace("timeout_s: 5", "timeout_s: 0.3")
        with remote_rig(text) as rig:
            assert rig.run(call_of()) == Ran("parked", "ready")
            why = rig.ledger.history("acme", "req_1001:call_1")[-1].why
            assert why == "http_connect_timed_out"
        for each in taken:
            each.close()


@pytest.mark.parametrize(("path", "wait_s"), [("/429", 7), ("/503_date", 30), ("/503_far", 3600)])
def test_retry_after_is_respected_and_bounded(path: str, wait_s: int) -> None:
    """Seconds, or a date beside the answer's own date."""
    with (
        HostileServer() as server,
        remote_rig(catalogue_text(server.url(path), "idempotent")) as rig,
    ):
        assert rig.run(call_of()) == Ran("parked", "ready")
        rig.now_ms += wait_s * 1000 - 1
        assert rig.ledger.redrive(SOURCE.topic, ["refund"], 10, 30) == []
        rig.now_ms += 1
        assert rig.ledger.redrive(SOURCE.topic, ["refund"], 10, 30) == [SOURCE]


@pytest.mark.parametrize("path", ["/500", "/reset", "/cut"])
def test_an_idempotent_call_that_runs_again_leaves_one_effect_and_ends_in_doubt(path: str) -> None:
    """The effect happened before the answer was lost; the server knows the key again."""
    with (
        HostileServer(dedupes=True) as server,
        remote_rig(catalogue_text(server.url(path), "idempotent", tool="max_attempts: 3")) as rig,
    ):
        call = call_of()
        words: list[str] = []
        for _ in range(4):
            words.append(rig.run(call).word)
            rig.now_ms += 120_000
        assert words == ["ready", "ready", "in_doubt", "in_doubt"]
        assert len(server.requests) == 3
        assert {r.headers["idempotency-key"] for r in server.requests} == {KEY}
        assert server.effects == {KEY: 1}


def test_a_refusal_of_a_repeated_request_says_nothing_about_the_first_one() -> None:
    """The effect happened, the answer was lost, and meanwhile the credentials have ended."""
    text = catalogue_text("", "idempotent", tool="max_attempts: 2")
    with HostileServer(dedupes=True) as server:
        url = server.url("/lost_then_401")
        with remote_rig(text.replace('url: ""', f'url: "{url}"')) as rig:
            assert rig.run(call_of()) == Ran("parked", "ready")
            rig.now_ms += 60_000
            assert rig.run(call_of()) == Ran("parked", "in_doubt")
            assert rig.ledger.history("acme", "req_1001:call_1")[-1].why == "http_401"
    assert server.effects == {KEY: 1}


@pytest.mark.parametrize(
    "trace", ["00-1-2-01\r\nX-Evil: 1", "00-1-2-01\ufffd", "", "x" * 600, "00-é-2-01"]
)
def test_a_trace_that_cannot_stand_in_a_request_is_left_out(trace: str) -> None:
    """Whoever writes the topic must not be able to bring a call into doubt by a header."""
    with (
        HostileServer() as server,
        remote_rig(catalogue_text(server.url("/ok"), "at_most_once")) as rig,
    ):
        ran = rig.runner.run(call_of(), SOURCE, {"traceparent": trace, "other": "x"})
        assert ran == Ran("settled", "succeeded")
    assert not {"traceparent", "x-evil", "other"} & set(server.requests[0].headers)


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/empty", b"null", None),
        ("/text", b'"paid"', None),
        ("/binary", None, "result_not_json"),
        ("/broken_json", None, "result_not_json"),
        ("/huge", None, "result_too_large"),
        ("/gzip", None, "result_too_large"),
    ],
)
def test_a_body_that_cannot_be_kept_does_not_undo_the_effect(
    path: str, body: bytes | None, problem: str | None
) -> None:
    """Succeeded, and what is missing is named; a body is never read beyond its bound."""
    with (
        HostileServer() as server,
        remote_rig(
            catalogue_text(server.url(path), "at_most_once", ", response_bytes_max: 100000")
        ) as rig,
    ):
        call = call_of()
        assert rig.run(call) == Ran("settled", "succeeded")
        stored = rig.result(call)
        assert (stored.body, stored.error_class) == (body, problem)


def test_a_get_has_its_arguments_in_the_query_and_follows_its_own_origin_only() -> None:
    """Texts as they are, everything else as the JSON that was checked."""
    arguments = b'{"order":"a&b \xc3\xa9","n":1.10,"big":12345678901234567890,"list":[1.0,"x"]}'
    with HostileServer() as server:
        text = catalogue_text(server.url("/moved?v=1"), "read_only", ", method: GET")
        with remote_rig(text) as rig:
            assert rig.run(call_of(arguments)) == Ran("settled", "succeeded")
        text = catalogue_text(server.url("/away"), "read_only", ", method: GET")
        with remote_rig(text) as rig:
            assert rig.run(call_of(arguments)) == Ran("settled", "failed")
            assert rig.result(call_of()).error_class == "http_redirect_refused"
    first, second, third = server.requests
    assert first.path == (
        "/moved?v=1&order=a%26b+%C3%A9&n=1.10&big=12345678901234567890&list=%5B1.0%2C%22x%22%5D"
    )
    assert (second.path, third.path.partition("?")[0], first.body) == ("/ok", "/away", b"")


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would see every argument, and repeat what they like."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with (
        HostileServer() as server,
        remote_rig(catalogue_text(server.url("/ok"), "at_most_once")) as rig,
    ):
        assert rig.run(call_of()) == Ran("settled", "succeeded")


def test_free_text_is_sent_as_it_is() -> None:
    """A tool of the catalogue with `arguments: text`."""
    with (
        HostileServer() as server,
        remote_rig(
            catalogue_text(server.url("/ok"), "at_most_once", tool="arguments: text")
        ) as rig,
    ):
        call = call_of("zwei Wörter".encode(), arguments_format="text")
        assert rig.run(call) == Ran("settled", "succeeded")
    assert server.requests[0].body == "zwei Wörter".encode()
    assert server.requests[0].headers["content-type"] == "text/plain; charset=utf-8"


def test_arguments_that_do_not_fit_the_schema_never_leave() -> None:
    """Checked just before execution, as for a function."""
    with (
        HostileServer() as server,
        remote_rig(
            catalogue_text(server.url("/ok"), "at_most_once", tool="schema: {required: [amount]}")
        ) as rig,
    ):
        assert rig.run(call_of()) == Ran("settled", "failed")
        assert rig.result(call_of()).error_class == "schema_mismatch"
    assert server.requests == []
