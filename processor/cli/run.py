"""`toolcalls run`: one assembler process of the consumer group."""

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("run", help=_HELP)(run)


_HELP = """Assemble calls: read the events topic, write completed and rejected calls.

Example: toolcalls run --kafka-bootstrap localhost:9092 --slot 0 --start earliest

Exit codes: 0 stopped on request, 2 a setting is wrong, 3 a topic was refused, 4 Kafka not reached,
5 another process uses the slot, 6 fatal client error, 7 result of the last commit unknown,
8 the committed position was refused, 9 the broker refused a transaction. All but 2, 3 and 8 are
meant to be restarted by a supervisor.
"""


def run(
    kafka_bootstrap: Annotated[
        str | None, typer.Option(help="Broker address, HOST:PORT[,HOST:PORT].")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Consumer group.")] = None,
    slot: Annotated[
        str | None, typer.Option(help="Stable name of this process in the group.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Where a group without offsets begins: earliest or latest.")
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Prefix of all topic names.")] = None,
    catalogue: Annotated[str | None, typer.Option(help="Path of catalogue.yaml.")] = None,
    previous_catalogue: Annotated[
        list[str] | None,
        typer.Option(
            envvar="TOOLCALLS_PREVIOUS_CATALOGUE",
            help="The catalogue before a change, while its calls may be open.",
        ),
    ] = None,
    *,
    accept_reset: Annotated[
        bool, typer.Option("--accept-reset", help="Start at offsets that were set by hand.")
    ] = False,
) -> None:
    """Run until SIGTERM or SIGINT."""
    from processor.app import StopRequest, build_assembler, run_assembler
    from processor.config import (
        crash_point,
        read_catalogue,
        read_environment,
        runtime_settings,
    )
    from processor.runtime.topics import TopicNames

    should_stop = StopRequest()
    should_stop.install()
    environment = read_environment(
        kafka_bootstrap=kafka_bootstrap,
        group=group,
        slot=slot,
        start=start,
        topic_prefix=prefix,
        catalogue=catalogue,
    )
    topics = TopicNames.prefixed(environment.topic_prefix)
    rules = read_catalogue(environment.catalogue) if environment.catalogue else None
    worker = build_assembler(
        runtime_settings(environment, topics.events, accept_reset=accept_reset),
        topics,
        rules=rules,
        previous=[read_catalogue(path) for path in previous_catalogue or []],
        crash_point=crash_point(environment),
    )
    run_assembler(worker, should_stop)
