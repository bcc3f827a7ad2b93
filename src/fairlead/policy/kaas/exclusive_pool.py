"""Each client on workers of its own, which are killed when another client needs the device.

N. Pemberton et al., "Kernel-as-a-Service: A Serverless Interface to GPUs" (arXiv 2212.08146, 2022): the policy
"Exclusive" of its worker pool, which stands for actors that own a GPU each. The rules come from a description of the
authors' code; the paper's text was not at hand.

**Differs from the paper:**

* A worker is a device that a client owns, and what runs there are instances of the client's functions. To kill it is to
  retire them, so both sides pay for their next start there: the thief at once, the victim when it comes back. It is
  meant for processes: the buffers of kernels stay where they are.
* There a worker runs one request at a time. Here a device takes as many of its owner's invocations as fit; with
  configurations of a whole device that is the same.
* Workers are counted among the devices that could hold what waits. There devices are alike.
* Which worker of the victim is taken is not known: here an idle one if there is any, the one released first; else the
  one that becomes free when its jobs end, which gets no new ones until then.
* A device is taken for each invocation that waits and has none on its way, clients in the order of their oldest.
* A client asks for a device only if what waits could start there now, or once what runs there has ended.
* The workers of a lost node are gone.
* vCPUs have no owner: what no accelerator can hold starts on any node with room, the oldest first, and kills nothing.
  There all functions need a GPU; a process that needs none can stay beside those of other clients.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model import Invocation
from fairlead.policy.base import Action, Policy, Retire, Site, View
from fairlead.policy.kaas.devices import Devices, Free, Spot, heads, instances_on


@dataclass
class ExclusivePool(Policy):
    """Start the oldest of each client on its own workers; a client without one takes from the client with most."""

    paper: ClassVar[str] = "KaaS (Pemberton et al. 2022)"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._devices = Devices(site)
        self._functions = {name: workflow.functions for name, workflow in site.workflows.items()}
        self._rank = {name: i for i, name in enumerate(site.workflows)}
        self._owner: dict[Spot, str] = {}
        self._heir: dict[Spot, str] = {}  # who gets an owned device when what runs there has ended
        self._robbed = dict.fromkeys(site.workflows, 0)  # number of the last robbery of each client
        self._robberies = 0
        self._killed: set[int] = set()

    def decide(self, view: View) -> Iterator[Action]:
        up = self._devices.up(view)
        self._forget_lost(up)
        while True:
            yield from self._hand_over(view)
            found = self._next(view, up)
            if found is not None:
                free, head = found
                yield free.start(head)
                if view.is_waiting(head):
                    return  # it was not carried out
            elif not self._acquire(view, up):
                return

    def _forget_lost(self, up: list[Spot]) -> None:
        for held in (self._owner, self._heir):
            for spot in set(held).difference(up):
                del held[spot]

    def _hand_over(self, view: View) -> Iterator[Action]:
        """Kill the workers that were taken and run nothing any more."""
        for spot, heir in list(self._heir.items()):
            if self._is_busy(view, spot):
                continue
            for instance in instances_on(view, self._functions[self._owner[spot]], spot):
                if instance.id not in self._killed:  # a replica cannot be: its scaler keeps it
                    self._killed.add(instance.id)
                    yield Retire(instance.id)
            self._owner[spot] = heir
            del self._heir[spot]

    def _next(self, view: View, up: list[Spot]) -> tuple[Free, Invocation] | None:
        """The oldest that can start on a device of its client or on vCPUs, and where.

        Nothing overtakes within a client, nor on the vCPUs of a node.
        """
        closed: set[tuple[str, Spot]] = set()  # by client, or "" for vCPUs
        for head in heads(view):
            own = [
                spot
                for spot in self._able(head.function, up)
                if spot.device is None or (self._owner.get(spot) == head.workflow and spot not in self._heir)
            ]
            lines = [("" if spot.device is None else head.workflow, spot) for spot in own]
            free = self._devices.first_free(view, head.function, [line[1] for line in lines if line not in closed])
            if free is not None:
                return free, head
            closed.update(lines)
        return None

    def _able(self, function: str, up: list[Spot]) -> list[Spot]:
        """The devices that could hold a function; vCPUs only where no accelerator can."""
        able = [spot for spot in up if self._devices.configuration(function, spot) is not None]
        return [spot for spot in able if spot.device is not None] or able

    def _acquire(self, view: View, up: list[Spot]) -> bool:
        """Get a device for the oldest that waits in vain, or see to it that one is on its way; False if none can be."""
        claimed: dict[str, set[Spot]] = {}  # what an older one of the same client waits for
        for head in heads(view):
            taken = claimed.setdefault(head.workflow, set())
            able = [spot for spot in self._able(head.function, up) if spot.device is not None and spot not in taken]
            taken.update(able)
            coming = sum(self._heir.get(spot) == head.workflow for spot in able)
            if view.waiting(head.workflow, head.function) > coming and (
                self._spawn(view, head, able) or self._take(view, head, able)
            ):
                return True
        return False

    def _spawn(self, view: View, head: Invocation, able: list[Spot]) -> bool:
        """A worker on a device that nobody owns."""
        free = self._devices.first_free(view, head.function, (spot for spot in able if spot not in self._owner))
        if free is not None:
            self._owner[free.spot] = head.workflow
        return free is not None

    def _take(self, view: View, head: Invocation, able: list[Spot]) -> bool:
        """A worker of the client that has most, if that leaves it no worse off than the one who takes."""
        client = head.workflow
        workers = Counter(self._heir.get(spot, self._owner[spot]) for spot in able if spot in self._owner)
        idle, busy = [], []
        for spot in able:
            if spot in self._owner and spot not in self._heir and self._owner[spot] != client:
                if self._is_busy(view, spot):
                    busy.append(spot)
                elif self._devices.first_free(view, head.function, (spot,)) is not None:
                    idle.append(spot)
        victims = {self._owner[spot] for spot in (*idle, *busy)}
        if not victims:
            return False
        victim = min(victims, key=lambda other: (-workers[other], self._robbed[other], self._rank[other]))
        if workers[client] and workers[client] + 1 >= workers[victim]:
            return False
        self._heir[next(spot for spot in (*idle, *busy) if self._owner[spot] == victim)] = client
        self._robberies += 1
        self._robbed[victim] = self._robberies
        return True

    def _is_busy(self, view: View, spot: Spot) -> bool:
        """Whether anything of a device's owner runs or starts there."""
        return any(not i.is_idle for i in instances_on(view, self._functions[self._owner[spot]], spot))
