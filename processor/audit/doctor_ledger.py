"""Examination of the ledger's database: revision and roles.

Rules:
    Only questions; a database that does not answer is a finding.
"""

from pathlib import Path
from typing import Final

from processor.audit.doctor_report import Diagnosis
from processor.core.errors import Indeterminate, Misuse, ProcessorError, Transient
from processor.ledger.migrate import read_migrations, status
from processor.ledger.roles import ROLES, read_roles

_SUBJECT: Final = "the ledger's database"


def examine_ledger(database_url: str, migrations: Path, told: Diagnosis) -> None:
    """Add what is wrong with the database. Cost: a few questions; bounded by their timeouts."""
    try:
        roles = read_roles(database_url)
        found = status(database_url, read_migrations(migrations))
    except (Transient, Indeterminate) as e:
        told.find(
            "database_unreachable",
            _SUBJECT,
            str(e),
            "check the address, the network and that Postgres runs",
        )
        return
    except Misuse as e:
        told.find("database_refused", _SUBJECT, str(e), "see the sentence")
        return
    except ProcessorError as e:
        told.find_refusal(e, _SUBJECT, "see Postgres's log")
        return
    if found.pending:
        told.find(
            "migrations_pending",
            _SUBJECT,
            f"{len(found.pending)} migrations are not applied: {', '.join(found.pending[:5])}",
            "run `toolcalls migrate` as the database's owner",
        )
    missing = [role for role in ROLES if role not in roles.existing]
    if missing and found.applied:
        told.find(
            "role_missing",
            _SUBJECT,
            f"the roles {', '.join(missing)} do not exist",
            "run `toolcalls migrate` in this cluster of databases; roles belong to the cluster",
        )
    told.note(f"ledger: {len(found.applied)} migrations applied")
    if roles.is_superuser or "tcl_owner" in roles.held:
        told.note(
            "ledger: this login is the owner or a superuser; programs need tcl_executor only,"
            " people tcl_reader"
        )
    elif roles.held:
        told.note(f"ledger: this login holds {', '.join(sorted(roles.held))}")
    elif found.applied:
        told.find(
            "right_missing",
            _SUBJECT,
            "this login holds no role of the ledger, so every question is refused",
            "GRANT tcl_executor, or another role of migrations/README.md, to it",
        )
