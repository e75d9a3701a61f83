"""`toolcalls topics create|check`: the topics with their settings, made and verified."""

from typing import TYPE_CHECKING, Annotated

import typer

from processor.cli.console import emit_json, emit_line
from processor.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from processor.runtime.kafka_admin import Created, KafkaAdmin
    from processor.runtime.topics import Finding, TopicNames

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--kafka-bootstrap",
        "--bootstrap",
        help="Broker address, HOST:PORT[,HOST:PORT]; else TOOLCALLS_KAFKA_BOOTSTRAP.",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option("--prefix", help="Prefix of all topic names; else TOOLCALLS_TOPIC_PREFIX."),
]
Chunks = Annotated[bool, typer.Option("--chunks", help="With the topic of provider-native chunks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    topics = typer.Typer(no_args_is_help=True)
    topics.command("create", help=_CREATE_HELP)(create)
    topics.command("check", help=_CHECK_HELP)(check)
    app.add_typer(topics, name="topics", help="Create and check the Kafka topics.")


_CREATE_HELP = """Create the topics that do not exist; those that do are left as they are.

Example: toolcalls topics create --kafka-bootstrap localhost:9092 --partitions 12
"""
_CHECK_HELP = """Check that the topics exist with the settings that they need.

Example: toolcalls topics check --kafka-bootstrap localhost:9092

Exit codes: 0 nothing found, 3 something found, 2 a setting is wrong, 4 Kafka not reached.
"""


def create(
    kafka_bootstrap: Bootstrap = None,
    partitions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Partitions of each topic.")
    ] = 12,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1, max=15, help="Replicas of each partition; else 3, or 1 with fewer brokers."
        ),
    ] = None,
    prefix: Prefix = None,
    *,
    chunks: Chunks = False,
    as_json: AsJson = False,
) -> None:
    """Create the topics."""
    from processor.runtime.topics import topic_specs

    admin, names = _admin(kafka_bootstrap, prefix, chunks=chunks)
    if replication_factor is None:
        replication_factor = 3 if admin.brokers_count() >= 3 else 1
    specs = topic_specs(names, partitions=partitions, replication_factor=replication_factor)
    _print_created(admin.create(specs), partitions, as_json=as_json)


def check(
    kafka_bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    *,
    chunks: Chunks = False,
    as_json: AsJson = False,
) -> None:
    """Check the topics."""
    admin, names = _admin(kafka_bootstrap, prefix, chunks=chunks)
    findings = admin.check(names)
    _print_findings(findings, len(names.by_role()), as_json=as_json)
    if findings:
        raise typer.Exit(ExitCode.REFUSED)


def _admin(
    bootstrap: str | None, prefix: str | None, *, chunks: bool
) -> tuple["KafkaAdmin", "TopicNames"]:
    from processor.config import kafka_bootstrap, read_environment
    from processor.runtime.kafka_admin import KafkaAdmin
    from processor.runtime.topics import TopicNames

    environment = read_environment(kafka_bootstrap=bootstrap, topic_prefix=prefix)
    names = TopicNames.prefixed(environment.topic_prefix, chunks=chunks)
    return KafkaAdmin(kafka_bootstrap(environment)), names


def _print_created(created: list["Created"], asked: int, *, as_json: bool) -> None:
    if as_json:
        emit_json(
            [{"topic": c.name, "created": c.created, "partitions": c.partitions} for c in created]
        )
        return
    for topic in created:
        line = f"{'created' if topic.created else 'exists '}  {topic.name}"
        if topic.partitions != asked:
            line += f"  with {topic.partitions} partitions, not {asked}"
        emit_line(line)
    if any(topic.partitions != asked for topic in created):
        emit_line(
            "A count of partitions is not changed here: keys would move between them. For another"
            " one drain the topics, then create new ones under another --prefix."
        )
    if not all(topic.created for topic in created):
        emit_line("What existed was left as it is; `toolcalls topics check` looks at its settings.")


def _print_findings(findings: list["Finding"], topics_count: int, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"code": f.code, "topic": f.topic, "sentence": f.sentence, "fix": f.fix}
            for f in findings
        ]
        emit_json(rows)
        return
    if not findings:
        emit_line(f"{topics_count} topics, all as they must be.")
    for finding in findings:
        emit_line(f"{finding.code}: {finding.sentence}.\n    {finding.fix}.")
