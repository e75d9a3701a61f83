"""Waiting for results: nothing missed, repeats dropped, what is missing said, memory bounded."""

import asyncio
import queue
import threading
from collections.abc import Iterator

import pytest

from processor.codec.records import encode_rejected, encode_result
from processor.core.errors import Misuse
from processor.core.evidence import Evidence
from processor.core.identity import CallKey
from processor.core.outcomes import CallRejected
from processor.core.results import CallResult, ResultState
from processor.publisher import (
    AsyncResultReader,
    ResultReader,
    ResultReaderSettings,
    ResultsLost,
)
from processor.publisher.results_consumer import ReadRecord

RESULTS = "toolcalls.results.v1"
REJECTED = "toolcalls.rejected.v1"
SETTINGS = ResultReaderSettings(bootstrap="unused:1")


class Topic:
    """What a reader reads from; a test puts records into it."""

    def __init__(self) -> None:
        self._records: queue.Queue[ReadRecord | Exception] = queue.Queue()
        self.opened = False
        self.closed = threading.Event()

    def open(self) -> None:
        """Take the position."""
        self.opened = True

    def read(self, timeout_s: float) -> ReadRecord | None:
        """The next record, or the error that was put in."""
        try:
            found = self._records.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """Leave."""
        self.closed.set()

    def put(self, result: CallResult, event_id: str = "") -> None:
        """A result, under an id of its own or the given one."""
        key = result.key.encode()
        name = event_id or f"{key.decode()}/{result.state}/1"
        self._records.put(ReadRecord(RESULTS, key, encode_result(result), name))

    def put_raw(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Any record."""
        self._records.put(ReadRecord(topic, key, value, "raw"))

    def break_down(self, error: Exception) -> None:
        """The next read fails."""
        self._records.put(error)


def result(
    call_id: str = "call_A",
    state: ResultState = "succeeded",
    body: bytes | None = b"{}",
    request_id: str = "req_1",
) -> CallResult:
    """What came of a call."""
    key = CallKey("acme", request_id, "resp_1", call_id)
    return CallResult(key, "lookup_order", state, "never", body)


def rejected(call_id: str) -> CallRejected:
    """A call that the assembler found unfit."""
    evidence = Evidence(
        topic="toolcalls.events.v1",
        partition=0,
        first_offset=1,
        last_offset=2,
        events=2,
        fragments=1,
        duplicates_dropped=0,
        started_at_ms=1,
        ended_at_ms=2,
        final_copy="absent",
        outcome="truncated",
    )
    key = CallKey("acme", "req_1", "resp_1", call_id)
    return CallRejected(key, "truncated", "completion", "cut", evidence)


@pytest.fixture
def topic() -> Topic:
    """An empty topic."""
    return Topic()


@pytest.fixture
def reader(topic: Topic) -> Iterator[ResultReader]:
    """A reader that is open before anything is published."""
    with ResultReader(SETTINGS, source=topic) as opened:
        yield opened


def test_the_position_is_taken_before_anybody_can_expect_a_result(topic: Topic) -> None:
    """Whatever is published inside of the block is seen."""
    with ResultReader(SETTINGS, source=topic) as reader:
        assert topic.opened
        with reader.expect("acme", "req_1") as calls:
            topic.put(result())
            answers = calls.wait(["call_A"], 10)
    assert answers.complete
    assert answers.results["call_A"].body == b"{}"
    assert topic.closed.wait(10)


def test_a_timeout_says_which_calls_have_no_result_yet(reader: ResultReader, topic: Topic) -> None:
    """Missing: nobody has said a word. Waiting: held or in doubt, and it says which."""
    with reader.expect("acme", "req_1") as calls:
        topic.put(result("call_B", "held", None))
        topic.put(result("call_C"))
        assert calls.wait(["call_C"], 10).complete
        answers = calls.wait(["call_A", "call_B", "call_C"], 0)
    assert (answers.missing, answers.lacking, answers.complete) == (("call_A",), 2, False)
    assert answers.waiting["call_B"].state == "held"


def test_a_held_call_that_succeeds_later_is_a_result_then(
    reader: ResultReader, topic: Topic
) -> None:
    """An interim state never outlives its end, nor comes back after it."""
    with reader.expect("acme", "req_1") as calls:
        topic.put(result(state="in_doubt", body=None))
        topic.put(result())
        topic.put(result(state="in_doubt", body=None))
        topic.put(result("call_B"))
        answers = calls.wait(["call_A", "call_B"], 10)
    assert (answers.waiting, set(answers.results)) == ({}, {"call_A", "call_B"})


def test_repeats_are_dropped_and_the_first_end_counts(reader: ResultReader, topic: Topic) -> None:
    """The relay may publish twice; a call ends once."""
    with reader.expect("acme", "req_1") as calls:
        topic.put(result(body=b"first"))
        topic.put(result(body=b"first"))
        topic.put(result(state="failed", body=b"second"), "another id")
        topic.put(result("call_B"))
        answers = calls.wait(2, 10)
    assert answers.results["call_A"].body == b"first"
    assert answers.dropped == 0


def test_a_stale_repeat_does_not_bring_an_older_state_back(
    reader: ResultReader, topic: Topic
) -> None:
    """A relay that was frozen may publish an old event after a newer one."""
    with reader.expect("acme", "req_1") as calls:
        topic.put(result(state="held", body=None), "held/1")
        topic.put(result(state="in_doubt", body=None), "in_doubt/2")
        topic.put(result(state="held", body=None), "held/1")
        topic.put(result("call_B"))
        answers = calls.wait(["call_B"], 10)
    assert answers.waiting["call_A"].state == "in_doubt"


def test_a_rejected_call_has_ended(reader: ResultReader, topic: Topic) -> None:
    """Nobody waits for a call that will never be executed."""
    with reader.expect("acme", "req_1") as calls:
        call = rejected("call_A")
        topic.put_raw(REJECTED, call.key.encode(), encode_rejected(call))
        answers = calls.wait(["call_A"], 10)
    assert (answers.complete, answers.rejected["call_A"].reason) == (True, "truncated")


def test_other_requests_and_unreadable_records_are_passed_over(
    reader: ResultReader, topic: Topic
) -> None:
    """An unreadable record of an awaited request is counted."""
    with reader.expect("acme", "req_1") as calls:
        topic.put(result(request_id="req_2"))
        for key in (None, b"no key", b"acme/req_1/resp_1/call_A"):
            topic.put_raw(RESULTS, key, b"\x00")
        topic.put(result())
        assert set(calls.wait(1, 10).results) == {"call_A"}
    assert reader.unreadable == 1


def test_several_may_wait_for_one_request_and_each_has_its_own_time(
    reader: ResultReader, topic: Topic
) -> None:
    """What was read before somebody expected it is not theirs."""
    with reader.expect("acme", "req_1") as early:
        topic.put(result())
        assert early.wait(1, 10).complete
        with reader.expect("acme", "req_1") as late:
            assert late.wait(1, 0).results == {}
            topic.put(result("call_B"))
            assert set(late.wait(1, 10).results) == {"call_B"}
        assert set(early.wait(2, 10).results) == {"call_A", "call_B"}


def test_memory_is_bounded_by_calls_by_bodies_and_by_requests(topic: Topic) -> None:
    """What does not fit is counted and stays missing; too many requests are refused."""
    settings = ResultReaderSettings("unused:1", calls_max=2, body_bytes_max=10, waits_max=1)
    with ResultReader(settings, source=topic) as reader:
        with reader.expect("acme", "req_1") as calls:
            topic.put(result("call_A", body=b"x" * 8))
            topic.put(result("call_B", body=b"x" * 8))
            topic.put(result("call_C", body=None))
            topic.put(result("call_D", body=None))
            topic.put(result("call_E", body=None))
            assert calls.wait(["call_A", "call_C"], 10).complete
            with pytest.raises(Misuse, match="waits_max"), reader.expect("acme", "req_2"):
                pass
            answers = calls.wait(["call_B"], 0)
            assert set(answers.results) == {"call_A", "call_C"}
            assert answers.missing == ("call_B",)
        with reader.expect("acme", "req_1") as again:
            topic.put(result("call_B", body=b"x" * 8))
            assert again.wait(["call_B"], 10).complete


def test_a_reader_that_cannot_go_on_tells_everybody(reader: ResultReader, topic: Topic) -> None:
    """Now and later; but what is complete is still given out."""
    with reader.expect("acme", "req_1") as calls:
        topic.put(result())
        assert calls.wait(1, 10).complete
        topic.break_down(ResultsLost("OFFSET_OUT_OF_RANGE"))
        with pytest.raises(ResultsLost, match="OFFSET_OUT_OF_RANGE"):
            calls.wait(2, 10)
        assert calls.wait(1, 0).complete
    with pytest.raises(ResultsLost), reader.expect("acme", "req_2"):
        pass


def test_closing_ends_the_waits(topic: Topic) -> None:
    """A thread that waits does not outlive the reader."""
    reader = ResultReader(SETTINGS, source=topic)
    reader.open()
    with reader.expect("acme", "req_1") as calls:
        closing = threading.Thread(target=reader.close)
        closing.start()
        with pytest.raises(ResultsLost, match="closed"):
            calls.wait(1, 10)
        closing.join()


def test_a_bug_of_the_reader_reaches_who_waits_without_its_text(
    reader: ResultReader, topic: Topic
) -> None:
    """The type only: a message may quote content."""
    with reader.expect("acme", "req_1") as calls:
        topic.break_down(KeyError("CANARY"))
        with pytest.raises(ResultsLost, match="KeyError") as lost:
            calls.wait(1, 10)
    assert "CANARY" not in str(lost.value)


def test_a_task_waits_as_a_thread_does(topic: Topic) -> None:
    """asyncio: results, a timeout that says what is missing, and a failure."""

    async def main() -> None:
        async with (
            AsyncResultReader(SETTINGS, source=topic) as reader,
            reader.expect("acme", "req_1") as calls,
        ):
            waiting = asyncio.create_task(calls.wait(["call_A", "call_B"], 10))
            topic.put(result("call_A"))
            topic.put(result("call_B"))
            assert (await waiting).complete
            short = await calls.wait(["call_C"], 0.01)
            assert short.missing == ("call_C",)
            topic.break_down(ResultsLost("gone"))
            with pytest.raises(ResultsLost):
                await calls.wait(["call_C"], 10)

    asyncio.run(main())


@pytest.mark.parametrize(
    "settings",
    [
        ResultReaderSettings(""),
        ResultReaderSettings("b:1", results_topic=""),
        ResultReaderSettings("b:1", calls_max=0),
        ResultReaderSettings("b:1", waits_max=0),
        ResultReaderSettings("b:1", body_bytes_max=0),
    ],
)
def test_wrong_settings_are_refused_at_construction(settings: ResultReaderSettings) -> None:
    """Before any connection."""
    with pytest.raises(Misuse):
        ResultReader(settings)
