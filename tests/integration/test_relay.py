"""The relay on real servers: killed at every point, twice at once, cut off, with its own role only."""

import importlib
import signal
from collections import defaultdict
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from processor.core.results import CallResult
from processor.executor.crash_points import RELAY_POINTS
from processor.executor.errors import Unreachable
from processor.executor.kafka_sink import KafkaSink, SinkSettings
from processor.executor.ports import SystemClock
from processor.executor.relay import BODY_LEFT_OUT, Relay, RelaySettings
from processor.executor.relay_log import LogRelayObserver
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.postgres_outbox import PostgresOutbox
from processor.ledger.postgres_pool import PostgresSettings
from processor.resources import migrations_dir
from processor.telemetry.logging import make_logger
from tests.integration.assembler_rig import wait_until
from tests.integration.publisher_topics import unused_address
from tests.integration.relay_rig import RelayRig

pytestmark = pytest.mark.integration

#: Untyped on purpose: the library's stubs do not export these names.
admin: Any = importlib.import_module("confluent_kafka.admin")


@pytest.fixture
def rig(kafka_bootstrap: str, database: str, topic_prefix: str) -> RelayRig:
    """A migrated ledger and its topics."""
    return RelayRig(kafka_bootstrap, database, topic_prefix)


@pytest.mark.faults
def test_a_relay_killed_at_every_point_loses_nothing_and_repeats_under_the_same_id(
    rig: RelayRig,
) -> None:
    """Nothing is lost at any point; what comes twice is the same record under the same id."""
    expected = rig.settle(1, 40)
    times = 0
    for point in RELAY_POINTS:
        rig.run(crash_at=point)
        times += point != "after_take"
        assert rig.waiting() == (0 if point == "after_marked" else 40), point
        published = rig.published()
        assert len(published) == times * 40, point
    rig.run()
    by_id: dict[str, list[CallResult]] = defaultdict(list)
    for name, result in rig.published():
        by_id[name].append(result)
    assert by_id.keys() == expected
    assert all(results == [results[0]] * times for results in by_id.values())


@pytest.mark.faults
def test_two_relays_and_a_kill_keep_every_call_in_order(rig: RelayRig) -> None:
    """Each event at least once, and of one call never the later one first."""
    expected = rig.settle(1, 600, doubtful=True)
    assert len(expected) == 1200
    first = rig.start("--batch", "50", "--until-idle-s", "1")
    second = rig.start("--batch", "50", "--until-idle-s", "1")
    wait_until(lambda: rig.waiting() < 1100, "the relays at work")
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    _, log = second.communicate(timeout=60)
    assert second.returncode == 0, log
    assert rig.waiting() == 0
    published = rig.published()
    assert {name for name, _ in published} == expected
    firsts: dict[str, list[str]] = defaultdict(list)
    for name, result in published:
        if result.state not in firsts[result.key.request_id]:
            firsts[result.key.request_id].append(result.state)
        del name
    assert set(map(tuple, firsts.values())) == {("in_doubt", "succeeded")}


def test_a_lost_connection_in_the_middle_of_a_batch_repeats_it(rig: RelayRig) -> None:
    """What a restart of Postgres looks like to the relay: published, not marked, published again."""
    expected = rig.settle(1, 20)
    cut: list[str] = []

    def cut_once(point: str) -> None:
        if point == "after_publish" and not cut:
            cut.append(point)
            with psycopg.connect(rig.database, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'cut-relay'"
                )

    observer = LogRelayObserver(make_logger("relay-test"))
    sink = KafkaSink(SinkSettings(rig.kafka, rig.topics.results), observer.client_error)
    with PostgresOutbox(PostgresSettings(rig.database, "cut-relay", pool_max=1)) as outbox:
        Relay(
            outbox,
            sink,
            settings=RelaySettings(idle_end_s=0.3),
            clock=SystemClock(),
            observer=observer,
            stop_requested=lambda: False,
            crash_point=cut_once,
        ).run()
    sink.close()
    published = rig.published()
    assert ({name for name, _ in published}, len(published)) == (expected, 40)
    assert observer.counts["failing", "indeterminate"] == 1
    assert rig.waiting() == 0


def test_a_result_that_is_too_large_for_the_topic_arrives_without_its_body(rig: RelayRig) -> None:
    """With the real client: one large record spoils a batch, and only its own body is left out."""
    rig.settle(1, 3)
    with psycopg.connect(rig.database) as connection:
        connection.execute(
            "UPDATE tcl.outbox SET payload = (SELECT string_agg(sha256(n::text::bytea), '')"
            " FROM generate_series(1, 500) n) WHERE aggregateid = 'req_2:call_1'"
        )
    entry = admin.ConfigEntry(
        "max.message.bytes", "4096", incremental_operation=admin.AlterConfigOpType.SET
    )
    resource = admin.ConfigResource(
        admin.ResourceType.TOPIC, rig.topics.results, incremental_configs=[entry]
    )
    client = admin.AdminClient({"bootstrap.servers": rig.kafka})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(20)
    log = rig.run()
    bodies = {result.key.request_id: result for _, result in rig.published()}
    assert set(bodies) == {"req_1", "req_2", "req_3"}
    assert (bodies["req_2"].body, bodies["req_2"].error_class) == (None, BODY_LEFT_OUT)
    assert bodies["req_1"].body == b'{"number":1}'
    assert "result_body_left_out" in log


def test_a_login_with_the_relays_role_alone_is_enough(rig: RelayRig) -> None:
    """EXECUTE on its functions, no table; and a graceful stop says what was published."""
    rig.settle(1, 5)
    with rig.login("tcl_relay") as address:
        process = rig.start(database=address)
        wait_until(lambda: rig.waiting() == 0 or process.poll() is not None, "an empty outbox")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert '"published": 5' in log
    assert "synthetic" not in log
    assert len(rig.published()) == 5


FORBIDDEN: dict[str, tuple[LiteralString, ...]] = {
    "tcl_relay": (
        "SELECT * FROM tcl.outbox",
        "DELETE FROM tcl.outbox",
        "SELECT * FROM tcl.fetch_result('acme', 'req_1:call_1')",
        "SELECT tcl.cancel('acme', 'req_1:call_1')",
        "SELECT * FROM tcl.usage_totals('{}', NULL, NULL, NULL)",
    ),
    "tcl_meter": (
        "SELECT * FROM tcl.usage_fact",
        "UPDATE tcl.usage_fact SET input_tokens = 0",
        "SELECT * FROM tcl.outbox_take(1, 1)",
        "SELECT tcl.set_price('refund', 0, 'EUR', 'r')",
    ),
    "tcl_executor": (
        "SELECT * FROM tcl.outbox_take(1, 1)",
        "SELECT tcl.outbox_done('{1}')",
        "SELECT tcl.set_price('refund', 0, 'EUR', 'r')",
        "INSERT INTO tcl.charge DEFAULT VALUES",
    ),
    "tcl_reader": (
        "SELECT * FROM tcl.outbox_take(1, 1)",
        "SELECT * FROM tcl.charge",
    ),
}


def test_a_duty_cannot_publish_or_charge_for_another(database: str) -> None:
    """Neither a table nor a function of somebody else."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with psycopg.connect(database, autocommit=True) as connection:
        for duty, statements in FORBIDDEN.items():
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(duty)))
            for statement in statements:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)


def test_a_broker_that_is_not_there_confirms_nothing(rig: RelayRig) -> None:
    """The real client's answer within the delivery timeout; the results stay in the ledger."""
    rig.settle(1, 3)
    observer = LogRelayObserver(make_logger("relay-test"))
    settings = SinkSettings(unused_address(), rig.topics.results, delivery_timeout_ms=1000)
    sink = KafkaSink(settings, observer.client_error)
    with PostgresOutbox(PostgresSettings(rig.database, pool_max=1)) as outbox:
        relay = Relay(
            outbox,
            sink,
            settings=RelaySettings(patience_s=0.5),
            clock=SystemClock(),
            observer=observer,
            stop_requested=lambda: False,
        )
        with pytest.raises(Unreachable, match="_MSG_TIMED_OUT"):
            relay.run()
    sink.close()
    assert rig.waiting() == 3
    assert observer.counts["failing", "_MSG_TIMED_OUT"] == 2
