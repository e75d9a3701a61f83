"""House rule: squawk finds nothing in the migrations but what is excused here, file by file."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tests.tidy.tree import ROOT

SQUAWK = Path(sys.executable).parent / "squawk"
#: The oldest server that the migrations support.
PG_VERSION = "15.0"

#: The runner sets both limits once, for the one transaction of all files.
EVERYWHERE = ("require-lock-timeout", "require-statement-timeout")

#: File -> rule -> why it may stay. An excuse that is not needed any more is refused as well.
EXCUSED: Mapping[str, Mapping[str, str]] = {
    "0002_pre_tables.sql": {
        "prefer-bigint-over-int": "a Kafka partition and a timeline have 32 bits where they come"
        " from; a counter of conflicts of one key stays small",
        "prefer-bigint-over-smallint": "claims and starts of one call end at a few dozen",
    },
    "0011_pre_outbox.sql": {
        "require-concurrent-index-creation": "the outbox is short, and all files are one transaction",
    },
    "0012_pre_usage_tables.sql": {
        "prefer-bigint-over-int": "a Kafka partition has 32 bits; revisions of a report are few",
    },
}


def findings(*paths: Path) -> set[tuple[str, str]]:
    """(file, rule) of everything that squawk says."""
    done = subprocess.run(
        [
            *(str(SQUAWK), "--pg-version", PG_VERSION, "--assume-in-transaction"),
            *("--reporter", "json", "--exclude", ",".join(EVERYWHERE)),
            *(str(path) for path in paths),
        ],
        capture_output=True,
        check=False,
        timeout=60,
    )
    said = cast("list[dict[str, Any]]", json.loads(done.stdout or b"[]"))
    return {(Path(each["file"]).name, str(each["rule_name"])) for each in said}


def test_every_finding_in_a_migration_is_excused_with_a_reason() -> None:
    """Types that cannot grow, locks that stop readers, changes that break a running version."""
    found = findings(*sorted((ROOT / "migrations").glob("*.sql")))
    excused = {(name, rule) for name, rules in EXCUSED.items() for rule in rules}
    assert found - excused == set()
    assert excused - found == set(), "excuses that nothing needs"


def test_squawk_finds_what_it_is_there_for(tmp_path: Path) -> None:
    """A bad file is not silently passed."""
    bad = tmp_path / "0001_pre_bad.sql"
    bad.write_text(
        "ALTER TABLE tcl.call_guard RENAME COLUMN tool TO name;\n"
        "ALTER TABLE tcl.call_guard ALTER COLUMN claims TYPE bigint;\n"
        "ALTER TABLE tcl.call_guard ADD COLUMN x text NOT NULL;\n"
    )
    assert {rule for _, rule in findings(bad)} >= {
        "renaming-column",
        "changing-column-type",
        "adding-required-field",
    }
