"""What must exist, by the place of the record that decided it: an index on disk, not in memory.

Rules:
    One record of the events topic decides at most one output, so its place names the output.
    An output is kept as digests, never as content: 16 bytes of key and value, 8 of the headers.
    On disk an output takes about 40 bytes; memory is the page cache of 32 MiB, whatever the size.
"""

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from processor.codec.headers import Headers
from processor.core._record import record

DIGEST_BYTES: Final = 16
HEADERS_DIGEST_BYTES: Final = 8
CACHE_KIB: Final = 32 * 1024
_OFFSET_BITS: Final = 44

_SEEN: Final = 1
_UNSURE: Final = 2
_RETIRED: Final = 4


class Place(NamedTuple):
    """One record of the events topic."""

    partition: int
    offset: int


@record
class Output:
    """One expected output. `kind` is the number of its topic.

    `is_retired`: retention may have deleted it. `is_unsure`: a call of before may explain it.
    """

    place: Place
    kind: int
    digest: bytes
    is_unsure: bool
    is_retired: bool
    is_seen: bool = False


def digest_of(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """24 bytes that stand for a record: 16 for key and value, 8 for the headers in order."""
    parts = blake2b(digest_size=DIGEST_BYTES)
    for part in (key, value):
        parts.update(b"\0" if part is None else b"\1" + len(part).to_bytes(8, "big") + part)
    heads = blake2b(digest_size=HEADERS_DIGEST_BYTES)
    for name, text in headers:
        data = text.encode() if isinstance(text, str) else text or b""
        heads.update(f"{len(name)}:{name}:{len(data)}:".encode() + data)
    return parts.digest() + heads.digest()


class ExpectedIndex:
    """The expected outputs of a verification. Use as a context manager; the file goes at its end.

    `folder` is where the file lies; by default the system's folder for temporary files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="toolcalls-verify-", dir=folder)
        self.path = Path(self._folder.name) / "expected.sqlite"
        self._db = sqlite3.connect(self.path, isolation_level=None)
        for pragma in (
            "journal_mode=OFF",
            "synchronous=OFF",
            "locking_mode=EXCLUSIVE",
            f"cache_size=-{CACHE_KIB}",
        ):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute(
            "CREATE TABLE expected (place INTEGER PRIMARY KEY, kind INTEGER NOT NULL,"
            " flags INTEGER NOT NULL, digest BLOB NOT NULL)"
        )
        self._db.execute(
            "CREATE TABLE beyond (place INTEGER NOT NULL, kind INTEGER NOT NULL,"
            " topic_partition INTEGER NOT NULL, topic_offset INTEGER NOT NULL, key BLOB)"
        )
        self._db.execute("BEGIN")
        self.count = 0

    def __enter__(self) -> "ExpectedIndex":
        return self

    def __exit__(self, *exception: object) -> None:
        self._db.close()
        self._folder.cleanup()

    def add(self, outputs: Sequence[Output]) -> None:
        """Keep outputs; each place once. Cost: 2 µs each."""
        self.count += len(outputs)
        self._db.executemany(
            "INSERT INTO expected VALUES (?, ?, ?, ?)",
            [
                (
                    _number(o.place),
                    o.kind,
                    _UNSURE * o.is_unsure | _RETIRED * o.is_retired,
                    o.digest,
                )
                for o in outputs
            ],
        )

    def find(self, place: Place) -> Output | None:
        """The output that the record at `place` decided, if any. Cost: 4 µs."""
        row = self._db.execute(
            "SELECT place, kind, flags, digest FROM expected WHERE place = ?", (_number(place),)
        ).fetchone()
        return None if row is None else _output(row)

    def mark_seen(self, place: Place) -> None:
        """Note that a record of this output was found. Cost: 3 µs."""
        self._db.execute(
            "UPDATE expected SET flags = flags | ? WHERE place = ?", (_SEEN, _number(place))
        )

    def unseen(self) -> Iterator[Output]:
        """The outputs that nobody found, by place."""
        rows = self._db.execute(
            "SELECT place, kind, flags, digest FROM expected WHERE flags & ? = 0 ORDER BY place",
            (_SEEN,),
        )
        for row in rows:
            yield _output(row)

    def add_beyond(self, place: Place, kind: int, found_at: Place, key: bytes | None) -> None:
        """Keep a record that names a place which was not decided yet when reading began."""
        self._db.execute(
            "INSERT INTO beyond VALUES (?, ?, ?, ?, ?)", (_number(place), kind, *found_at, key)
        )

    def beyond(self) -> Iterator[tuple[Place, int, Place, bytes | None]]:
        """The records kept by `add_beyond`."""
        for number, kind, partition, offset, key in self._db.execute("SELECT * FROM beyond"):
            yield _place(number), kind, Place(partition, offset), key

    def bytes_on_disk(self) -> int:
        """Size of the index. Writes out what is still in the cache."""
        self._db.execute("COMMIT")
        self._db.execute("BEGIN")
        return self.path.stat().st_size


def _number(place: Place) -> int:
    return place.partition << _OFFSET_BITS | place.offset


def _place(number: int) -> Place:
    return Place(number >> _OFFSET_BITS, number & (1 << _OFFSET_BITS) - 1)


def _output(row: tuple[int, int, int, bytes]) -> Output:
    number, kind, flags, digest = row
    return Output(
        _place(number),
        kind,
        digest,
        is_unsure=bool(flags & _UNSURE),
        is_retired=bool(flags & _RETIRED),
        is_seen=bool(flags & _SEEN),
    )
