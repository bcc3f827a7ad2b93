"""Runs that slow each other down: on a node, and on the devices of a node.

Where functions are sensitive to their neighbours, or take turns on a device, the rate at which a batch consumes its
work changes whenever the state around it does. Each node keeps one virtual clock per (function, share), since those
have a rate in common: a batch ends when its clock has advanced by its work, so nothing is ever rescheduled one by one.
Where nobody is sensitive, and runs merely share the vCPUs of an overcommitted node, all go at one rate, on one clock.
"""

from bisect import insort
from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf

from fairlead.engine.core.capacity import milli
from fairlead.engine.core.effects import RunBatch
from fairlead.model import Cluster, Device, Node
from fairlead.profile import Profile, slowdown
from fairlead.profile.interference import contention, device_slowdown, turn_slowdown, under_pressure


def has_interference(cluster: Cluster, profiles: Mapping[str, Profile]) -> bool:
    """Whether anything in a run can slow anything else down."""
    sharings = {device.sharing for node in cluster.nodes for device in node.devices}
    return (
        any(profile.sensitivity or profile.pressure_curves for profile in profiles.values())
        or ("mps" in sharings and any(profile.gpu_sensitivity for profile in profiles.values()))
        or "time" in sharings
        or any(node.overcommit > 1 for node in cluster.nodes)
    )


_ONLY = ("", 0.0, -1, 0)  # the clock of a node on which all runs go at one rate


class _SharedDevice:
    """What runs on one device where that matters to the others there: how many batches, on how many vGPUs."""

    __slots__ = ("busy", "is_by_turns", "runs", "slice_overhead", "total")

    def __init__(self, device: Device) -> None:
        self.is_by_turns = device.sharing == "time"
        self.slice_overhead = device.slice_overhead
        self.total = milli(device.vgpus)
        self.busy = self.runs = 0

    def slowdown(self, own: int, gpu_sensitivity: float) -> float:
        """What the others cost a batch on so many thousandths of vGPUs."""
        if self.is_by_turns:
            return turn_slowdown(self.runs, self.slice_overhead)
        return device_slowdown(gpu_sensitivity, (self.busy - own) / self.total)


class _Clock:
    """Work done so far by every batch of one function and share, as if each had run from the beginning."""

    __slots__ = ("device", "heap", "index", "own_load", "profile", "rate", "vgpus", "virtual")

    def __init__(self, index: int, own_load: float, profile: Profile, device: _SharedDevice | None, vgpus: int) -> None:
        self.index = index
        self.own_load = own_load
        self.profile = profile
        self.device = device
        self.vgpus = vgpus
        self.virtual = 0.0
        self.rate = 0.0
        self.heap: list[tuple[float, int]] = []


class SharedNode:
    """A node on which batches slow each other down."""

    __slots__ = (
        "_active",
        "_busy",
        "_clocks",
        "_cores",
        "_devices",
        "_is_even",
        "_kind",
        "_last",
        "_load",
        "_of",
        "_profiles",
        "_vcpus",
        "pressure",
        "version",
    )

    def __init__(self, node: Node, profiles: Mapping[str, Profile]) -> None:
        self._profiles = profiles
        self._vcpus = node.vcpus or sum(device.vgpus for device in node.devices)
        is_felt = any(profile.gpu_sensitivity for profile in profiles.values())
        self._devices = {
            i: _SharedDevice(device)
            for i, device in enumerate(node.devices)
            if device.sharing == "time" or (device.sharing == "mps" and is_felt)
        }
        is_sensitive = any(profile.sensitivity or profile.pressure_curves for profile in profiles.values())
        self._is_even = not self._devices and not is_sensitive
        self._kind = node.kind
        self._cores = milli(node.vcpus) if node.overcommit > 1 else 0  # thousandths to be shared; 0 without
        self._busy = 0  # thousandths of vCPUs of all that runs
        self._clocks: dict[tuple[str, float, int, int], _Clock] = {}
        self._active: list[_Clock] = []  # those on which anything runs, in the order of their making
        self._of: dict[int, tuple[_Clock, int]] = {}  # by batch; with its thousandths of vCPUs
        self._last = 0.0
        self._load = 0.0
        self.pressure = 0.0
        self.version = 0  # changes with every change of rates, so that old predictions are known

    def begin(self, now: float, effect: RunBatch, work_s: float) -> None:
        """Let a batch start to consume its work."""
        passed_s = now - self._last
        self._advance(now)
        clock = self._clock(effect)
        if not clock.heap:
            clock.virtual = clock.rate * passed_s  # what it shows at first does not matter: only the advance counts
            insort(self._active, clock, key=_index)
        heappush(clock.heap, (clock.virtual + work_s, effect.batch))
        vcpus = milli(effect.configuration.vcpus)
        self._of[effect.batch] = clock, vcpus
        self._enter(clock, vcpus)
        self._set_rates()

    def end(self, now: float, batch: int) -> None:
        """Take a batch out before its end."""
        found = self._of.pop(batch, None)
        if found is not None:
            clock, vcpus = found
            self._advance(now)
            clock.heap = sorted(entry for entry in clock.heap if entry[1] != batch)
            self._leave(clock, vcpus)
            self._set_rates()

    def set_pressure(self, now: float, pressure: float) -> None:
        """Change the load from outside."""
        self._advance(now)
        self.pressure = pressure
        self._set_rates()

    def next_end(self) -> float:
        """When the next batch ends if nothing changes; infinity if none runs."""
        ends = [(clock.heap[0][0] - clock.virtual) / clock.rate for clock in self._active]
        return self._last + max(0.0, min(ends)) if ends else inf

    def due(self, now: float) -> list[int]:
        """The batches that end at this instant, which `next_end` gave."""
        self._advance(now)
        ended: list[int] = []
        for clock in self._active:
            while clock.heap and clock.heap[0][0] - clock.virtual <= 1e-12 * max(1.0, now):
                batch = heappop(clock.heap)[1]
                self._leave(*self._of.pop(batch))
                ended.append(batch)
        self._set_rates()
        return sorted(ended)

    def _clock(self, effect: RunBatch) -> _Clock:
        configuration = effect.configuration
        if self._is_even:
            if not self._clocks:
                self._clocks[_ONLY] = _Clock(0, 0.0, self._profiles[effect.function], None, 0)
            return self._clocks[_ONLY]
        share = configuration.vcpus or configuration.vgpus
        device = self._devices.get(effect.device)
        vgpus = 0 if device is None else milli(configuration.vgpus)
        key = (effect.function, share, -1 if device is None else effect.device, vgpus)
        clock = self._clocks.get(key)
        if clock is None:
            profile = self._profiles[effect.function]
            own = share / self._vcpus * profile.pressure
            clock = self._clocks[key] = _Clock(len(self._clocks), own, profile, device, vgpus)
        return clock

    def _enter(self, clock: _Clock, vcpus: int) -> None:
        self._busy += vcpus
        self._load += clock.own_load
        if clock.device is not None:
            clock.device.runs += 1
            clock.device.busy += clock.vgpus

    def _leave(self, clock: _Clock, vcpus: int) -> None:
        self._busy -= vcpus
        self._load -= clock.own_load
        if clock.device is not None:
            clock.device.runs -= 1
            clock.device.busy -= clock.vgpus

    def _advance(self, now: float) -> None:
        for clock in self._active:
            clock.virtual += clock.rate * (now - self._last)
        self._last = now

    def _set_rates(self) -> None:
        self.version += 1
        if not self._of:
            self._load = 0.0  # forget rounding
        self._active = [clock for clock in self._active if clock.heap]
        shared = contention(self._busy / self._cores, self.pressure) if self._cores else 1.0
        among_us = contention(self._busy / self._cores, 0.0) if self._cores else 1.0
        for clock in self._active:
            profile, device = clock.profile, clock.device
            curve = profile.pressure_curves.get(self._kind)
            outside = self.pressure if curve is None else 0.0
            factor = slowdown(profile.sensitivity, self._load - clock.own_load, outside)
            if curve is not None:  # all that pressure costs is in it
                factor *= under_pressure(curve, self.pressure)
            if device is not None:
                factor *= device.slowdown(clock.vgpus, profile.gpu_sensitivity)
            clock.rate = 1 / (factor * (shared if curve is None else among_us))


def _index(clock: _Clock) -> int:
    return clock.index
