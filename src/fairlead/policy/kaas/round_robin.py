"""Requests to devices in strict rotation.

A. Ramkumar, "Making the Most of Serverless Accelerators" (UCB/EECS-2022-88, 2022), section 6.1, "Round Robin".

**Differs from the paper:** its devices are alike and its models run on any. Here a function rotates over the devices
that can ever hold it, and functions that share these share the rotation. A device that is down, or that cannot take the
function although nothing runs on its node (the function is scaled elsewhere, the node is draining), is passed over:
there is nothing to wait for. What no device that is up can hold does not block those behind it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.kaas.devices import Devices, Free, Mode, Spot
from fairlead.policy.kit.lines import oldest_first


@dataclass
class RoundRobin(Policy):
    """Start the oldest on the next device of the cycle, and block until that one is free.

    Args:
        mode: `compat` is the paper's rule, which needs no knowledge of the future: the same as `online`.
    """

    paper: ClassVar[str] = "Serverless accelerators (UCB 2022), 6.1"

    mode: Mode = "online"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._devices = Devices(site)
        self._known = list(self._devices.declared)
        self._cycles: dict[str, tuple[Spot, ...]] = {}  # by function: the devices that can hold it
        self._next: dict[tuple[Spot, ...], int] = {}  # by cycle: position of the next device

    def decide(self, view: View) -> Iterator[Action]:
        up = set(self._devices.up(view))
        if not up.issubset(self._known):
            self._known += sorted(up.difference(self._known), key=str)  # nodes that joined
            self._cycles.clear()
        unheld: set[str] = set()
        for invocation in oldest_first(view, unheld):
            cycle = self._cycle(invocation.function)
            if up.isdisjoint(cycle):
                unheld.add(invocation.function)
                continue
            found = self._turn(view, invocation.function, cycle, up)
            if found is None:
                return  # the head of the line blocks all
            free, position = found
            yield free.start(invocation)
            self._next[cycle] = (position + 1) % len(cycle)

    def _cycle(self, function: str) -> tuple[Spot, ...]:
        if function not in self._cycles:
            able = (spot for spot in self._known if self._devices.configuration(function, spot) is not None)
            self._cycles[function] = tuple(able)
        return self._cycles[function]

    def _turn(self, view: View, function: str, cycle: tuple[Spot, ...], up: set[Spot]) -> tuple[Free, int] | None:
        """The device whose turn it is, with its position; None while it has to be waited for."""
        first = self._next.get(cycle, 0)
        for offset in range(len(cycle)):
            position = (first + offset) % len(cycle)
            spot = cycle[position]
            if spot not in up:
                continue
            free = self._devices.first_free(view, function, (spot,))
            if free is not None:
                return free, position
            if view.finishes(spot.node):
                return None
        return None
