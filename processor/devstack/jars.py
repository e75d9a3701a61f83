"""The broker's jars: pinned by SHA-256, downloaded once, verified at every start.

Rules:
    `kafka_jars.txt` is the whole list. A jar that is missing or differs is refused by its name;
    a jar that is not on the list never gets on the class path.
    The folder appears under its name only when all of it was verified, so a download that was
    cut leaves nothing that could be taken for a complete one.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from processor.core._record import record
from processor.devstack.endpoints import Progress
from processor.devstack.errors import DevStackFailed, JarRefused
from processor.devstack.locks import hold
from processor.devstack.places import cache_directory, java_home, package_folder
from processor.devstack.processes import end, find
from processor.devstack.waiting import wait_until

KAFKA_VERSION = "4.4.0"
# Without an slf4j binding the broker logs nothing at all.
ENDPOINT = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.slf4j:slf4j-simple:1.7.36"
DOWNLOAD_TIMEOUT_S = 600.0
_POLL_S = 0.2
_END_TIMEOUT_S = 10.0
_REASON_CHARS = 300
_PART = f"kafka-{KAFKA_VERSION}.part-"


@record
class Pin:
    """One line of the list; `coordinates` is `group:artifact:version`."""

    sha256: str
    file: str
    coordinates: str

    def maven_path(self) -> Path:
        """Where a Maven folder holds this jar."""
        group, artifact, version = self.coordinates.split(":")
        return Path(*group.split("."), artifact, version, self.file)


def read_pins() -> list[Pin]:
    """The list of this release."""
    text = Path(__file__).with_name("kafka_jars.txt").read_text()
    return [Pin(*line.split()) for line in text.splitlines() if not line.startswith("#")]


def broker_classpath(on_progress: Callable[[Progress], None]) -> str:
    """The verified class path, downloaded first when the cache does not hold it.

    Cost: reads and hashes about 45 MB, 0.1 s; the first time also downloads them.

    Raises: `JarRefused` naming the jar; `DevStackFailed` when the download fails.
    """
    cache = cache_directory()
    folder = cache / f"kafka-{KAFKA_VERSION}"
    pins = read_pins()
    try:
        with hold(cache / ".download.lock"):
            if not folder.is_dir():
                _download(cache, folder, pins, on_progress)
    except OSError as e:
        raise DevStackFailed(
            f"the download folder {cache} cannot be used ({e.strerror}): set TOOLCALLS_CACHE_DIR"
        ) from e
    on_progress(Progress("verify", "verifying the broker's jars"))
    verify(folder, pins)
    return ":".join(str(folder / pin.file) for pin in pins)


def verify(folder: Path, pins: list[Pin]) -> None:
    """Compare every jar with its pin. Raises: `JarRefused` naming the first that differs."""
    for pin in pins:
        path = folder / pin.file
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            raise JarRefused(
                f"{path} is missing ({pin.coordinates}): delete the folder {folder}, the next"
                " start downloads it again"
            ) from None
        if digest != pin.sha256:
            raise JarRefused(
                f"{path} is not the jar this project was tested with ({pin.coordinates}, SHA-256"
                f" {digest[:16]}… instead of {pin.sha256[:16]}…): delete the folder {folder}, the"
                " next start downloads it again"
            )


def _download(
    cache: Path, folder: Path, pins: list[Pin], on_progress: Callable[[Progress], None]
) -> None:
    """Resolve into a folder aside, keep the pinned jars, verify them, then give them their name."""
    for left_over in cache.glob(f"{_PART}*"):
        end([(p, signal.SIGKILL) for p in find(left_over, [os.geteuid()])], _END_TIMEOUT_S)
        shutil.rmtree(left_over, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=_PART, dir=cache))
    try:
        _resolve(part, len(pins), on_progress)
        kept = part / "jars"
        kept.mkdir()
        for pin in pins:
            source = part / "maven" / pin.maven_path()
            if source.is_file():
                source.rename(kept / pin.file)
        verify(kept, pins)
        kept.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _resolve(part: Path, count: int, on_progress: Callable[[Progress], None]) -> None:
    """Run jgo and report what has arrived. Raises: `DevStackFailed` with the end of its output."""
    package_folder("jgo")
    log = part / "jgo.log"
    maven = part / "maven"
    text = f"downloading Apache Kafka {KAFKA_VERSION} ({count} jars)"
    # jgo looks for a JDK on the network unless it is told where one is.
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "M2_REPO": str(maven)}
    script = Path(__file__).with_name("resolve_jars.py")
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-P", str(script), str(part / "jgo"), ENDPOINT],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )

    def ended() -> bool:
        sizes = [path.stat().st_size for path in maven.rglob("*.jar")]
        on_progress(Progress("download", text, len(sizes), sum(sizes)))
        return child.poll() is not None

    try:
        in_time = wait_until(ended, DOWNLOAD_TIMEOUT_S, _POLL_S)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
    if not in_time or child.returncode:
        last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
        why = f"failed: {last[:_REASON_CHARS]}" if in_time else "took too long"
        raise DevStackFailed(
            f"the download of Apache Kafka {KAFKA_VERSION} {why}; check the network, HTTPS_PROXY and"
            " REQUESTS_CA_BUNDLE, then try again"
        )
