"""Usage on real servers: every record twice, killed between database and offset; and the verbs."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from processor.cli.exit_codes import ExitCode
from processor.cli.main import build_app
from processor.codec.records import encode_usage, usage_key
from processor.core.errors import Misuse
from processor.core.usage import ResponseUsage
from processor.ledger.port import Source
from processor.ledger.postgres_pool import PostgresSettings
from processor.ledger.postgres_usage import PostgresUsage
from processor.ledger.usage import Selection, UsageReport
from processor.runtime.topic_reader import TopicReader
from tests.integration.relay_rig import RelayRig

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DAY_MS = 1_764_547_200_000  # 2025-12-01T00:00:00Z
USAGE = ResponseUsage(
    tenant="acme",
    request_id="req_1",
    response_id="resp_1",
    dialect="openai-responses",
    model="model-a",
    input_tokens=100,
    output_tokens=0,
)


@pytest.fixture
def rig(kafka_bootstrap: str, database: str, topic_prefix: str) -> RelayRig:
    """A migrated ledger and its topics."""
    return RelayRig(kafka_bootstrap, database, topic_prefix)


def publish(rig: RelayRig, *reports: ResponseUsage) -> None:
    """Put reports on the usage topic, and one record that nobody can read."""
    producer = Producer({"bootstrap.servers": rig.kafka, "partitioner": "murmur2_random"})
    for report in reports:
        producer.produce(rig.topics.usage, encode_usage(report), usage_key(report))
    producer.produce(rig.topics.usage, b"\x00canary-5f1c", b"acme/req_9/resp_9")
    assert producer.flush(30) == 0


def record(rig: RelayRig, crash_at: str | None = None, database: str | None = None) -> str:
    """A recorder process from start to idleness or kill; its log."""
    environment = {
        **os.environ,
        "TOOLCALLS_KAFKA_BOOTSTRAP": rig.kafka,
        "TOOLCALLS_DATABASE_URL": database or rig.database,
        "TOOLCALLS_TOPIC_PREFIX": rig.prefix,
        "TOOLCALLS_USAGE_GROUP": f"{rig.prefix}usage",
    }
    if crash_at is not None:
        environment |= {"TOOLCALLS_CRASH_AT": crash_at, "TOOLCALLS_ALLOW_CRASH_POINTS": "1"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "processor.cli.main", "usage", "record"),
            *("--slot", "0", "--start", "earliest", "--until-idle-s", "1"),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == (0 if crash_at is None else -signal.SIGKILL), done.stderr
    return done.stderr


def rows(rig: RelayRig) -> list[tuple[object, ...]]:
    """Every fact."""
    with psycopg.connect(rig.database) as connection:
        return connection.execute(
            "SELECT request_id, revision, cause, input_tokens, output_tokens, reasoning_tokens"
            " FROM tcl.usage_fact ORDER BY request_id, revision"
        ).fetchall()


@pytest.mark.faults
def test_a_recorder_killed_between_database_and_offset_records_each_report_once(
    rig: RelayRig,
) -> None:
    """Every record stands twice on the topic; a login with the duty's role alone is enough."""
    other = replace(USAGE, request_id="req_2", output_tokens=None)
    publish(rig, USAGE, other, USAGE, other)
    with rig.login("tcl_meter") as address:
        for point in ("after_record", "before_commit"):
            record(rig, crash_at=point, database=address)
        log = record(rig, database=address)
    assert rows(rig) == [
        ("req_1", 0, "first", 100, 0, None),
        ("req_2", 0, "first", 100, None, None),
    ]
    assert '"usage_record_unreadable"' in log
    assert "canary" not in log
    with TopicReader(rig.kafka, rig.topics.deadletter) as reader:
        letters = reader.read()
    assert {dict(r.headers)["error_code"] for r in letters} == {b"unknown_schema"}
    assert len({dict(r.headers)["ce_id"] for r in letters}) == 1
    assert letters[0].value == b"\x00canary-5f1c"


def test_two_recorders_on_one_response_leave_one_row_for_each_report(rig: RelayRig) -> None:
    """The unique constraint decides, and the revisions have no hole."""
    import threading

    barrier = threading.Barrier(4)
    reports = [UsageReport(replace(USAGE, input_tokens=n), DAY_MS) for n in range(20)]

    def work() -> None:
        with PostgresUsage(PostgresSettings(rig.database, pool_max=1)) as book:
            barrier.wait()
            for report in reports:
                book.record([report])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = rows(rig)
    assert [row[1] for row in found] == list(range(20))
    assert {row[3] for row in found} == set(range(20))


# --- the verbs


def run(rig: RelayRig, *arguments: str, status: ExitCode = ExitCode.OK) -> str:
    """What `toolcalls usage` prints."""
    done = CliRunner().invoke(
        build_app(), ["usage", *arguments, "--database-url", rig.database], catch_exceptions=False
    )
    assert done.exit_code == status, done.output
    return done.stdout


def test_report_check_and_price_tell_what_the_tables_hold(rig: RelayRig) -> None:
    """A dash is not a zero; a gap is a failed check; JSON has the same numbers."""
    run(rig, "price", "refund", "0.25", "EUR", "--revision", "2025-12")
    rig.settle(1, 2)
    with PostgresUsage(PostgresSettings(rig.database)) as book:
        book.record([UsageReport(USAGE, DAY_MS, Source("toolcalls.usage.v1", 0, 1))])
        assert book.usage_totals((), Selection(tenant="globex")) == []
    lines = run(rig, "report", "--by", "tenant,model,tool").splitlines()
    assert lines == [
        "responses\tacme\tmodel-a\t1\t0\t100\t0\t-\t-\t-\t0\t0",
        "calls\tacme\trefund\t2\t0.50\tEUR\t0",
    ]
    told = json.loads(run(rig, "report", "--json", "--from", "2025-12-01", "--to", "2025-12-02"))
    assert told["charges"] == []
    (line,) = told["usage"]
    assert (line["day"], line["output_tokens"], line["total_tokens"]) == ("2025-12-01", 0, None)
    assert json.loads(run(rig, "report", "--json", "--tenant", "globex")) == {
        "usage": [],
        "charges": [],
    }
    gaps = run(rig, "check", "--grace-s", "0", status=ExitCode.CHECK_FAILED).splitlines()
    assert [line.split("\t")[:3] for line in gaps] == [
        ["calls_without_usage", "acme/req_2/resp_2", "1"]
    ]
    assert json.loads(run(rig, "check", "--json"))["ok"] is True


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("report", "--by", "day,colour"), "--by takes"),
        (("report", "--from", "yesterday"), "--from must be a day"),
        (("report", "--from", "2025-12-02", "--to", "2025-12-01"), "--from must lie before --to"),
        (("price", "refund", "NaN", "EUR", "--revision", "r"), "decimal number"),
        (("price", "refund", "inf", "EUR", "--revision", "r"), "decimal number"),
    ],
)
def test_a_wrong_question_is_refused_before_the_database_is_asked(
    arguments: tuple[str, ...], problem: str
) -> None:
    """The text says what to write."""
    with pytest.raises(Misuse, match=problem):
        CliRunner().invoke(
            build_app(),
            ["usage", *arguments, "--database-url", "postgresql://nobody@127.0.0.1:1/none"],
            catch_exceptions=False,
            standalone_mode=False,
        )
