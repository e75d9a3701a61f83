"""`make bench-adapters`: what one chunk of a model's stream costs, for each dialect.

Each figure is the least of several runs, since everything else on the machine only adds to it; the
median stands beside it. The adapter alone is measured: no fold, no codec, no Kafka.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from processor.dialects.registry import DIALECTS
from processor.dialects.stream import ResponseStream
from tests.unit.dialects.long_streams import lines, long_response
from tests.unit.dialects.wires import Chunk

#: What one chunk may cost on average, decoding included.
BUDGET_US: Final = 15.0
#: Ten times the chunks may take this many times as long.
RATIO_MAX: Final = 12.0
#: The reference response: parallel calls that grow in turn, by pieces of the usual size.
CALLS, PIECES = 4, ["ORDER-1001, "] * 500


class Cost(NamedTuple):
    """Microseconds for one chunk."""

    least_us: float
    median_us: float


def measured(run: Callable[[], None], chunks: int, runs: int) -> Cost:
    """What one of `chunks` costs when `run` goes over all of them."""
    costs: list[float] = []
    for _ in range(runs):
        gc.collect()
        began_ns = time.process_time_ns()
        run()
        costs.append((time.process_time_ns() - began_ns) / 1_000 / chunks)
    return Cost(min(costs), statistics.median(costs))


def from_chunks(dialect: str, chunks: Sequence[Chunk]) -> Callable[[], None]:
    """Decoded chunks, as an SDK gives them."""

    def run() -> None:
        of = _stream(dialect)
        for chunk in chunks:
            of.observe(chunk)
        of.end()

    return run


def from_bytes(dialect: str, pieces: Sequence[bytes]) -> Callable[[], None]:
    """The bytes of the wire, one event at a time."""

    def run() -> None:
        of = _stream(dialect)
        for piece in pieces:
            of.observe_bytes(piece)
        of.end()

    return run


def _stream(dialect: str) -> ResponseStream:
    return ResponseStream(dialect, tenant="bench", request_id="req_0001")


def ratio(dialect: str, runs: int) -> float:
    """How many times as long 10,000 pieces of one character take as 1,000 do."""
    costs: list[float] = []
    for count in (1_000, 10_000):
        pieces = list(lines(long_response(dialect, 1, ["a"] * count)))
        costs.append(measured(from_bytes(dialect, pieces), 1, runs).least_us)
    return costs[1] / costs[0]


def main() -> int:
    """Print a line for each dialect; exit code 1 when one is over its budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dialects", nargs="*", default=list(DIALECTS))
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    say(f"us a chunk, least (median) of {args.runs}; budget {BUDGET_US:g} us, ratio {RATIO_MAX:g}")
    say(f"{'':18}{'decoded chunks':>18}{'bytes':>18}{'10,000 : 1,000':>18}")
    is_within = True
    for dialect in args.dialects:
        chunks = list(long_response(dialect, CALLS, PIECES))
        pieces = list(lines(chunks))
        decoded = measured(from_chunks(dialect, chunks), len(chunks), args.runs)
        wire = measured(from_bytes(dialect, pieces), len(chunks), args.runs)
        growth = ratio(dialect, args.runs)
        is_within = is_within and wire.least_us <= BUDGET_US and growth <= RATIO_MAX
        say(f"{dialect:18}{_cell(decoded):>18}{_cell(wire):>18}{growth:>18.1f}")
    say("within the budget" if is_within else "over the budget")
    return 0 if is_within else 1


def _cell(cost: Cost) -> str:
    return f"{cost.least_us:.1f} ({cost.median_us:.1f})"


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
