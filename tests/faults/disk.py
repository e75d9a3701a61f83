"""A small disk that can be filled: a tmpfs of its own, which only root may mount."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

SIZE_BYTES: Final = 1536 * 1024 * 1024


def may_mount() -> bool:
    """True when this user may mount a disk."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


@contextlib.contextmanager
def small_disk() -> Generator["Disk | None"]:
    """A disk for one broker; None for a user who may not mount one: then no disk gets full."""
    if not may_mount():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="faults-disk-", ignore_cleanup_errors=True) as folder:
        disk = Disk(Path(folder) / "disk")
        try:
            yield disk
        finally:
            disk.unmount()


class Disk:
    """A mounted folder of `SIZE_BYTES`, `disk` in the folder of a cluster, which unmounts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(folder)]
        subprocess.run(mount, check=True)

    def fill(self) -> None:
        """Leave not a byte free."""
        with (self.folder / "ballast").open("wb") as ballast, contextlib.suppress(OSError):
            # The space is taken without being written, and what is left over in small pieces.
            for size in (1 << 20, 1 << 12):
                while True:
                    free = os.statvfs(self.folder)
                    count = free.f_bavail * free.f_frsize // size * size
                    if count < size:
                        break
                    os.posix_fallocate(ballast.fileno(), ballast.seek(0, os.SEEK_END), count)

    def free(self) -> None:
        """Take the ballast away."""
        (self.folder / "ballast").unlink(missing_ok=True)

    def unmount(self) -> None:
        """Give the memory back."""
        unmount = ["umount", "-l", str(self.folder)]
        subprocess.run(unmount, check=False)
