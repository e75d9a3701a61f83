"""What is known of a function that was run with a time limit."""

import asyncio

from processor.executor.invoke import EventLoop, TimedOut


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
