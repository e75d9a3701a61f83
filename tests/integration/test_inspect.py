"""`toolcalls inspect` on the real broker: every standing of a call, its evidence, and no content."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from processor.cli.main import build_app
from processor.codec.records import encode_event, encode_result
from processor.core.events import CallAborted, StreamEvent
from processor.core.identity import CallKey
from processor.core.results import CallResult
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import Claim
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir
from processor.runtime.outbox import OutputRecord
from tests.integration.assembler_rig import AT_MS, Record, Rig, call_records, rig
from tests.integration.verify_proof import Proof

pytestmark = pytest.mark.integration

SECRET = b'{"card":"4000-0012-SECRET-7"}'
CHECKPOINTS = ["identity", "buffer", "ordering", "completion", "validation", "replay"]


def key_of(number: int) -> CallKey:
    """The key of `call_records(number, ...)`."""
    return CallKey("acme", f"req_{number}", f"resp_{number}", "call_A")


def inspected(made: Rig, *arguments: str) -> tuple[int, str]:
    """Exit status and text of `toolcalls inspect` on a rig's topics."""
    where = ("--kafka-bootstrap", made.bootstrap, "--prefix", made.prefix, "--group", made.group)
    result = CliRunner().invoke(build_app(), ["inspect", *arguments, *where])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def answer_of(made: Rig, number: int, *more: str) -> dict[str, Any]:
    """The answer for machines about a call that is known."""
    status, text = inspected(made, key_of(number).encode().decode(), "--json", *more)
    assert status == 0, text
    found: dict[str, Any] = json.loads(text)
    assert list(found["checkpoints"]) == CHECKPOINTS
    return found


def assembled(made: Rig, log: list[Record]) -> None:
    """What an assembler writes of a log, by a pure fold."""
    made.write(log)
    tasks, outputs = made.fold()
    proof = Proof(made)
    proof.produce(outputs)
    proof.commit({p: task.next_offset for p, task in tasks.items()})


def test_each_standing_is_told_with_its_evidence(kafka_bootstrap: str, topic_prefix: str) -> None:
    """Completed, rejected, open, only unreadable, not read yet: never with an argument."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        completed = call_records(1, SECRET, 3)
        cut = call_records(2, SECRET, 3, outcome="truncated")
        still_open = call_records(3, SECRET, 3)[:3]
        bad: list[Record] = [(key_of(4).encode(), SECRET[1:])]
        late = call_records(5, SECRET, 3)
        # A repeated fragment is dropped, and counted.
        assembled(made, [*completed[:2], *completed[1:], *cut, *still_open, *bad, *late[:2]])
        made.write(late[2:])

        told = answer_of(made, 1)
        points = told["checkpoints"]
        assert told["standing"] == "completed"
        assert points["buffer"]["arguments_bytes"] == len(SECRET)
        assert points["ordering"]["events"]["ArgumentsDelta"] == 4
        assert points["ordering"]["duplicates_dropped"] == 1
        assert points["completion"]["response_outcome"] == "completed"
        assert points["validation"]["folded_again"] == "same bytes"
        assert points["replay"]["idempotency_key"] == "req_1:call_A"

        told = answer_of(made, 2)
        assert (told["standing"], told["reason"], told["stage"]) == (
            "rejected",
            "truncated",
            "completion",
        )
        assert [p["status"] for p in told["checkpoints"].values()] == [
            *["passed"] * 3,
            "refused",
            *["not reached"] * 2,
        ]

        told = answer_of(made, 3)
        assert told["standing"] == "open"
        assert told["checkpoints"]["ordering"]["next_seq"] == 3
        assert told["checkpoints"]["completion"]["status"] == "waiting"

        told = answer_of(made, 4)
        assert told["standing"] == "unreadable"
        assert [d["code"] for d in told["dead_letters"]] == ["unknown_frame"]

        told = answer_of(made, 5)
        assert told["standing"] == "unread"
        assert told["checkpoints"]["ordering"]["not_read_by_the_group"] == 4

        texts = [inspected(made, key_of(n).encode().decode())[1] for n in range(1, 6)]
        texts += [json.dumps(answer_of(made, n)) for n in range(1, 6)]
        assert not [text for text in texts if "SECRET" in text or "4000" in text]
        assert all("\nNext: " in text for text in texts[:5])


def test_a_call_that_nobody_knows_has_an_exit_code_of_its_own(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Named by its parts too; a wrong key is wrong usage."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write(call_records(1, SECRET, 1))
        parts = ("--tenant", "acme", "--request-id", "req_1", "--response-id", "resp_1")
        assert inspected(made, *parts, "--call-id", "call_A")[0] == 0
        status, text = inspected(made, *parts, "--call-id", "call_B")
        assert (status, "Nobody knows this call" in text) == (11, True)
        # Its events are older than the stretch that is read.
        status, text = inspected(made, key_of(1).encode().decode(), "--since", "2040-01-01T00:00Z")
        assert status == 11
        for wrong in (("acme/req_1/call_A",), parts, ("a/b/c/d", "--tenant", "a")):
            result = CliRunner().invoke(
                build_app(), ["inspect", *wrong, "--kafka-bootstrap", made.bootstrap]
            )
            assert getattr(result.exception, "code", None) == "misuse", wrong


def test_repeats_results_and_the_ledgers_history_are_shown(
    kafka_bootstrap: str, topic_prefix: str, database: str
) -> None:
    """A second verdict, a published result, and who did what in the ledger."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        migrate(database, read_migrations(migrations_dir()), phase="all")
        assembled(made, call_records(1, SECRET, 2))
        proof, key = Proof(made), key_of(1)
        [first] = made.fold()[1]
        result = encode_result(CallResult(key, "lookup_order", "succeeded", "same_key"))
        proof.produce([first, OutputRecord(made.topics.results, key.encode(), result, [])])
        with PostgresLedger(PostgresSettings(database, pool_max=1)) as ledger:
            for called in (key, key_of(9)):
                claim = Claim(
                    called,
                    "lookup_order",
                    "at_most_once",
                    b"\x02" * 33,
                    "o",
                    30.0,
                    AT_MS,
                    AT_MS * 2,
                )
                assert ledger.claim(claim).kind == "claimed"
        told = answer_of(made, 1, "--database-url", database)
        replay = told["checkpoints"]["replay"]
        assert (replay["verdict_records"], replay["results_published"]) == (2, 1)
        assert (replay["ledger"], replay["claims"], replay["begun"]) == ("claimed", 1, "0 of 1")
        assert [t["to_state"] for t in told["ledger_history"]][-1] == "claimed"
        assert told["results"][0]["state"] == "succeeded"
        assert told["next_step"].startswith("its owner decides")
        # The topics have forgotten a call that the ledger still knows.
        told = answer_of(made, 9, "--database-url", database)
        assert (told["standing"], told["checkpoints"]["buffer"]["status"]) == ("gone", "not seen")


def test_a_ledger_that_does_not_answer_hides_nothing_else(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Kafka's part is told, with a note and without the address's password."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        aborted = encode_event(StreamEvent(0, CallAborted("ambiguous_identity"), AT_MS))
        assembled(made, [(key_of(1).encode(), aborted)])
        url = "postgresql://a:hidden@127.0.0.1:1/x"
        told = answer_of(made, 1, "--database-url", url)
        assert (told["standing"], told["stage"]) == ("rejected", "identity")
        note = told["checkpoints"]["replay"]["ledger"]
        assert "did not answer" in note
        assert "hidden" not in note
