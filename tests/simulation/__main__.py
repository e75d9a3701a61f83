"""`python -m tests.simulation [--seed N] [--runs N]`: look for a schedule that breaks a promise.

With a seed that schedule alone is run, and printed whether it fails or not.
"""

import argparse
import secrets
import sys
import time

from tests.simulation.run import simulate
from tests.simulation.schedule import draw
from tests.simulation.search import search, shortest

EVERY = 500


def main() -> int:
    """Run, print, and say by the exit code whether a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="run this one schedule")
    parser.add_argument("--runs", type=int, default=2_000, help="run so many, from a drawn seed on")
    parser.add_argument("--first", type=int, help="first seed of the runs")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return run_one(arguments.seed)
    first = secrets.randbelow(1 << 40) if arguments.first is None else arguments.first
    return run_many(first, arguments.runs)


def run_one(seed: int) -> int:
    """One schedule in full, then as short as it can be made when it fails."""
    schedule = draw(seed)
    say(str(schedule))
    result = simulate(schedule)
    say(f"ended: {dict(result.endings)}, faults: {dict(result.fired)}, turns: {result.turns}")
    if result.failure is None:
        say("held: nothing lost, nothing doubled, nothing invented, nothing left open")
        return 0
    say(f"FAILED: {result.failure}\n\nthe shortest way to it:")
    say(str(shortest(schedule, result.failure)))
    return 1


def run_many(first: int, runs: int) -> int:
    """Seed after seed, with a line now and then."""
    say(f"seeds {first} to {first + runs - 1}")
    began_s = time.monotonic()
    done = 0
    while done < runs:
        size = min(EVERY, runs - done)
        seen = search(range(first + done, first + done + size))
        done += seen.runs
        minutes = (time.monotonic() - began_s) / 60
        say(
            f"{done} schedules, {done / minutes:,.0f} a minute;"
            f" of the last {seen.runs}: {dict(seen.endings)}, {dict(seen.fired)}"
        )
        if seen.failing is not None:
            say(f"FAILED: {seen.failing}")
            return 1
    return 0


def say(text: str) -> None:
    """One line on standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
