"""Run one function with a time limit, and say what is known afterwards.

Rules:
    A thread cannot be stopped. A plain function that outlives its limit is left alone; when it ends
    after all, `late` hears of it, because the owner of a fence may settle late.
    A coroutine that outlives its limit is cancelled.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, cast

from processor.core._record import record

#: What a cancelled coroutine gets for its own cleaning up when the process ends.
_CLEAN_UP_S: Final = 1.0


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
    except Exception as e:  # noqa: BLE001 - whatever a tool raises is an ending, not our failure
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
    """One event loop in a thread, for all coroutines of the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tools", daemon=True)
        self._thread.start()

    def call(
        self,
        function: Callable[..., object],
        keywords: Mapping[str, object],
        *,
        timeout_s: float,
    ) -> Ending:
        """Run a coroutine function for at most `timeout_s` seconds."""
        coroutine = cast("Coroutine[Any, Any, object]", function(**keywords))
        future = asyncio.run_coroutine_threadsafe(_ended(coroutine), self._loop)
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            future.cancel()
            return TimedOut()

    def close(self) -> None:
        """Stop the loop: what was cancelled may clean up first, what still runs is abandoned."""
        asyncio.run_coroutine_threadsafe(_cancelled_ended(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancelled_ended() -> None:
    """Wait, with a bound, for coroutines that were cancelled: a tool may clean up at its limit."""
    cancelled = [task for task in asyncio.all_tasks() if task.cancelling()]
    if cancelled:
        await asyncio.wait(cancelled, timeout=_CLEAN_UP_S)


async def _ended(coroutine: Coroutine[Any, Any, object]) -> Ending:
    try:
        return Returned(await coroutine)
    except Exception as e:  # noqa: BLE001 - whatever a tool raises is an ending, not our failure
        return Raised(e)
