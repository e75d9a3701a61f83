"""What is known of a function that was run with a time limit."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

from processor.executor.invoke import EventLoop, Raised, Returned, TimedOut, call_in_thread
from processor.executor.signals import NotSent


class OddError(BaseException):
    """No `Exception`."""


def loops_ended() -> None:
    """Wait for loops that a tool had blocked."""
    for thread in threading.enumerate():
        if thread.name == "tools":
            thread.join(30)
            assert not thread.is_alive()


def test_a_coroutine_at_its_limit_cleans_up_before_the_loop_closes() -> None:
    """Cancelled is not destroyed: its `finally` has run when `close` returns."""
    cleaned: list[str] = []

    async def never_answers() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            # Another turn of the loop, as the closing of a connection takes.
            await asyncio.sleep(0)
            cleaned.append("closed")

    loop = EventLoop()
    assert isinstance(loop.call(never_answers, {}, timeout_s=0.01), TimedOut)
    loop.close()
    assert cleaned == ["closed"]


@pytest.mark.parametrize(
    "error",
    [SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError(), OddError(), GeneratorExit()],
    ids=lambda e: type(e).__name__,
)
def test_whatever_leaves_a_tool_is_the_ending_of_its_call(error: BaseException) -> None:
    """In a thread and on the loop, which goes on."""

    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    async def good() -> int:
        return 1

    assert call_in_thread(plain, {}, timeout_s=30, late=lambda _: None) == Raised(error)
    loop = EventLoop()
    assert loop.call(coroutine, {}, timeout_s=30) == Raised(error)
    assert loop.call(good, {}, timeout_s=30) == Returned(1)
    loop.close()


def test_a_task_that_a_tool_leaves_behind_neither_stops_the_loop_nor_speaks(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A message may quote an argument."""
    left: list[asyncio.Task[None]] = []

    async def leaving(end: Callable[[], Awaitable[None]]) -> None:
        left.append(asyncio.ensure_future(end()))
        await asyncio.sleep(0)

    async def exits() -> None:
        sys.exit("canary-7c")

    async def raises() -> None:
        raise ValueError("canary-7c")

    async def good() -> int:
        left.clear()
        return 1

    loop = EventLoop()
    for end in (exits, raises):
        loop.call(leaving, {"end": end}, timeout_s=30)
    assert loop.call(good, {}, timeout_s=30) == Returned(1)
    loop.close()
    out, err = capfd.readouterr()
    assert "canary-7c" not in out + err


def test_a_coroutine_that_blocks_the_loop_holds_up_no_other_beyond_its_own_limit() -> None:
    """What has not begun moves to a new loop and begins once."""
    release, blocking = threading.Event(), threading.Event()
    begun: list[str] = []

    async def blocks() -> None:
        blocking.set()
        release.wait(60)

    async def good() -> int:
        begun.append("good")
        return 1

    loop = EventLoop()
    endings: list[object] = []
    blocked = threading.Thread(
        target=lambda: endings.append(loop.call(blocks, {}, timeout_s=0.01)), daemon=True
    )
    blocked.start()
    assert blocking.wait(30)
    assert loop.call(good, {}, timeout_s=30) == Returned(1)
    blocked.join(30)
    assert endings == [TimedOut()]
    release.set()
    loop.close()
    loops_ended()
    assert begun == ["good"]


def test_a_coroutine_that_never_began_was_not_sent() -> None:
    """The loop was blocked for the whole of its limit: nothing happened, and that is known."""
    release, blocking = threading.Event(), threading.Event()
    begun: list[str] = []

    async def blocks() -> None:
        blocking.set()
        release.wait(60)

    async def waits() -> None:
        begun.append("waits")

    loop = EventLoop()
    threading.Thread(target=lambda: loop.call(blocks, {}, timeout_s=60), daemon=True).start()
    assert blocking.wait(30)
    ending = loop.call(waits, {}, timeout_s=0.01)
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, NotSent)
    release.set()
    loop.close()
    loops_ended()
    assert begun == []


def test_closing_does_not_wait_for_a_blocked_loop() -> None:
    """The process may end; the loop is left to it."""
    release, blocking = threading.Event(), threading.Event()

    async def blocks() -> None:
        blocking.set()
        release.wait(60)

    loop = EventLoop()
    threading.Thread(target=lambda: loop.call(blocks, {}, timeout_s=60), daemon=True).start()
    assert blocking.wait(30)
    closing = threading.Thread(target=loop.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    release.set()
    loops_ended()
