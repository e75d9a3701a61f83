"""Download the broker's jars with jgo; run as a program of its own, because jgo prints as it likes.

Usage: python resolve_jars.py FOLDER ENDPOINT; the jars are then in the Maven folder `$M2_REPO`.
"""

import sys
from pathlib import Path

import jgo


def resolve(folder: Path, endpoint: str) -> int:
    """Resolve `endpoint` and its dependencies; the number of jars."""
    return len(list(jgo.build(endpoint, cache_dir=folder).all_jars))


if __name__ == "__main__":
    sys.exit(0 if resolve(Path(sys.argv[1]), sys.argv[2]) else 1)
