"""`toolcalls normalize`: one normaliser process, from vendors' chunks to events of calls."""

from typing import Annotated

import typer

from processor.cli.group_protocol import GroupProtocolOption


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("normalize", help=_HELP)(normalize)


_HELP = """Read vendors' chunks from the chunks topic, write events of calls to the events topic.

The chunks topic is made by `toolcalls topics create --chunks`.

Example: toolcalls normalize --kafka-bootstrap localhost:9092 --slot 0 --start earliest

Exit codes and --group-protocol: as `toolcalls run`.
"""


def normalize(
    kafka_bootstrap: Annotated[
        str | None, typer.Option(help="Broker address, HOST:PORT[,HOST:PORT].")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Consumer group; else TOOLCALLS_NORMALISER_GROUP.")
    ] = None,
    slot: Annotated[
        str | None, typer.Option(help="Stable name of this process in the group.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Where a group without offsets begins: earliest or latest.")
    ] = None,
    group_protocol: GroupProtocolOption = None,
    prefix: Annotated[str | None, typer.Option(help="Prefix of all topic names.")] = None,
    *,
    accept_reset: Annotated[
        bool, typer.Option("--accept-reset", help="Start at offsets that were set by hand.")
    ] = False,
) -> None:
    """Run until SIGTERM or SIGINT."""
    from processor.app import StopRequest, build_normaliser, run_normaliser, wait_for_slot
    from processor.config import crash_point, normaliser_settings, read_environment
    from processor.runtime.topics import TopicNames

    should_stop = StopRequest()
    should_stop.install()
    environment = read_environment(
        kafka_bootstrap=kafka_bootstrap,
        normaliser_group=group,
        slot=slot,
        start=start,
        group_protocol=group_protocol,
        topic_prefix=prefix,
    )
    topics = TopicNames.prefixed(environment.topic_prefix, chunks=True)
    settings = normaliser_settings(
        environment, topics.by_role()["chunks"], accept_reset=accept_reset
    )
    crash = crash_point(environment)

    def run_once() -> None:
        run_normaliser(build_normaliser(settings, topics, crash_point=crash), should_stop)

    wait_for_slot(run_once, should_stop, wait_s=environment.slot_wait_s)
