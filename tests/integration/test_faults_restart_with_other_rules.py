"""A restart with another catalogue, limit or release setting while a call is open.

The re-fold below the committed offset runs muted. If it decides otherwise than the life before
did, an outcome falls into the muted part and is lost, or comes out a second time above it.
"""

from pathlib import Path

import pytest

from tests.integration.assembler_rig import Record, Rig, call_records, rig

pytestmark = [pytest.mark.integration, pytest.mark.faults]

RECORDS_BEFORE_THE_RESPONSE_END = 4


def catalogue(folder: Path, name: str, effect_class: str, schema: str = "") -> str:
    """Path of a catalogue that lists one tool."""
    path = folder / f"{name}.yaml"
    path.write_text(
        "version: 1\ntools:\n  lookup_order:\n"
        f"    effect_class: {effect_class}\n" + (f"    schema: {schema}\n" if schema else "")
    )
    return str(path)


def outcomes_after_restart(
    made: Rig, log: list[Record], cut: int, first: dict[str, str], second: dict[str, str]
) -> int:
    """Verdicts written when `log[:cut]` is read with `first`, the rest after a clean restart.

    A restart that refuses to go on with other rules has lost and doubled nothing: it is then
    restarted with the old ones, and must finish with those.
    """
    made.write(log[:cut])
    process = made.start(**first)
    made.wait_committed(process)
    made.stop(process)
    made.write(log[cut:])
    process = made.start(**second)
    try:
        made.wait_committed(process)
    except AssertionError:
        assert process.poll() in (3, 8), made.log(process)
        process = made.start(**first)
        made.wait_committed(process)
    made.stop(process)
    return len(made.read(made.topics.completed)) + len(made.read(made.topics.rejected))


@pytest.mark.parametrize(
    ("before", "after"), [("read_only", "at_most_once"), ("at_most_once", "read_only")]
)
def test_a_changed_effect_class_neither_doubles_nor_loses_a_call_between_its_two_ends(
    kafka_bootstrap: str, topic_prefix: str, tmp_path: Path, before: str, after: str
) -> None:
    """One call, one verdict, whatever the catalogue says after the restart."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        log = call_records(1, b'{"a":1}', 2)
        first = {"catalogue": catalogue(tmp_path, "first", before)}
        second = {"catalogue": catalogue(tmp_path, "second", after)}
        cut = RECORDS_BEFORE_THE_RESPONSE_END
        assert outcomes_after_restart(made, log, cut, first, second) == 1


def test_a_changed_schema_does_not_lose_a_call_between_its_two_ends(
    kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A mismatch found only in the muted re-fold must still come out."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        log = call_records(1, b'{"a":1}', 2)
        first = {"catalogue": catalogue(tmp_path, "first", "at_most_once")}
        schema = "{type: object, required: [b]}"
        second = {"catalogue": catalogue(tmp_path, "second", "at_most_once", schema)}
        cut = RECORDS_BEFORE_THE_RESPONSE_END
        assert outcomes_after_restart(made, log, cut, first, second) == 1


def test_waiting_for_the_response_from_now_on_does_not_double_a_released_call(
    kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A call that left at its own end is not given out again at its response's end."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        log = call_records(1, b'{"a":1}', 2)
        first = {"catalogue": catalogue(tmp_path, "first", "read_only")}
        second = {**first, "wait_for_response": "true"}
        cut = RECORDS_BEFORE_THE_RESPONSE_END
        assert outcomes_after_restart(made, log, cut, first, second) == 1


@pytest.mark.parametrize(
    ("limit", "before", "after"),
    [("arguments_bytes_max", "5000", "1000"), ("fragments_max", "100", "10")],
)
def test_a_lowered_limit_does_not_lose_a_call_that_is_open_above_it(
    kafka_bootstrap: str, topic_prefix: str, limit: str, before: str, after: str
) -> None:
    """Completed by the old limit or rejected by the new one, but not silent."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        log = call_records(1, b'{"a":"' + b"x" * 3_000 + b'"}', 40)
        assert outcomes_after_restart(made, log, 30, {limit: before}, {limit: after}) == 1


def test_a_lowered_bound_of_open_calls_does_not_lose_those_above_it(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Five open calls, a bound of two after the restart: still five verdicts."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        calls = [call_records(number, b'{"a":1}', 2) for number in range(5)]
        log = [record for row in zip(*calls, strict=True) for record in row]
        first, second = {"open_calls_max": "100"}, {"open_calls_max": "2"}
        assert outcomes_after_restart(made, log, 10, first, second) == 5
