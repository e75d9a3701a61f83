"""`toolcalls doctor` on real servers: healthy ones, broken ones, and none at all."""

import importlib
import json
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from processor.app import wall_ms
from processor.audit.doctor import DoctorSettings, KafkaDoctor
from processor.cli.main import build_app
from processor.core.gate import NoCatalogue
from processor.core.limits import Limits
from processor.core.terms import Terms
from processor.ledger.migrate import migrate, read_migrations
from processor.resources import migrations_dir
from processor.runtime.known_terms import KnownTerms
from processor.runtime.settings import CommitSettings
from tests.integration.assembler_rig import Rig, call_records, rig
from tests.integration.verify_proof import Proof

pytestmark = pytest.mark.integration

NOBODY = "127.0.0.1:1"
#: Untyped on purpose: the library's stubs do not export these names.
admin: Any = importlib.import_module("confluent_kafka.admin")
kafka: Any = importlib.import_module("confluent_kafka")


def examined(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit status and answer of `toolcalls doctor --json`."""
    result = CliRunner().invoke(build_app(), ["doctor", "--json", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def codes_of(made: Rig, *more: str) -> tuple[int, list[str]]:
    """Exit status and codes found for a rig."""
    where = ("--kafka-bootstrap", made.bootstrap, "--prefix", made.prefix, "--group", made.group)
    status, answer = examined(*where, *more)
    assert all(f["sentence"] and f["fix"] for f in answer["findings"])
    return status, [f["code"] for f in answer["findings"]]


def test_a_place_where_all_is_well_has_no_finding(
    kafka_bootstrap: str, topic_prefix: str, database: str
) -> None:
    """Topics made by `topics create`, an assembler at work, a migrated ledger."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        migrate(database, read_migrations(migrations_dir()), phase="all")
        made.write(call_records(1, b'{"a":1}', 2))
        process = made.start()
        made.wait_committed(process)
        assert codes_of(made, "--database-url", database) == (0, [])
        made.stop(process)


def test_what_is_missing_or_lost_is_found(
    kafka_bootstrap: str, topic_prefix: str, database: str
) -> None:
    """No topics; an empty database; positions that the log has lost, and one set by hand."""
    status, answer = examined("--kafka-bootstrap", kafka_bootstrap, "--prefix", topic_prefix)
    assert (status, {f["code"] for f in answer["findings"]}) == (3, {"topic_missing"})
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        assert codes_of(made, "--database-url", database) == (
            3,
            ["no_member", "migrations_pending"],
        )
        proof = Proof(made)
        proof.write_events(4, 0)
        proof.commit({0: 6})
        client = admin.AdminClient({"bootstrap.servers": made.bootstrap})
        asked = client.delete_records([kafka.TopicPartition(made.topics.events, 0, 12)])
        for future in asked.values():
            future.result(20)
        assert codes_of(made) == (3, ["no_member", "offset_out_of_range"])


def test_a_transaction_that_does_not_end_is_found(kafka_bootstrap: str, topic_prefix: str) -> None:
    """It hides what lies behind it, and nothing else shows it."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        producer = Producer(
            {
                "bootstrap.servers": made.bootstrap,
                "transactional.id": f"{topic_prefix}hangs",
                "transaction.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(made.topics.events, b"x", b"k")
        assert producer.flush(20) == 0
        settings = DoctorSettings(
            made.bootstrap, made.topics, made.group, CommitSettings(), 1, open_looks=2
        )
        terms = KnownTerms(Terms(Limits(), NoCatalogue()))
        told = KafkaDoctor(settings, terms, wall_ms, lambda _: None).examine()
        assert [f.code for f in told.findings] == ["no_member", "transaction_hangs"]
        producer.abort_transaction(20)
        told = KafkaDoctor(settings, terms, wall_ms, lambda _: None).examine()
        assert [f.code for f in told.findings] == ["no_member"]


def test_servers_that_are_away_are_findings_and_no_traceback() -> None:
    """In bounded time, with an exit code of its own, and without the address's password."""
    status, answer = examined(
        "--kafka-bootstrap",
        NOBODY,
        "--database-url",
        f"postgresql://a:hidden@{NOBODY}/x",
        "--registry-url",
        f"http://{NOBODY}",
    )
    assert status == 4
    assert [f["code"] for f in answer["findings"]] == [
        "kafka_unreachable",
        "registry_unreachable",
        "database_unreachable",
    ]
    assert "hidden" not in json.dumps(answer)
