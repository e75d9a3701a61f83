"""`toolcalls migrate`: bring the ledger's schema up to date."""

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("migrate", help=_HELP)(migrate)


_HELP = """Apply the ledger's migrations to Postgres, once each, all or nothing.

Example: toolcalls migrate --database-url postgresql://owner@localhost:5432/tools

The phase `pre` goes in before the new version of the programs runs, `post` after the old one is gone.
"""


def migrate(
    database_url: Annotated[
        str | None, typer.Option(envvar="TOOLCALLS_DATABASE_URL", help="The ledger's database.")
    ] = None,
    phase: Annotated[str, typer.Option(help="pre, post or all.")] = "all",
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be applied; change nothing.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Say what is applied and what is not.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer for machines.")] = False,
) -> None:
    """Apply, or say what would be applied."""
    from processor.core.errors import Misuse
    from processor.ledger import migrate as ledger_migrate
    from processor.resources import migrations_dir

    if not database_url:
        raise Misuse("no database: give --database-url or set TOOLCALLS_DATABASE_URL")
    if phase not in {"pre", "post", "all"}:
        raise Misuse(f"--phase must be pre, post or all, not {phase}")
    migrations = ledger_migrate.read_migrations(migrations_dir())
    if status:
        found = ledger_migrate.status(database_url, migrations)
        _tell({"applied": found.applied, "pending": found.pending}, as_json=as_json)
        return
    names = ledger_migrate.migrate(
        database_url,
        migrations,
        phase=phase,  # type: ignore[arg-type]  # checked above
        dry_run=dry_run,
    )
    _tell({"would apply" if dry_run else "applied": names}, as_json=as_json)


def _tell(lists: dict[str, list[str]], *, as_json: bool) -> None:
    from processor.cli.console import emit_json, emit_line

    if as_json:
        emit_json({name.replace(" ", "_"): names for name, names in lists.items()})
        return
    for name, names in lists.items():
        emit_line(f"{name}: {', '.join(names) if names else 'nothing'}")
