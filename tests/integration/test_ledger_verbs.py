"""`toolcalls ledger` for people: approve, deny, resolve, cancel, sweep, and the list they start from."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest
from typer.testing import CliRunner

from processor.cli import console
from processor.cli.exit_codes import ExitCode
from processor.cli.main import build_app
from processor.core.errors import Misuse
from processor.core.identity import CallKey
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import Begin, Claim, Owned
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir

pytestmark = [pytest.mark.integration]

HASH = b"\x01" + hashlib.sha256(b"{}").digest()
CLAIM = Claim(
    key=CallKey("acme", "req_1", "resp_1", "call_1"),
    tool="refund",
    effect_class="at_most_once",
    args_hash=HASH,
    owner="slot-0/1",
    lease_s=60,
    emitted_at_ms=1_800_000_000_000,
    deadline_ms=3_600_000_000_000,
)
CALL = "acme/req_1:call_1"


class Desk:
    """A person at the command line, and the executor's side of the same ledger."""

    def __init__(self, database: str, ledger: PostgresLedger) -> None:
        self._database = database
        self.ledger = ledger

    def claimed(self, claim: Claim = CLAIM) -> Owned:
        """A call that an executor has claimed."""
        verdict = self.ledger.claim(claim)
        assert verdict.fence is not None
        return Owned(claim.key.tenant, claim.key.idempotency_key, verdict.fence)

    def held(self) -> Owned:
        """A call that waits for a person."""
        owned = self.claimed()
        assert self.ledger.hold(owned, "rule-1", "rev-1")
        return owned

    def in_doubt(self) -> Owned:
        """A call whose effect may have happened."""
        owned = self.claimed()
        assert self.ledger.begin_effect(owned, Begin(60)).ok
        assert self.ledger.release(owned, not_sent=False, why="timed_out") == "in_doubt"
        return owned

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a verb; status and output. Raises: what the program turns into a line."""
        result = CliRunner().invoke(
            build_app(),
            ["ledger", *arguments],
            env={"TOOLCALLS_DATABASE_URL": self._database},
        )
        if isinstance(result.exception, Misuse):
            raise result.exception
        return result.exit_code, result.stdout

    def answer(self, *arguments: str) -> tuple[int, dict[str, object]]:
        """Run a verb for machines."""
        status, output = self.run(*arguments, "--json")
        return status, cast("dict[str, object]", json.loads(output))


@pytest.fixture
def desk(database: str) -> Iterator[Desk]:
    """A migrated ledger."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with PostgresLedger(PostgresSettings(database)) as ledger:
        yield Desk(database, ledger)


@pytest.mark.parametrize(("verb", "state"), [("approve", "ready"), ("deny", "denied")])
def test_a_person_decides_by_the_hash_that_was_shown(desk: Desk, verb: str, state: str) -> None:
    """Once: the second time the call is not held any more, and the status says so."""
    desk.held()
    options = (CALL, "--args-hash", HASH.hex(), "--by", "dana")
    status, answer = desk.answer(verb, *options)
    assert (status, answer["done"], answer["state"]) == (ExitCode.OK, True, state)
    assert answer["next_key"] == ("same_key" if verb == "approve" else "never")
    assert answer["next_step"]
    status, answer = desk.answer(verb, *options)
    assert (status, answer["done"]) == (ExitCode.CHECK_FAILED, False)
    assert answer["why_not"] == f"the call is {state}, not held"
    assert desk.ledger.history("acme", "req_1:call_1")[-1].by == "dana"


def test_another_hash_decides_nothing_and_none_is_refused(desk: Desk) -> None:
    """What was not looked at is not approved."""
    desk.held()
    other = (b"\x01" + hashlib.sha256(b"[]").digest()).hex()
    assert desk.answer("approve", CALL, "--args-hash", other)[0] == ExitCode.CHECK_FAILED
    with pytest.raises(Misuse, match="66 hexadecimal digits"):
        desk.run("approve", CALL, "--args-hash", "zz")
    with pytest.raises(Misuse, match="give --args-hash"):
        desk.run("approve", CALL)
    with pytest.raises(Misuse, match="has no call"):
        desk.run("approve", "acme/req_2:call_1", "--args-hash", HASH.hex())
    view = desk.ledger.show("acme", "req_1:call_1")
    assert view is not None
    assert view.state == "held"


@pytest.mark.parametrize(
    ("to", "next_key"), [("succeeded", "never"), ("failed", "new_key"), ("ready", "same_key")]
)
def test_a_doubt_is_settled_by_its_fence_with_a_reason(desk: Desk, to: str, next_key: str) -> None:
    """The reason stands in the history; another fence settles nothing."""
    owned = desk.in_doubt()
    options = (CALL, "--to", to, "--reason", "asked the bank", "--by", "dana")
    status, answer = desk.answer("resolve", *options, "--fence", str(owned.fence + 1))
    assert (status, answer["state"]) == (ExitCode.CHECK_FAILED, "in_doubt")
    status, answer = desk.answer("resolve", *options, "--fence", str(owned.fence))
    assert (status, answer["state"], answer["next_key"]) == (ExitCode.OK, to, next_key)
    last = desk.ledger.history("acme", "req_1:call_1")[-1]
    assert (last.by, last.why) == ("dana", "resolved: asked the bank")


def test_a_resolution_to_something_else_or_without_a_reason_is_refused(desk: Desk) -> None:
    """By name, before the ledger is asked."""
    fence = str(desk.in_doubt().fence)
    with pytest.raises(Misuse, match="--to must be one of succeeded, failed, ready"):
        desk.run("resolve", CALL, "--fence", fence, "--to", "denied", "--reason", "x")
    for reason in (" ", "two\nlines", "x" * 201):
        with pytest.raises(Misuse, match="--reason"):
            desk.run("resolve", CALL, "--fence", fence, "--to", "failed", "--reason", reason)


def test_a_cancel_ends_what_has_not_begun_and_nothing_else(desk: Desk) -> None:
    """A held call ends; a call in doubt stays."""
    desk.held()
    status, answer = desk.answer("cancel", CALL)
    assert (status, answer["state"]) == (ExitCode.OK, "cancelled")
    other = replace(CLAIM, key=CallKey("acme", "req_2", "resp_2", "call_1"))
    owned = desk.claimed(other)
    assert desk.ledger.begin_effect(owned, Begin(60)).ok
    status, answer = desk.answer("cancel", "acme/req_2:call_1")
    assert (status, answer["state"]) == (ExitCode.CHECK_FAILED, "executing")


def test_a_sweep_says_how_many_it_moved(desk: Desk) -> None:
    """Nothing is over here."""
    desk.claimed()
    assert desk.answer("sweep") == (
        ExitCode.OK,
        {"verb": "sweep", "moved": 0, "more": False},
    )


def test_lists_are_newest_first_and_say_the_same_with_and_without_a_filter(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By creation, whatever the deadline; a long key is not cut in a terminal either."""
    long = "req_" + "7" * 200
    for request, deadline_ms in (("req_1", 3_700_000_000_000), (long, 3_600_000_000_000)):
        claim = replace(
            CLAIM, key=CallKey("acme", request, "resp_1", "call_1"), deadline_ms=deadline_ms
        )
        assert desk.ledger.hold(desk.claimed(claim), None, None)
    every = json.loads(desk.run("list", "--json")[1])
    held = json.loads(desk.run("list", "--state", "held", "--json")[1])
    assert [line["call"] for line in every] == [f"acme/{long}:call_1", CALL]
    assert every == held
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    heading, *lines = desk.run("list")[1].splitlines()
    assert heading.split()[:2] == ["tenant/key", "tool"]
    assert [line.split()[0] for line in lines] == [f"acme/{long}:call_1", CALL]
