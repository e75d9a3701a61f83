"""How an assembler process starts, stops and refuses; its exit status is its answer."""

import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from processor.cli.exit_codes import ExitCode
from processor.codec.records import decode_rejected
from tests.integration.assembler_rig import Rig, call_records, rig, wait_until

pytestmark = pytest.mark.integration


def ended(made: Rig, code: ExitCode, **settings: str) -> str:
    """Start a process that must end by itself with `code`; returns what it wrote."""
    process = made.start(**settings)
    process.wait(60)
    assert process.returncode == code, made.log(process)
    return made.log(process)


def test_a_new_group_is_started_only_when_told_from_where(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Without --start a group that has no offsets is refused, with the fix."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        said = ended(made, ExitCode.RESTORE_REFUSED, start="")
        assert "no_committed_offset" in said
        assert "--start earliest" in said


def test_offsets_moved_by_hand_are_refused_until_accepted(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """A committed offset without our metadata names the reset, and what it costs."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        made.write(call_records(1, b'{"a":1}', 1))
        consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": made.group})
        offsets = [TopicPartition(made.topics.events, 0, 2)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        said = ended(made, ExitCode.RESTORE_REFUSED)
        assert "reset_by_hand" in said
        assert "--accept-reset" in said


def test_a_missing_topic_is_refused_by_name(kafka_bootstrap: str, topic_prefix: str) -> None:
    """The checked start names the topic and the command that makes it."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        said = ended(made, ExitCode.REFUSED, topic_prefix=f"{topic_prefix}absent-")
        assert "absent-toolcalls.events.v1" in said
        assert "topics create" in said


def test_a_broker_that_is_not_there_is_said_in_one_line(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """No traceback, the address is named."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        said = ended(made, ExitCode.UNREACHABLE, kafka_bootstrap="127.0.0.1:1")
        assert "127.0.0.1:1" in said
        assert "Traceback" not in said


def test_sigterm_commits_what_was_read_and_ends_with_0(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """After the end nothing is open: the next process goes on where this one stopped."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write([r for n in range(50) for r in call_records(n, b'{"a":1}', 3)])
        process = made.start(commit_interval_ms="7000")
        wait_until(lambda: bool(made.committed()), "the first commit")
        made.stop(process)
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        made.assert_exact()


def test_of_two_processes_in_one_slot_one_stays(kafka_bootstrap: str, topic_prefix: str) -> None:
    """The fenced one ends with its own exit status, and nothing is doubled."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write([r for n in range(20) for r in call_records(n, b'{"a":1}', 3)])
        first = made.start()
        made.wait_committed(first)
        second = made.start()
        wait_until(
            lambda: first.poll() is not None or second.poll() is not None, "one of them to end"
        )
        made.write([r for n in range(20, 40) for r in call_records(n, b'{"a":1}', 3)])
        loser, winner = (first, second) if first.poll() is not None else (second, first)
        assert loser.returncode == ExitCode.FENCED, made.log(loser)
        made.wait_committed(winner)
        made.stop(winner)
        made.assert_exact()


def test_a_frozen_process_that_lost_its_partitions_commits_nothing(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """SIGSTOP beyond the session, another slot takes over, SIGCONT: the zombie ends by itself."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write([r for n in range(20) for r in call_records(n, b'{"a":1}', 3)])
        frozen = made.start(slot="0")
        made.wait_committed(frozen)
        frozen.send_signal(signal.SIGSTOP)
        try:
            made.write([r for n in range(20, 60) for r in call_records(n, b'{"b":2}', 3)])
            other = made.start(slot="1")
            made.wait_committed(other)
        finally:
            frozen.send_signal(signal.SIGCONT)
        frozen.wait(60)
        assert frozen.returncode in (ExitCode.FENCED, ExitCode.COMMIT_REFUSED), made.log(frozen)
        made.stop(other)
        made.assert_exact()


def test_a_call_without_an_end_expires_once_also_on_an_idle_topic(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """The expiry stands in the log, so a pure fold says the same; then nothing holds the mark."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        made.write(call_records(1, b'{"a":1}', 3)[:3])
        process = made.start(call_idle_ttl_ms="500", expiry_margin_ms="0")
        wait_until(lambda: bool(made.read(made.topics.rejected)), "the expiry")
        made.wait_committed(process)
        made.stop(process)
        [message] = made.read(made.topics.rejected)
        assert decode_rejected(message.key(), message.value()).reason == "expired"
        made.assert_exact()


@pytest.mark.parametrize("given", ["both", "new"])
def test_a_changed_catalogue_folds_old_records_by_the_old_one(
    kafka_bootstrap: str, topic_prefix: str, tmp_path: Path, given: str
) -> None:
    """With the old catalogue beside it the restart is exact; without it, it is refused by name."""
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    for path, effect_class in ((old, "read_only"), (new, "at_most_once")):
        path.write_text(f"version: 1\ntools:\n  lookup_order:\n    effect_class: {effect_class}\n")
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        log = call_records(1, b'{"a":1}', 2)
        made.write(log[:4])
        process = made.start(catalogue=str(old))
        made.wait_committed(process)
        made.stop(process)
        made.write(log[4:])
        if given == "new":
            said = ended(made, ExitCode.RESTORE_REFUSED, catalogue=str(new))
            assert "catalogue_unknown" in said
            return
        process = made.start(catalogue=str(new), previous_catalogue=str(old))
        made.wait_committed(process)
        made.stop(process)
        assert len(made.read(made.topics.completed)) == 1
        assert not made.read(made.topics.rejected)
