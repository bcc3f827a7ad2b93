"""System-managed device memory: what lies on a device, what is pinned, and what makes room. No device, no clock.

A request's constants stay when it ends and may serve the next; the rest of its memory is its own and is freed with it.
Room is made once, before anything is loaded. What a request under way uses is pinned, and never evicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.kaas.errors import DeviceMemoryError
from fairlead.kaas.lists import TwoLists

BLOCK = 256  # bytes: every buffer takes whole blocks


class Key(NamedTuple):
    """What a cached buffer is known by. The tenant is part of it: nothing is shared between tenants."""

    tenant: str
    key: str
    offset: int
    size: int


@dataclass(slots=True)
class _Resident:
    size: int
    pins: int = 0
    uses: int = 0
    is_ahead: bool = False  # it was loaded before the request that it is for


@dataclass(frozen=True)
class Plan:
    """The memory of one request: what is there, what must be loaded, and what must be freed before that.

    Of what is there, `ahead` buffers were loaded for this very request: they are no hits.
    """

    hits: tuple[Key, ...]
    misses: tuple[Key, ...]
    evicted: tuple[Key, ...]
    own: int  # bytes that are freed with the request
    capacity_misses: int = 0
    ahead: int = 0

    @property
    def keys(self) -> tuple[Key, ...]:
        """Every cached buffer that it uses."""
        return self.hits + self.misses


@dataclass
class Memory:
    """The books of one device's memory, of `capacity` bytes."""

    capacity: int
    used: int = 0  # bytes of all that lies there
    pinned: int = 0  # bytes of those that requests under way use
    peak: int = 0
    evictions: int = 0
    _resident: dict[Key, _Resident] = field(default_factory=dict)
    _idle: TwoLists[Key, _Resident] = field(default_factory=TwoLists)
    _evicted: set[Key] = field(default_factory=set)

    def plan(self, constants: Sequence[Key], own_sizes: Sequence[int], *, is_load: bool = False) -> Plan | None:
        """Pin what a request needs and make room for it; None if that must wait for a request under way.

        With `is_load` the request comes later: its constants are loaded ahead of it. Both together count as one use.
        DeviceMemoryError if it would not fit on an empty device.
        """
        keys = list(dict.fromkeys(constants))
        own = sum(map(blocks, own_sizes))
        whole = own + sum(blocks(key.size) for key in keys)
        if whole > self.capacity:
            raise DeviceMemoryError(f"The request needs {whole} bytes of device memory; the cap is {self.capacity}.")
        resident = self._resident
        fresh = own + sum(blocks(k.size) for k in keys if k not in resident or not resident[k].pins)
        if self.pinned + fresh > self.capacity:
            return None
        hits = tuple(key for key in keys if key in resident)
        misses = tuple(key for key in keys if key not in resident)
        ahead = 0
        for key in hits:
            self._pin(key, is_use=not is_load)
            if not is_load:
                ahead += resident[key].is_ahead
                resident[key].is_ahead = False
        needed = own + sum(blocks(key.size) for key in misses)
        evicted = self._make_room(needed)
        again = sum(key in self._evicted for key in misses)
        for key in misses:
            resident[key] = _Resident(blocks(key.size), is_ahead=is_load)
            self.used += blocks(key.size)
            self._pin(key, is_new=True, is_use=not is_load)
        self.used += own
        self.pinned += own
        self.peak = max(self.peak, self.used)
        return Plan(hits, misses, evicted, own, again, ahead)

    def release(self, plan: Plan, *, failed: bool = False) -> tuple[Key, ...]:
        """Take a request's memory back. What must be freed on the device: after a failure to load, what was missing."""
        self.used -= plan.own
        self.pinned -= plan.own
        for key in plan.keys:
            found = self._resident[key]
            found.pins -= 1
            if not found.pins:
                self.pinned -= found.size
                self._idle.put(key, found, found.uses)
        if not failed:
            return ()
        gone = tuple(key for key in plan.misses if not self._resident[key].pins)
        for key in gone:
            self._free(key)
        return gone

    def forget(self, tenant: str) -> tuple[Key, ...]:
        """Free what a tenant has there and no request uses; gives what must be freed on the device."""
        gone = tuple(key for key, found in self._resident.items() if key.tenant == tenant and not found.pins)
        for key in gone:
            self._free(key)
        self._evicted = {key for key in self._evicted if key.tenant != tenant}
        return gone

    def residents(self) -> dict[Key, int]:
        """Every cached buffer and its bytes, in blocks."""
        return {key: found.size for key, found in self._resident.items()}

    def _pin(self, key: Key, *, is_new: bool = False, is_use: bool = True) -> None:
        found = self._resident[key]
        if not found.pins:
            if not is_new:
                self._idle.take(key, found.uses)
            self.pinned += found.size
        found.pins += 1
        found.uses += is_use

    def _make_room(self, needed: int) -> tuple[Key, ...]:
        evicted = []
        while self.used + needed > self.capacity:
            key = self._idle.first()
            assert key is not None, "what is pinned was counted before"
            self._free(key)
            if len(self._evicted) < _MOST_REMEMBERED:
                self._evicted.add(key)
            evicted.append(key)
        self.evictions += len(evicted)
        return tuple(evicted)

    def _free(self, key: Key) -> None:
        found = self._resident.pop(key)
        self._idle.take(key, found.uses)
        self.used -= found.size


_MOST_REMEMBERED = 100_000  # evicted keys, to tell the two kinds of misses apart; later ones count as compulsory


def blocks(size: int) -> int:
    """A size in bytes, rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK
