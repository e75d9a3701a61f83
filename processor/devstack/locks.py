"""A lock file that keeps two commands apart, also when one of them removes its folder."""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

from processor.devstack.errors import DevStackFailed
from processor.devstack.waiting import wait_until

LOCK_TIMEOUT_S = 900.0
_POLL_S = 0.1


@contextlib.contextmanager
def hold(path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> Generator[None]:
    """Hold the lock of `path`; it is free again when the holder ends, however it ends.

    The wait covers another command's first download.

    Raises: `DevStackFailed` when another command holds it for longer than `timeout_s`; OSError
        when the file cannot be made.
    """
    held: list[int] = []

    def try_once() -> bool:
        """Lock the file that is at `path` at that moment: the last holder may have removed it."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                held.append(descriptor)
                return True
        os.close(descriptor)
        return False

    if not wait_until(try_once, timeout_s, _POLL_S):
        raise DevStackFailed(
            f"another command works on {path.parent} and does not end: look for a hanging"
            " `toolcalls dev`"
        )
    try:
        yield
    finally:
        os.close(held[0])
