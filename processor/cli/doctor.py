"""`toolcalls doctor`: is the place where the processor runs as it must be?"""

from typing import TYPE_CHECKING, Annotated

import typer

from processor.cli.console import emit_json, emit_line, progress_line
from processor.cli.exit_codes import ExitCode
from processor.cli.ledger_call import Database
from processor.cli.verify import (
    Bootstrap,
    CataloguePath,
    Group,
    Prefix,
    PreviousCatalogue,
    known_terms,
)

if TYPE_CHECKING:
    from processor.audit.doctor_report import Diagnosis


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("doctor", help=_HELP)(doctor)


_HELP = """Examine the brokers' settings, topics, rights, the assembler's group and its commits, open
transactions, this host's clock, the schema registry if one is given, and the ledger's database.

Every finding has a code, a sentence and the step that mends it. Nothing is changed. It asks with
the credentials that it is given, in bounded time, also when a server is away.

Example: toolcalls doctor --kafka-bootstrap localhost:9092 --catalogue catalogue.yaml

Exit codes: 0 nothing found, 3 something found, 4 a server did not answer, 2 a setting is wrong.
"""


def doctor(
    kafka_bootstrap: Bootstrap = None,
    group: Group = None,
    prefix: Prefix = None,
    catalogue: CataloguePath = None,
    previous_catalogue: PreviousCatalogue = None,
    database_url: Database = None,
    registry_url: Annotated[
        str | None,
        typer.Option(envvar="TOOLCALLS_REGISTRY_URL", help="The schema registry, if one is used."),
    ] = None,
    *,
    chunks: Annotated[
        bool, typer.Option("--chunks", help="With the topic of provider-native chunks.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Examine."""
    from processor.app import wall_ms
    from processor.audit.doctor import DoctorSettings, KafkaDoctor
    from processor.audit.doctor_ledger import examine_ledger
    from processor.audit.doctor_registry import examine_registry, subjects_of
    from processor.codec.registry import RegistrySettings
    from processor.config import kafka_bootstrap as bootstrap_of
    from processor.config import read_environment, runtime_settings
    from processor.resources import migrations_dir
    from processor.runtime.topics import TopicNames

    environment = read_environment(
        kafka_bootstrap=kafka_bootstrap, group=group, topic_prefix=prefix, catalogue=catalogue
    )
    topics = TopicNames.prefixed(environment.topic_prefix, chunks=chunks)
    runtime = runtime_settings(environment, topics.events, accept_reset=False)
    known, _ = known_terms(environment, previous_catalogue)
    settings = DoctorSettings(
        bootstrap_of(environment),
        topics,
        environment.group,
        runtime.commit,
        environment.call_max_life_ms,
    )
    registry = None if registry_url is None else RegistrySettings(registry_url).checked()
    with progress_line() as progress:
        told = KafkaDoctor(settings, known, wall_ms, progress.show).examine()
        if registry is not None:
            progress.show("schema registry")
            examine_registry(registry, subjects_of(topics), told)
        if database_url:
            progress.show("the ledger's database")
            examine_ledger(database_url, migrations_dir(), told)
        else:
            told.note("ledger: not asked; give --database-url or set TOOLCALLS_DATABASE_URL")
    _print(told, as_json=as_json)
    if told.was_cut_short:
        raise typer.Exit(ExitCode.UNREACHABLE)
    if told.findings:
        raise typer.Exit(ExitCode.REFUSED)


def _print(told: "Diagnosis", *, as_json: bool) -> None:
    if as_json:
        findings = [
            {"code": f.code, "subject": f.subject, "sentence": f.sentence, "fix": f.fix}
            for f in told.findings
        ]
        emit_json({"findings": findings, "notes": told.notes})
        return
    for note in told.notes:
        emit_line(note)
    for finding in told.findings:
        emit_line(f"{finding.code}: {finding.sentence}.\n    {finding.fix}.")
    if not told.findings:
        emit_line("Nothing found.")
