"""Each client on devices of its own, which a fuller queue may steal.

A. Ramkumar, "Making the Most of Serverless Accelerators" (UCB/EECS-2022-88, 2022), section 6.1, "Exclusive".

**Differs from the paper:**

* It says that shares follow (request rate x time per request), not how. Here devices are split evenly, in order of
  declaration, and then only stealing moves them.
* It says that a queue which is 150 % as full as another steals a device "from that queue"; we take it from the emptier
  one. What "full" means is left open: here the expected time of all that waits, compared with that of the device's
  owners or of one job of the thief, whichever is more, so that a single request never robs an empty queue.
* Only a free device is taken, at the latest when its job ends (as the paper's trace requires), never the last one on
  which its owner could run what waits, and at most one per instant.
* With more clients than devices it kills executors to make room; here clients then share a device, oldest first.
* A client with work and no device that can hold it (its nodes were lost, or its last device was stolen while it had no
  work) takes a free one from a client that can spare it, or shares one if nobody can.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from fairlead.model import Invocation
from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.kaas.devices import Devices, Free, Mode, Spot, heads

Waiting = dict[str, dict[str, int]]  # by client and function: how many invocations wait


@dataclass
class Exclusive(Policy):
    """Start the oldest of each client on the client's own devices.

    Args:
        mode: `compat` is the rule that the paper's trace implies, which needs no knowledge of the future: the same as
            `online`.
        stealing: Whether devices change hands at all while every client has one.
        steal_factor: How many times as much work as at the owners of a device must wait at a client for it to
            steal the device; at least 1. Low values let devices go back and forth, high ones let them idle.
    """

    paper: ClassVar[str] = "Serverless accelerators (UCB 2022), 6.1"

    mode: Mode = "online"
    stealing: bool = True
    steal_factor: float = 1.5

    def __post_init__(self) -> None:
        if not 1 <= self.steal_factor < inf:
            raise ValueError(f"steal_factor must be at least 1 and finite; got {self.steal_factor}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._devices = Devices(site)
        self._functions = {name: workflow.functions for name, workflow in site.workflows.items()}
        self._owners: dict[Spot, list[str]] = {spot: [] for spot in self._devices.declared}
        self._compared = -inf  # when queues were last compared
        accelerators = [spot for spot in self._owners if spot.device is not None]
        hosts = [spot for spot in self._owners if spot.device is None]
        for group in (accelerators, hosts):
            clients = [c for c, fs in self._functions.items() if any(self._devices.can_hold(f, group) for f in fs)]
            for spot, client in even_split(group, clients):
                self._owners[spot].append(client)

    def decide(self, view: View) -> Iterator[Action]:
        up = self._devices.up(view)
        self._deal(up)
        self._house_all(view, up)
        if self.stealing and len(up) > 1 and view.now > self._compared:
            self._compared = view.now
            self._steal(view, up, _waiting(view))
        while (found := self._next(view, up)) is not None:
            free, head = found
            yield free.start(head)
            if view.is_waiting(head):
                return  # it was not carried out
            self._house_all(view, up)  # what has started may leave its client a device to spare

    def _next(self, view: View, up: list[Spot]) -> tuple[Free, Invocation] | None:
        """The oldest that can start on a device of its client, and where."""
        for head in heads(view):
            free = self._devices.first_free(view, head.function, self._own(head.workflow, up))
            if free is not None:
                return free, head
        return None

    def _own(self, client: str, up: list[Spot]) -> list[Spot]:
        return [spot for spot in up if client in self._owners[spot]]

    def _deal(self, up: list[Spot]) -> None:
        """Give the devices of nodes that joined to the clients that have fewest."""
        for spot in up:
            if spot not in self._owners:
                users = [c for c, fs in self._functions.items() if any(self._devices.can_hold(f, (spot,)) for f in fs)]
                self._owners[spot] = [min(users, key=lambda client: len(self._own_known(client)))] if users else []

    def _own_known(self, client: str) -> list[Spot]:
        return [spot for spot, owners in self._owners.items() if client in owners]

    def _can_spare(self, spot: Spot, up: list[Spot], waiting: Waiting) -> bool:
        """Whether each owner of a device keeps another for everything that waits for it."""
        return all(
            self._devices.can_hold(function, [other for other in self._own(owner, up) if other != spot])
            for owner in self._owners[spot]
            for function in waiting.get(owner, ())
            if self._devices.can_hold(function, (spot,))
        )

    def _house_all(self, view: View, up: list[Spot]) -> None:
        """Find a device for every client that has none for a function that waits, as far as that is possible now."""
        waiting = _waiting(view)
        has_changed = True
        while has_changed:  # what one is given may decide what another can have
            has_changed = False
            for client, functions in waiting.items():
                for function in functions:
                    if not self._devices.can_hold(function, self._own(client, up)):
                        has_changed |= self._house(view, client, function, up, waiting)

    def _house(self, view: View, client: str, function: str, up: list[Spot], waiting: Waiting) -> bool:
        """Give a client a device for this function. False if there is none, or none of those to spare is free yet."""
        able = [spot for spot in up if self._devices.can_hold(function, (spot,))]
        spare = [spot for spot in able if self._can_spare(spot, up, waiting)]
        if spare:
            free = self._devices.first_free(view, function, spare)
            if free is None:
                return False
            self._owners[free.spot] = [client]
        elif able:
            self._owners[min(able, key=lambda spot: len(self._owners[spot]))].append(client)
        return bool(able)

    def _steal(self, view: View, up: list[Spot], waiting: Waiting) -> None:
        """Move at most one device: to the fullest queue that can take one, from the emptiest that can lose one."""
        one_s = {f: self._devices.expected_s(view, f) for functions in waiting.values() for f in functions}
        work_s = {c: sum(count * one_s[f] for f, count in functions.items()) for c, functions in waiting.items()}

        def owners_work_s(spot: Spot) -> float:
            return sum(work_s.get(owner, 0.0) for owner in self._owners[spot])

        for thief in sorted(waiting, key=lambda client: -work_s[client]):
            own = set(self._own(thief, up))
            others = sorted((spot for spot in up if spot not in own), key=owners_work_s)
            for function, count in waiting[thief].items():
                if count <= sum(1 for _ in self._devices.free(view, function, own)):
                    continue
                for free in self._devices.free(view, function, others):
                    less_s = max(owners_work_s(free.spot), one_s[function])
                    if work_s[thief] >= self.steal_factor * less_s and self._can_spare(free.spot, up, waiting):
                        self._owners[free.spot] = [thief]
                        return


def _waiting(view: View) -> Waiting:
    waiting: Waiting = {}
    for client, function in view.queues():
        waiting.setdefault(client, {})[function] = view.waiting(client, function)
    return waiting


def even_split(spots: list[Spot], clients: list[str]) -> Iterator[tuple[Spot, str]]:
    """Pairs of device and owner: blocks of devices per client or, if there are more clients, of clients per device."""
    if spots and clients:
        for i in range(max(len(spots), len(clients))):
            if len(spots) >= len(clients):
                yield spots[i], clients[i * len(clients) // len(spots)]
            else:
                yield spots[i * len(spots) // len(clients)], clients[i]
