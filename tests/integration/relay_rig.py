"""Relay processes on a real ledger and a real results topic, and what a reader of the topic sees."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from processor.codec.records import decode_result
from processor.core.results import CallResult
from processor.ledger.migrate import migrate, read_migrations
from processor.resources import migrations_dir
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.topic_reader import TopicReader
from processor.runtime.topics import TopicNames, topic_specs

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
#: Settles calls FIRST to LAST inside of the server; each leaves one event.
_SETTLE: LiteralString = """
DO $$
DECLARE
  f bigint; n int;
BEGIN
  FOR n IN {first}..{last} LOOP
    SELECT c.fence INTO f FROM tcl.claim('acme', 'req_' || n, 'resp_' || n, 'call_1', 'refund',
      'at_most_once', decode(repeat('01', 33), 'hex'), 'me/1', '1 h', now(), now() + interval '1 h',
      1, 'toolcalls.completed.v1', 0, n) c;
    PERFORM tcl.begin_effect('acme', 'req_' || n || ':call_1', f, '1 h', NULL, NULL);
    IF {doubtful} THEN
      PERFORM tcl.release('acme', 'req_' || n || ':call_1', f, false);
    END IF;
    PERFORM tcl.finish('acme', 'req_' || n || ':call_1', f, 'succeeded',
      convert_to('{{"number":' || n || '}}', 'UTF8'), NULL, NULL, NULL);
  END LOOP;
END $$
"""


class RelayRig:
    """One ledger, its topics, and relay processes between them."""

    def __init__(self, kafka: str, database: str, prefix: str) -> None:
        self.kafka = kafka
        self.database = database
        self.prefix = prefix
        self.topics = TopicNames.prefixed(prefix)
        migrate(database, read_migrations(migrations_dir()), phase="all")
        KafkaAdmin(kafka).create(
            topic_specs(self.topics, partitions=PARTITIONS, replication_factor=1)
        )

    def settle(self, first: int, last: int, *, doubtful: bool = False) -> set[str]:
        """Settle calls, with a doubt before if asked for; the ids of their events."""
        statement = sql.SQL(_SETTLE).format(
            first=sql.Literal(first), last=sql.Literal(last), doubtful=sql.Literal(doubtful)
        )
        with psycopg.connect(self.database) as connection:
            connection.execute(statement)
            rows = connection.execute(
                "SELECT o.aggregateid, g.response_id, substr(o.type, 10), o.fence FROM tcl.outbox o"
                " JOIN tcl.call_guard g ON g.idempotency_key = o.aggregateid"
            ).fetchall()
        return {
            f"acme/{str(key).split(':')[0]}/{response}/call_1/{state}/{fence}"
            for key, response, state, fence in rows
        }

    def waiting(self) -> int:
        """Events that are not marked as published."""
        with psycopg.connect(self.database) as connection:
            row = connection.execute("SELECT count(*) FROM tcl.outbox").fetchone()
        assert row is not None
        return int(row[0])

    def start(
        self, *options: str, crash_at: str | None = None, database: str | None = None
    ) -> subprocess.Popen[str]:
        """A relay process; it ends when there has been nothing to do for half a second."""
        environment = {
            **os.environ,
            "TOOLCALLS_KAFKA_BOOTSTRAP": self.kafka,
            "TOOLCALLS_DATABASE_URL": database or self.database,
            "TOOLCALLS_TOPIC_PREFIX": self.prefix,
        }
        if crash_at is not None:
            environment |= {"TOOLCALLS_CRASH_AT": crash_at, "TOOLCALLS_ALLOW_CRASH_POINTS": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "processor.cli.main", "relay", *options],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, crash_at: str | None = None, database: str | None = None) -> str:
        """A relay process from start to end, idle or killed; its log."""
        given = options or ("--until-idle-s", "0.3")
        process = self.start(*given, crash_at=crash_at, database=database)
        _, log = process.communicate(timeout=60)
        expected = -signal.SIGKILL if crash_at is not None else 0
        assert process.returncode == expected, log
        return log

    def published(self) -> list[tuple[str, CallResult]]:
        """Every record of the results topic with its `ce_id`, partition by partition, in order."""
        with TopicReader(self.kafka, self.topics.results) as reader:
            records = sorted(reader.read(), key=lambda r: (r.partition, r.offset))
        return [
            ((dict(r.headers)["ce_id"] or b"").decode(), decode_result(r.key, r.value))
            for r in records
        ]

    @contextmanager
    def login(self, duty: str) -> Generator[str]:
        """The address for a login role of this test that has one duty and nothing else."""
        name, password = f"{duty}_of_{urlsplit(self.database).path.strip('/')}", "synthetic"
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}").format(
                    sql.Identifier(name), sql.Literal(password), sql.Identifier(duty)
                )
            )
            parts = urlsplit(self.database)
            place = f"{parts.hostname}:{parts.port}"
            netloc = f"{quote(name)}:{password}@{place}"
            try:
                yield urlunsplit(parts._replace(netloc=netloc))
            finally:
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
