"""A prediction cache: what a function gave for an input, kept for the next equal input, least recently used out first.

An entry is a value with what the instance said of it. The cache owns its values: small ones are bytes in the memory of
the gateway, large ones are links of its own to files in shared memory, which it releases when it lets an entry go.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from fairlead.engine.live.status import CacheStatus
from fairlead.engine.live.values import Value

ENTRY_BYTES = 400
"""What an entry takes besides its value: its key, and its places in tables. Counted, so that empty answers count."""

Key = tuple[str, bytes]  # which answers are comparable, and the digest of the input


class Entry(msgspec.Struct, frozen=True):
    """An answer: its value, the label of the arm that it chose, the number of its items, and its size with all."""

    value: Value
    arm: str | None
    items: int
    size_bytes: int


class Cache:
    """The answers of one function.

    Args:
        max_entries: How many it holds at most.
        max_bytes: What they take at most, keys included. An answer that is larger by itself is not kept.
        release: Takes every value that is let go.
    """

    def __init__(self, max_entries: int, max_bytes: int, release: Callable[[Value], None]) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._release = release
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._bytes = 0
        self.hits = self.misses = self.joined = self.skipped = self.evictions = 0

    def find(self, key: Key) -> Entry | None:
        """The answer of this key, which is now the most recently used."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def fits(self, value_bytes: int) -> bool:
        """Whether a value of this size can be kept at all."""
        return value_bytes + ENTRY_BYTES <= self._max_bytes

    def keep(self, key: Key, entry: Entry) -> None:
        """Keep an answer in place of a former one of the same key, and let go of the least recently used beyond."""
        self.drop(key)
        self._entries[key] = entry
        self._bytes += entry.size_bytes
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self.drop(next(iter(self._entries)))
            self.evictions += 1

    def drop(self, key: Key) -> None:
        """Let go of the answer of this key, if there is one."""
        found = self._entries.pop(key, None)
        if found is not None:
            self._bytes -= found.size_bytes
            self._release(found.value)

    def clear(self) -> None:
        """Let go of everything."""
        for key in list(self._entries):
            self.drop(key)

    def status(self) -> CacheStatus:
        """What it holds, and what it was asked for."""
        return CacheStatus(
            entries=len(self._entries),
            max_entries=self._max_entries,
            bytes=self._bytes,
            max_bytes=self._max_bytes,
            hits=self.hits,
            misses=self.misses,
            joined=self.joined,
            skipped=self.skipped,
            evictions=self.evictions,
        )
