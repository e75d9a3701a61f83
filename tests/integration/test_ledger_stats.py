"""`toolcalls ledger stats`: the counts are those of the ledger, and the oldest is named."""

import json
from dataclasses import replace
from typing import cast

import psycopg
import pytest
from typer.testing import CliRunner

from processor.cli.ledger_stats import age
from processor.cli.main import build_app
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import Begin
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir
from tests.contract.ledger_harness import SUCCEEDED, PostgresHarness, claim_for, key, owned

pytestmark = pytest.mark.integration


@pytest.fixture
def busy(database: str) -> str:
    """One call in each interesting state, and one conflict."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with PostgresLedger(PostgresSettings(database)) as ledger:
        base = claim_for(PostgresHarness(database, ledger))
        claims = [replace(base, key=key(n), owner=f"stats/{n}") for n in range(5)]
        own = [owned(c, ledger.claim(c)) for c in claims]
        for each in own[:3]:
            assert ledger.begin_effect(each, Begin(60)).ok
        assert ledger.finish(own[0], SUCCEEDED).ok
        assert ledger.release(own[1], not_sent=False) == "in_doubt"
        assert ledger.hold(own[3], None, None)
        assert ledger.claim(replace(claims[0], tool="other")).kind == "conflict"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE tcl.call_parked SET since = now() - interval '3 h'")
    return database


def ask(database: str, *arguments: str) -> str:
    """What the verb prints."""
    result = CliRunner().invoke(
        build_app(),
        ["ledger", "stats", *arguments],
        env={"TOOLCALLS_DATABASE_URL": database},
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def test_counts_stand_by_state_tool_and_class(busy: str) -> None:
    """For machines: what a person has to look at comes first, with its age in seconds."""
    found = cast("dict[str, object]", json.loads(ask(busy, "--json")))
    calls = cast("list[dict[str, object]]", found["calls"])
    assert [(c["state"], c["tool"], c["calls"]) for c in calls] == [
        ("in_doubt", "refund", 1),
        ("conflict", "refund", 1),
        ("held", "refund", 1),
        ("claimed", "refund", 1),
        ("executing", "refund", 1),
        ("succeeded", "refund", 1),
    ]
    in_doubt = cast("dict[str, float]", found["in_doubt"])
    assert in_doubt["count"] == 1
    assert in_doubt["oldest_s"] >= 3 * 3600
    assert cast("dict[str, int]", found["outbox"])["count"] > 0
    assert found["timeline_declared"] is True


def test_open_leaves_out_what_has_ended(busy: str) -> None:
    """It reads the small tables only."""
    assert "succeeded" not in ask(busy, "--open")
    assert "1 in doubt" in ask(busy, "--open")


def test_an_empty_ledger_has_nothing_to_look_at(database: str) -> None:
    """Every line of the summary says so."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    assert ask(database).splitlines() == ["0 in doubt", "0 held", "0 in the outbox"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (7_300, "2 h"), (200_000, "2 d")],
)
def test_an_age_is_told_in_its_largest_unit(seconds: float | None, text: str) -> None:
    """Rounded down."""
    assert age(seconds) == text
