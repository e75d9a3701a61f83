"""Calls in doubt that are answered by asking the other side."""

import threading
from collections import deque

import pytest

from processor.core.errors import Misuse
from processor.executor import Happened, NotHappened, ToolContext, ToolSet
from processor.executor.ports import Silent
from processor.executor.reconcile import Reconciler
from processor.executor.runner import Ran
from processor.executor.served import serve
from processor.policy.catalogue import parse_catalogue
from tests.unit.executor.hostile_http import OK, HostileServer
from tests.unit.executor.http_rig import catalogue_text, remote_rig
from tests.unit.executor.runner_rig import Rig, call_of, raising


def nothing(order: str) -> None:
    """A tool that does nothing."""


class Other:
    """The system behind the tool: answers what the test has put in line, and is asked about a context."""

    def __init__(self, *answers: object) -> None:
        self.answers = deque(answers)
        self.asked: list[ToolContext] = []

    def __call__(self, context: ToolContext) -> object:
        """The lookup of the tool."""
        self.asked.append(context)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


def doubtful(other: Other) -> tuple[Rig, Reconciler]:
    """A call in doubt, and who asks."""
    tools = ToolSet()

    @tools.tool(name="refund", effect_class="reconcilable", reconcile=other)
    def refund(order: str) -> None:
        raise ConnectionError

    rig = Rig(tools)
    assert rig.run(call_of()) == Ran("parked", "in_doubt")
    return rig, reconciler_of(rig)


def reconciler_of(rig: Rig) -> Reconciler:
    """Who asks for this rig."""
    return Reconciler(rig.ledger, rig.tools, clock=rig.clock, observer=Silent())


def ask(rig: Rig, reconciler: Reconciler) -> list[Ran]:
    """One round of everything that is due, some time later."""
    rig.clock.now_s += 400
    return [reconciler.ask(line) for line in reconciler.due()]


def test_what_happened_is_settled_with_the_other_sides_answer() -> None:
    """The lookup knows the ids and the key, and needs no arguments."""
    other = Other(Happened({"refund": "R-1"}))
    rig, reconciler = doubtful(other)
    assert ask(rig, reconciler) == [Ran("settled", "succeeded")]
    assert rig.result(call_of()).body == b'{"refund":"R-1"}'
    assert rig.run(call_of()) == Ran("settled", "replay")
    (context,) = other.asked
    assert context.idempotency_key == "req_1001:call_1"
    assert context.response_id == "resp_1001"
    assert ask(rig, reconciler) == []


def test_what_did_not_happen_counts_only_when_it_has_stood_for_its_time() -> None:
    """A request may still be under way; then a new key may be used."""
    other = Other(NotHappened(), NotHappened(), NotHappened(), NotHappened())
    rig, reconciler = doubtful(other)
    assert ask(rig, reconciler) == [Ran("parked", "in_doubt")]
    assert ask(rig, reconciler) == [Ran("parked", "in_doubt")]
    assert ask(rig, reconciler) == [Ran("parked", "in_doubt")]
    assert ask(rig, reconciler) == [Ran("settled", "failed")]
    stored = rig.result(call_of())
    assert (stored.error_class, stored.retry) == ("not_happened", "new_key")


def test_an_answer_that_changes_begins_the_wait_again() -> None:
    """An outage of the other side between two answers proves nothing."""
    other = Other(NotHappened(), ConnectionError(), NotHappened(), NotHappened(), Happened())
    rig, reconciler = doubtful(other)
    words = [ask(rig, reconciler)[0].word for _ in range(5)]
    assert words == ["in_doubt", "in_doubt", "in_doubt", "in_doubt", "succeeded"]


@pytest.mark.parametrize("answer", [None, "yes", ValueError("canary"), SystemExit()])
def test_everything_else_leaves_the_doubt_and_is_asked_again_later(answer: object) -> None:
    """Fail closed, and not as fast as possible."""
    other = Other(answer, answer, answer)
    rig, reconciler = doubtful(other)
    assert ask(rig, reconciler) == [Ran("parked", "in_doubt")]
    assert list(reconciler.due()) == []
    assert ask(rig, reconciler) == [Ran("parked", "in_doubt")]
    assert len(other.asked) == 2


def test_a_call_is_asked_about_once_at_a_time() -> None:
    """A slow lookup is not joined by a second one."""
    rig, reconciler = doubtful(Other(None))
    rig.clock.now_s += 400
    (line,) = reconciler.due()
    rig.clock.now_s += 400
    assert list(reconciler.due()) == []
    reconciler.ask(line)
    rig.clock.now_s += 400
    assert len(reconciler.due()) == 1


def test_the_late_owner_who_settles_first_is_believed() -> None:
    """Both know the same fence; one answer stays."""
    asked, go_on = threading.Event(), threading.Event()
    tools = ToolSet()

    def slow(context: ToolContext) -> Happened:
        asked.set()
        assert go_on.wait(30)
        return Happened("lookup")

    @tools.tool(name="refund", effect_class="reconcilable", reconcile=slow, timeout_s=30)
    def refund(order: str) -> None:
        raise ConnectionError

    rig = Rig(tools)
    rig.run(call_of())
    reconciler = reconciler_of(rig)
    (line,) = reconciler.due()
    ran: list[Ran] = []
    asking = threading.Thread(target=lambda: ran.append(reconciler.ask(line)))
    asking.start()
    assert asked.wait(30)
    view = rig.view(call_of())
    assert rig.ledger.resolve(
        "acme", "req_1001:call_1", view.fence, "failed", "dana", None, "looked it up"
    )
    go_on.set()
    asking.join(30)
    assert ran == [Ran("parked", "in_doubt")]
    assert rig.view(call_of()).state == "failed"


def test_an_async_lookup_runs_on_a_loop() -> None:
    """As an async tool does."""
    tools = ToolSet()

    async def lookup(context: ToolContext) -> Happened:
        return Happened(context.tool)

    @tools.tool(name="refund", effect_class="reconcilable", reconcile=lookup)
    def refund(order: str) -> None:
        raise ConnectionError

    rig = Rig(tools)
    rig.run(call_of())
    reconciler = reconciler_of(rig)
    assert ask(rig, reconciler) == [Ran("settled", "succeeded")]
    reconciler.close()


def test_only_reconcilable_calls_of_tools_with_a_lookup_are_asked_about() -> None:
    """An at_most_once call stays a person's."""
    rig = Rig(raising(ConnectionError(), "at_most_once"))
    rig.run(call_of())
    assert list(reconciler_of(rig).due()) == []
    with pytest.raises(Misuse, match="only a tool of effect_class reconcilable"):
        ToolSet().tool(effect_class="at_most_once", reconcile=Other())(nothing)
    with pytest.raises(Misuse, match="one parameter, named context"):
        ToolSet().tool(effect_class="reconcilable", reconcile=nothing)(nothing)
    undeclared = ToolSet()
    undeclared.tool(name="refund", reconcile=Other())(nothing)
    with pytest.raises(Misuse, match="reconcile needs effect_class reconcilable"):
        serve(undeclared)


# --- over HTTP


def reconcile_text(server: HostileServer, path: str, more: str = "") -> str:
    """A tool at `path` and its lookup, whose absence counts after ten minutes."""
    asked = f'http: {{url: "{server.url("/asked/{idempotency_key}")}"{more}}}'
    stated = f"reconcile: {{absent_after_s: 600, {asked}}}"
    return catalogue_text(server.url(path), "reconcilable", tool=stated)


@pytest.mark.parametrize("path", ["/500", "/reset", "/cut"])
def test_an_http_lookup_answers_a_lost_answer(path: str) -> None:
    """One effect, one request for it, and the result of the lookup."""
    with HostileServer() as server, remote_rig(reconcile_text(server, path)) as rig:
        assert rig.run(call_of()) == Ran("parked", "in_doubt")
        assert ask(rig, reconciler_of(rig)) == [Ran("settled", "succeeded")]
        assert rig.result(call_of()).body == OK
    assert server.effects.total() == 1
    effect, lookup = server.requests
    assert (effect.method, lookup.method) == ("POST", "GET")
    assert lookup.path == "/asked/acme%2Freq_1001%3Acall_1"


def test_an_http_lookup_that_finds_nothing_fails_the_call_in_the_end() -> None:
    """404 twice, ten minutes apart."""
    with HostileServer() as server, remote_rig(reconcile_text(server, "/moved")) as rig:
        assert rig.run(call_of()) == Ran("parked", "in_doubt")
        reconciler = reconciler_of(rig)
        words = [ask(rig, reconciler)[0].word for _ in range(3)]
        assert words == ["in_doubt", "in_doubt", "failed"]
    assert server.effects.total() == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"state":"paid"}', ["succeeded"]),
        (b'{"state":"void"}', ["in_doubt", "in_doubt", "failed"]),
        (b'{"state":"pending"}', ["in_doubt", "in_doubt", "in_doubt"]),
        (b'{"state":true}', ["in_doubt", "in_doubt", "in_doubt"]),
        (b"[]", ["in_doubt", "in_doubt", "in_doubt"]),
        (b"{paid", ["in_doubt", "in_doubt", "in_doubt"]),
    ],
)
def test_a_lookup_can_read_a_member(body: bytes, words: list[str]) -> None:
    """A text of neither list, or no text at all, leaves the doubt."""
    more = ", member: state, happened: [paid], not_happened: [void]"
    with HostileServer() as server, remote_rig(reconcile_text(server, "/500", more)) as rig:
        server.lookup_body = body
        rig.run(call_of())
        reconciler = reconciler_of(rig)
        assert [ask(rig, reconciler)[0].word for _ in words] == words


def test_a_function_and_the_catalogue_cannot_both_say_whom_to_ask() -> None:
    """One way of asking."""
    with HostileServer() as server, remote_rig(reconcile_text(server, "/ok")) as rig:
        lookups = {n: t.lookup for n, t in rig.tools.items() if t.lookup}
        tools = ToolSet()
        tools.tool(name="refund", effect_class="reconcilable", reconcile=Other())(nothing)
        with pytest.raises(Misuse, match="both say whom to ask"):
            serve(tools, None, lookups)
        both = ToolSet()
        both.tool(name="refund", effect_class="reconcilable")(nothing)
        with pytest.raises(Misuse, match="there is a function as well"):
            serve(both, parse_catalogue(reconcile_text(server, "/ok")))
