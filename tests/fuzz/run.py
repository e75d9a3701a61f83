"""`make fuzz`: coverage-guided fuzzing of the dialect adapters, one process for each dialect.

The child is libFuzzer's own loop (atheris) and never returns; the parent gives it a corpus made of
the captured streams and keeps what it finds beside the tests, which replay it from then on.
"""

import argparse
import importlib
import importlib.util
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, cast

FINDS: Final = Path(__file__).parent / "finds"
INPUT_BYTES_MAX: Final = 16 * 1024
#: libFuzzer ends itself; what goes on for longer than this hangs outside of the target.
GRACE_S: Final = 120
#: One input may take this long, and the whole process this much memory, before it is a find.
INPUT_SECONDS_MAX: Final = 10
MEMORY_MIB_MAX: Final = 2_048
#: Of each hundred new inputs, so many damage a captured stream, and so many are bytes as they come.
DAMAGED_SHARE, RAW_SHARE = 0.2, 0.3

_FIGURE: Final = re.compile(r"stat::(\w+):\s+(\d+)")
#: The first line of libFuzzer's or Python's report of what went wrong.
_CAUSE: Final = re.compile(r"=== Uncaught Python exception: ===\n(.*)|ERROR: libFuzzer: (.*)")


class Atheris(Protocol):
    """The part of the fuzzer that is used; its package has no types."""

    Mutate: Callable[[bytes, int], bytes]
    Setup: Callable[..., object]
    Fuzz: Callable[[], None]


def child(dialect: str, options: list[str]) -> None:
    """Fuzz one dialect until libFuzzer's own limits end the process."""
    # Imported here, so that the other modules are instrumented while they are imported.
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["processor.core", "processor.dialects"]):
        target = importlib.import_module("tests.fuzz.target")
    mutate = _mutator(cast("Atheris", atheris), dialect)

    def one_input(data: bytes) -> None:
        target.check(dialect, data)

    atheris.Setup([sys.argv[0], *options], one_input, custom_mutator=mutate)
    atheris.Fuzz()


def _mutator(atheris: Atheris, dialect: str) -> Callable[[bytes, int, int], bytes]:
    from tests.fuzz.chunks import chunks_of
    from tests.fuzz.damage import fixtures_of
    from tests.fuzz.mutations import mutated
    from tests.fuzz.target import DAMAGE
    from tests.golden.test_streams import data_of

    others = [chunk for name in fixtures_of(dialect) for chunk in chunks_of(data_of(name))]

    def mutate(data: bytes, size_max: int, seed: int) -> bytes:
        rng = random.Random(seed)
        choice = rng.random()
        if choice < DAMAGED_SHARE:
            return DAMAGE + rng.randbytes(4)
        changed = mutated(data, others, rng) if choice < 1 - RAW_SHARE else None
        if changed is None or len(changed) > size_max:
            return atheris.Mutate(data, size_max)
        return changed

    return mutate


def fuzz(dialect: str, seconds: int, seed: int) -> bool:
    """Fuzz one dialect in a process of its own; True when nothing was found."""
    with tempfile.TemporaryDirectory(prefix="toolcalls-fuzz-") as folder:
        corpus, found = Path(folder, "corpus"), Path(folder, "found")
        corpus.mkdir()
        found.mkdir()
        _sow(dialect, corpus)
        options = [
            f"-max_total_time={seconds}",
            f"-max_len={INPUT_BYTES_MAX}",
            f"-timeout={INPUT_SECONDS_MAX}",
            f"-rss_limit_mb={MEMORY_MIB_MAX}",
            f"-seed={seed}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
            "-verbosity=0",
        ]
        command = [sys.executable, "-m", "tests.fuzz.run", "--child", dialect, *options]
        done = subprocess.run(
            [*command, str(corpus)],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds + GRACE_S,
        )
        kept = [_keep(dialect, path) for path in sorted(found.iterdir())]
    _report(dialect, done.stderr, done.returncode, kept)
    return done.returncode == 0 and not kept


def _sow(dialect: str, corpus: Path) -> None:
    from tests.fuzz.damage import fixtures_of
    from tests.golden.test_streams import data_of

    kept = sorted((FINDS / dialect).glob("*.bin"))
    seeds = [data_of(name) for name in fixtures_of(dialect)] + [p.read_bytes() for p in kept]
    for number, data in enumerate(seeds):
        (corpus / f"{number:04}").write_bytes(data)


def _keep(dialect: str, path: Path) -> Path:
    """Copy a find to where the tests replay it, under the hash that libFuzzer gave it."""
    kept = FINDS / dialect / f"{path.name.rpartition('-')[2]}.bin"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(path.read_bytes())
    return kept


def _report(dialect: str, log: str, code: int, kept: list[Path]) -> None:
    figures = {name: int(value) for name, value in _FIGURE.findall(log)}
    runs, rate = figures.get("number_of_executed_units", 0), figures.get("average_exec_per_sec", 0)
    say(f"{dialect:18} {runs:>10,} runs {rate:>7,} a second   finds: {len(kept)}")
    for path in kept:
        cause = _CAUSE.search(log)
        first = next((part for part in cause.groups() if part), "?") if cause else "?"
        say(f"  {path.name}  {first.strip()}")
    if code and not kept:
        say("\n".join(["  the fuzzer itself failed:", *log.splitlines()[-15:]]))


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Fuzz the named dialects, or all, one after the other. Exit code 1 with a find."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
        return 0
    from processor.dialects.registry import DIALECTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dialects", nargs="*", default=list(DIALECTS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        say("fuzz: the fuzzer is not installed; it is the extra `fuzz` of this package")
        return 2
    say(f"{args.seconds} s a dialect, seed {args.seed}")
    clean = [fuzz(name, args.seconds, args.seed) for name in args.dialects]
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
