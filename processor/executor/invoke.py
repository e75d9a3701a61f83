"""Run one function with a time limit, and say what is known afterwards.

Rules:
    Whatever leaves a tool is an ending of its own call and of nothing else: `sys.exit`, a
    cancellation and every other `BaseException` included.
    A thread cannot be stopped. A plain function that outlives its limit is left alone; when it ends
    after all, `late` hears of it, because the owner of a fence may settle late.
    A coroutine that outlives its limit is cancelled. One that blocks its event loop cannot be: the
    loop is left to it, and everything that has not begun moves to a new one.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from processor.core._record import record
from processor.executor.signals import NotSent

#: What a cancelled coroutine gets for its own cleaning up when the process ends.
_CLEAN_UP_S: Final = 1.0
#: A loop that does not turn within this time is blocked by a tool.
_TURN_S: Final = 0.5


@record
class Returned:
    """The function came back: the effect happened."""

    value: object


@record
class Raised:
    """The function raised; what that means is the caller's to say."""

    error: BaseException


@record
class TimedOut:
    """The limit passed, and nobody knows."""


Ending = Returned | Raised | TimedOut
Late = Callable[[Returned | Raised], None]


def call_inline(
    function: Callable[..., object], keywords: Mapping[str, object]
) -> Returned | Raised:
    """Run in this thread, without a limit."""
    try:
        return Returned(function(**keywords))
    except BaseException as e:  # noqa: BLE001 - whatever a tool raises is an ending, not our failure
        return Raised(e)


def call_in_thread(
    function: Callable[..., object],
    keywords: Mapping[str, object],
    *,
    timeout_s: float,
    late: Late,
) -> Ending:
    """Run in a thread of its own for at most `timeout_s` seconds. Cost: one thread, about 50 µs."""
    lock = threading.Lock()
    done = threading.Event()
    endings: list[Returned | Raised] = []
    abandoned = False

    def run() -> None:
        ending = call_inline(function, keywords)
        with lock:
            endings.append(ending)
            done.set()
            too_late = abandoned
        if too_late:
            late(ending)

    threading.Thread(target=run, name="tool", daemon=True).start()
    done.wait(timeout_s)
    with lock:
        if endings:
            return endings[0]
        abandoned = True
        return TimedOut()


class EventLoop:
    """An event loop in a thread. It is replaced when a coroutine blocks it, unless it is `trusted`.

    What runs on a trusted loop never blocks, and holds on to the loop (connections do).
    """

    def __init__(self, *, trusted: bool = False) -> None:
        self._trusted = trusted
        self._lock = threading.Lock()
        self._waiting: set[_Run] = set()
        self._turning = _Turning()
        self._blocked: list[_Turning] = []

    def call(
        self,
        function: Callable[..., object],
        keywords: Mapping[str, object],
        *,
        timeout_s: float,
    ) -> Ending:
        """Run a coroutine function for at most `timeout_s` seconds.

        A function that did not begin in that time was not sent.
        """
        run = _Run(function, keywords)
        with self._lock:
            self._waiting.add(run)
            turning = self._turning
            turning.submit(run)
        in_time = run.done.wait(timeout_s)
        with self._lock:
            self._waiting.discard(run)
        if in_time:
            return run.ending
        never_began = run.begin()
        run.cancel()
        self._replace_if_blocked(turning)
        return Raised(NotSent()) if never_began else TimedOut()

    def _replace_if_blocked(self, turning: "_Turning") -> None:
        if self._trusted or turning.turns(_TURN_S):
            return
        with self._lock:
            if turning is not self._turning:
                return
            self._blocked.append(turning)
            self._turning = _Turning()
            for run in self._waiting:
                # What has begun on the blocked loop stays there: it begins once.
                self._turning.submit(run)

    def close(self) -> None:
        """Stop the loop: what was cancelled may clean up first, what still runs is abandoned."""
        with self._lock:
            for blocked in self._blocked:
                blocked.leave()
            self._turning.stop()


class _Run:
    """One call of a coroutine function; begins at most once, on whichever loop comes first."""

    def __init__(self, function: Callable[..., object], keywords: Mapping[str, object]) -> None:
        self._function = function
        self._keywords = keywords
        self._lock = threading.Lock()
        self._begun = False
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self.done = threading.Event()
        self.ending: Ending = TimedOut()

    def begin(self) -> bool:
        """True for the first one that asks."""
        with self._lock:
            first = not self._begun
            self._begun = True
            return first

    def runs_as(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
        """What is to be cancelled."""
        with self._lock:
            self._task = (loop, task)

    def cancel(self) -> None:
        """Ask the coroutine to end."""
        with self._lock:
            if self._task is not None:
                loop, task = self._task
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(task.cancel)

    async def run(self) -> None:
        """The life of the call after `begin`; raises nothing."""
        try:
            coroutine = cast("Coroutine[Any, Any, object]", self._function(**self._keywords))
            self.ending = Returned(await coroutine)
        except BaseException as e:  # noqa: BLE001 - whatever a tool raises is an ending
            self.ending = Raised(e)
        self.done.set()


class _Turning:
    """A loop and its thread. What a tool's own tasks raise neither stops nor is told: it may quote."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: None)
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._turn, name="tools", daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        while not self._stopping:
            # A task that a tool has started may ask for the exit.
            with suppress(BaseException):
                self._loop.run_forever()
        self._loop.close()

    def submit(self, run: _Run) -> None:
        self.soon(self._start, run)

    def _start(self, run: _Run) -> None:
        if self._stopping or not run.begin():
            return
        task = self._loop.create_task(run.run())
        run.runs_as(self._loop, task)
        # The loop itself holds its tasks weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def turns(self, timeout_s: float) -> bool:
        turned = threading.Event()
        self.soon(turned.set)
        return turned.wait(timeout_s)

    def stop(self) -> None:
        """Bounded, whatever the tools do: a blocked loop is left to the end of the process."""
        ended = threading.Event()
        self.soon(self._start_clean_up, ended)
        ended.wait(_CLEAN_UP_S + _TURN_S)
        self.leave()
        self._thread.join(_TURN_S)

    def leave(self) -> None:
        """End as soon as no tool blocks the loop."""
        self._stopping = True
        self.soon(self._loop.stop)

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Have it called on the loop; never, when the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _start_clean_up(self, ended: threading.Event) -> None:
        if self._stopping:
            return
        task = self._loop.create_task(_cancelled_ended())
        self._tasks.add(task)

        def tell(done: asyncio.Task[None]) -> None:
            del done
            ended.set()

        task.add_done_callback(tell)


async def _cancelled_ended() -> None:
    """Wait, with a bound, for coroutines that were cancelled: a tool may clean up at its limit."""
    cancelled = [task for task in asyncio.all_tasks() if task.cancelling()]
    if cancelled:
        await asyncio.wait(cancelled, timeout=_CLEAN_UP_S)
