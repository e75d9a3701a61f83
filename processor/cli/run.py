"""`toolcalls run`: one assembler process of the consumer group."""

from typing import Annotated

import typer

from processor.cli.group_protocol import GroupProtocolOption


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("run", help=_HELP)(run)


_HELP = """Assemble calls: read the events topic, write completed and rejected calls.

Example: toolcalls run --kafka-bootstrap localhost:9092 --slot 0 --start earliest

Exit codes: 0 stopped on request, 2 a setting is wrong, 3 a topic was refused, 4 Kafka not reached,
5 another process uses the slot, 6 fatal client error, 7 result of the last commit unknown,
8 the committed position was refused, 9 the broker refused a transaction. All but 2, 3 and 8 are
meant to be restarted by a supervisor.

With --group-protocol consumer a slot that was killed waits until its dead self's session on the
broker is over (group setting consumer.session.timeout.ms, 45 s by default), for 60 s at most
(TOOLCALLS_SLOT_WAIT_S), and then ends with 5. Shorter sessions: kafka-configs --alter
--entity-type groups --entity-name GROUP --add-config consumer.session.timeout.ms=12000
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
    group_protocol: GroupProtocolOption = None,
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
    from processor.app import StopRequest, build_assembler, run_assembler, wait_for_slot
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
        group_protocol=group_protocol,
        topic_prefix=prefix,
        catalogue=catalogue,
    )
    topics = TopicNames.prefixed(environment.topic_prefix)
    rules = read_catalogue(environment.catalogue) if environment.catalogue else None
    previous = [read_catalogue(path) for path in previous_catalogue or []]
    settings = runtime_settings(environment, topics.events, accept_reset=accept_reset)
    crash = crash_point(environment)

    def run_once() -> None:
        worker = build_assembler(
            settings, topics, rules=rules, previous=previous, crash_point=crash
        )
        run_assembler(worker, should_stop)

    wait_for_slot(run_once, should_stop, wait_s=environment.slot_wait_s)
