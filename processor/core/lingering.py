"""Keys that are closed and still tracked for a while, by the log time of their last record."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

_NEVER_MS: Final = 1 << 62


class Lingering:
    """Closed keys, the longest silent one first. `due_ms` is when that one is to be forgotten."""

    __slots__ = ("_keys", "_linger_ms", "due_ms")

    def __init__(self, linger_ms: int) -> None:
        self._linger_ms = linger_ms
        self._keys: OrderedDict[bytes, int] = OrderedDict()
        self.due_ms = _NEVER_MS

    def adopt(self, linger_ms: int) -> None:
        """Another time counts from now on, also for keys that are closed already."""
        self._linger_ms = linger_ms
        self._plan()

    def touch(self, key: bytes, log_time_ms: int) -> None:
        """The key is closed, and this was the log time of its last record so far."""
        self._keys[key] = log_time_ms
        self._keys.move_to_end(key)
        self._plan()

    def merge(self, keys: Mapping[bytes, int]) -> None:
        """Take over keys that were closed at other times. Cost: sorts all."""
        if keys:
            merged = {**self._keys, **keys}
            self._keys = OrderedDict(sorted(merged.items(), key=lambda item: item[1]))
            self._plan()

    def take_due(self, log_time_ms: int) -> Iterator[bytes]:
        """The keys whose time is over, one by one; take them all."""
        keys, due_ms = self._keys, log_time_ms - self._linger_ms
        while keys:
            key, last_ms = next(iter(keys.items()))
            if last_ms > due_ms:
                break
            del keys[key]
            yield key
        self._plan()

    def _plan(self) -> None:
        self.due_ms = next(iter(self._keys.values())) + self._linger_ms if self._keys else _NEVER_MS
