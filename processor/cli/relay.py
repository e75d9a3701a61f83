"""`toolcalls relay`: carry results from the ledger to the results topic."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from processor.cli.ledger_call import Database

if TYPE_CHECKING:
    from processor.executor.relay import RelaySettings


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("relay", help=_HELP)(relay)


_HELP = """Publish what became of calls: from the ledger's outbox to the results topic.

Example: toolcalls relay --database-url postgresql://relay@localhost:5432/tools

Its database login needs the role tcl_relay and nothing else. Any number of relays may run; the
events of one call stay in order. Each is published at least once, under a `ce_id` that stays the same.

While Kafka or Postgres is away the results stay in the ledger. After --patience-s without a success
the process ends with status 4, so that a supervisor sees it.

Exit codes: 0 stopped on request or idle, 2 a setting is wrong, 4 Kafka or Postgres not reached, 6
fatal client error. All but 2 are meant to be restarted by a supervisor.
"""


_Bootstrap = Annotated[
    str | None,
    typer.Option(envvar="TOOLCALLS_KAFKA_BOOTSTRAP", help="Broker address, HOST:PORT[,...]."),
]
_Topic = Annotated[
    str | None, typer.Option(envvar="TOOLCALLS_RESULTS_TOPIC", help="Topic to write.")
]
_Prefix = Annotated[
    str, typer.Option(envvar="TOOLCALLS_TOPIC_PREFIX", help="Prefix of all topic names.")
]
_Batch = Annotated[int, typer.Option(min=1, max=10_000, help="Events of one batch.")]
_Poll = Annotated[
    float,
    typer.Option(min=0.02, max=60, help="Longest wait between two looks at an empty outbox."),
]
_Patience = Annotated[
    float, typer.Option(min=1, max=86_400, help="Seconds without a success until it ends.")
]
_UntilIdle = Annotated[
    float | None, typer.Option(min=0.1, help="End after so many seconds without an event.")
]


def relay(
    kafka_bootstrap: _Bootstrap = None,
    database_url: Database = None,
    results_topic: _Topic = None,
    prefix: _Prefix = "",
    batch: _Batch = 500,
    poll_interval_s: _Poll = 0.5,
    patience_s: _Patience = 300.0,
    until_idle_s: _UntilIdle = None,
) -> None:
    """Run until SIGTERM or SIGINT; the batch under way is ended first."""
    from processor.executor.relay import RelaySettings
    from processor.runtime.topics import TopicNames

    _run(
        kafka_bootstrap,
        database_url,
        results_topic or TopicNames.prefixed(prefix).results,
        RelaySettings(
            events_max=batch,
            poll_s_max=poll_interval_s,
            patience_s=patience_s,
            idle_end_s=until_idle_s,
        ).checked(),
    )


def _run(
    kafka_bootstrap: str | None, database_url: str | None, topic: str, settings: "RelaySettings"
) -> None:
    from processor.app import StopRequest
    from processor.core.errors import Misuse
    from processor.executor.crash_points import crash_point_of
    from processor.executor.kafka_sink import SinkSettings
    from processor.executor.ports import SystemClock
    from processor.executor.relay_host import RelayHostSettings, run_relay
    from processor.executor.relay_log import LogRelayObserver
    from processor.ledger.postgres_pool import PostgresSettings
    from processor.telemetry.logging import make_logger

    if not kafka_bootstrap:
        raise Misuse(
            "no Kafka address: give --kafka-bootstrap HOST:PORT or set TOOLCALLS_KAFKA_BOOTSTRAP"
        )
    if not database_url:
        raise Misuse("no database: give --database-url or set TOOLCALLS_DATABASE_URL")
    stop = StopRequest()
    stop.install()
    run_relay(
        RelayHostSettings(
            SinkSettings(kafka_bootstrap, topic),
            PostgresSettings(database_url, application_name="toolcalls-relay", pool_max=1),
            settings,
        ),
        observer=LogRelayObserver(make_logger("relay")),
        stop_requested=stop,
        clock=SystemClock(),
        crash_point=crash_point_of(os.environ),
    )
