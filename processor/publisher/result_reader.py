"""Wait for what came of a request's tool calls: what an agent's loop does after a model's response.

Rules:
    One reader per process, opened early: it reads from where the topics ended when it was opened, so
    whatever is published after that is seen.
    `expect` comes before the request is published, and `wait` after it.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Final, NamedTuple, Protocol

from processor.codec.dead_letter_codes import Undecodable
from processor.codec.records import decode_rejected, decode_result
from processor.core._record import field, record
from processor.core.errors import Misuse, ProcessorError
from processor.core.identity import CallKey, IdentityError, decode_call_key
from processor.publisher.clock import monotonic_s
from processor.publisher.errors import ResultsLost
from processor.publisher.result_inbox import (
    CallAnswers,
    Expectation,
    InboxBounds,
    ResultInbox,
    Wanted,
)
from processor.publisher.results_consumer import ReadRecord, ResultsConsumer

_READ_S: Final = 0.1
_STOP_S: Final = 15.0


@record
class ResultReaderSettings:
    """Where results come from, and what may be kept of them.

    `rejected_topic` None: rejected calls are not read, and a call that the assembler rejects then
    stays missing. `client` goes to librdkafka as it is (security settings).
    """

    bootstrap: str
    results_topic: str = "toolcalls.results.v1"
    rejected_topic: str | None = "toolcalls.rejected.v1"
    waits_max: int = 10_000
    calls_max: int = 256
    body_bytes_max: int = 64 * 1024 * 1024
    client: dict[str, str] = field(default_factory=dict[str, str])

    def checked(self) -> "ResultReaderSettings":
        """Return these settings, or refuse the wrong ones by name. Raises: `Misuse`."""
        if not self.bootstrap or not self.results_topic:
            raise Misuse("bootstrap and results_topic must not be empty")
        for name in ("waits_max", "calls_max", "body_bytes_max"):
            if getattr(self, name) < 1:
                raise Misuse(f"{name} must be at least 1")
        return self


class ReadsResults(Protocol):
    """What a reader reads from; used from one thread after `open`."""

    def open(self) -> None:
        """Take the position: everything published from now on is read."""
        ...

    def read(self, timeout_s: float) -> ReadRecord | None:
        """The next record, or None after `timeout_s`. Raises: `ResultsLost`."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class ExpectedCalls(NamedTuple):
    """The calls of one request, for a thread that waits for them."""

    expectation: Expectation

    def wait(self, calls: Wanted, timeout_s: float) -> CallAnswers:
        """Until `calls` have ended, at most `timeout_s`; says which have not.

        `calls` are call ids (`StreamPublisher.call_ids` has all of a response), or how many.

        Raises: `ResultsLost` when the reader cannot go on.
        """
        return self.expectation.wait(calls, timeout_s)


class ExpectedCallsAsync(NamedTuple):
    """The calls of one request, for a task that waits for them."""

    expectation: Expectation

    async def wait(self, calls: Wanted, timeout_s: float) -> CallAnswers:
        """As `ExpectedCalls.wait`."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The loop may have been closed meanwhile; then nobody waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(changed.set)

        with self.expectation.listening(wake), suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.expectation.answers_or_failure(calls).complete:
                    await changed.wait()
                    changed.clear()
        return self.expectation.answers_or_failure(calls)


class ResultReader:
    """Reads results on a thread of its own, for any number of requests. Thread-safe. Use `with`.

    `source` is for tests.

    Raises: `Misuse` for wrong settings or a missing topic; `ResultsLost` when Kafka does not answer.
    """

    def __init__(
        self, settings: ResultReaderSettings, *, source: ReadsResults | None = None
    ) -> None:
        self._settings = settings.checked()
        bounds = InboxBounds(settings.waits_max, settings.calls_max, settings.body_bytes_max)
        self._inbox = ResultInbox(bounds)
        self._source = source or ResultsConsumer(
            settings.bootstrap, self._topics(), settings.client, monotonic_s
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="toolcalls-results", daemon=True)
        self._unreadable = 0

    def _topics(self) -> tuple[str, ...]:
        settings = self._settings
        if settings.rejected_topic is None:
            return (settings.results_topic,)
        return settings.results_topic, settings.rejected_topic

    @property
    def unreadable(self) -> int:
        """Records of awaited requests that could not be read."""
        return self._unreadable

    def open(self) -> None:
        """Take the position and begin to read."""
        self._source.open()
        self._thread.start()

    def close(self) -> None:
        """Stop reading; whoever still waits gets `ResultsLost`. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
        self._inbox.fail(ResultsLost("the reader is closed"))

    def __enter__(self) -> "ResultReader":
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def expect(self, tenant: str, request_id: str) -> Generator[ExpectedCalls]:
        """Collect the answers of one request while the block runs; publish the request inside.

        Raises: `Misuse` above `waits_max`; `ResultsLost` when the reader cannot go on.
        """
        with self._inbox.expecting(tenant, request_id) as expectation:
            yield ExpectedCalls(expectation)

    @contextmanager
    def expect_async(self, tenant: str, request_id: str) -> Generator[ExpectedCallsAsync]:
        """As `expect`, for a task; entering and leaving the block does not wait."""
        with self._inbox.expecting(tenant, request_id) as expectation:
            yield ExpectedCallsAsync(expectation)

    # --- the reading thread

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                read = self._source.read(_READ_S)
                if read is not None:
                    self._take(read)
        except ProcessorError as e:
            self._inbox.fail(e)
        except Exception as e:  # noqa: BLE001 - whoever waits must hear of a bug as well
            self._inbox.fail(ResultsLost(f"a bug in the reader: {type(e).__name__}"))
        finally:
            self._source.close()

    def _take(self, read: ReadRecord) -> None:
        # The key is enough to pass over what nobody waits for.
        key = _key_of(read.key)
        if key is None or not self._inbox.expects(key.tenant, key.request_id):
            return
        try:
            if read.topic == self._settings.results_topic:
                self._inbox.take(decode_result(read.key, read.value), read.event_id)
            else:
                self._inbox.take_rejected(decode_rejected(read.key, read.value))
        except Undecodable:
            self._unreadable += 1


class AsyncResultReader:
    """As `ResultReader`, for asyncio. Use `async with`; opening and closing run on a thread."""

    def __init__(
        self, settings: ResultReaderSettings, *, source: ReadsResults | None = None
    ) -> None:
        self._reader = ResultReader(settings, source=source)

    async def __aenter__(self) -> "AsyncResultReader":
        await asyncio.to_thread(self._reader.open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._reader.close)

    @asynccontextmanager
    async def expect(self, tenant: str, request_id: str) -> AsyncGenerator[ExpectedCallsAsync]:
        """As `ResultReader.expect`."""
        with self._reader.expect_async(tenant, request_id) as calls:
            yield calls


def _key_of(key: bytes | None) -> CallKey | None:
    if key is None:
        return None
    try:
        return decode_call_key(key)
    except IdentityError:
        return None
