"""Fair queueing between clients, with a price on leaving the devices where their models are warm.

N. Pemberton et al., "Kernel-as-a-Service: A Serverless Interface to GPUs" (arXiv 2212.08146, 2022): the scheduler of
its worker pool, modelled on the Completely Fair Scheduler of Linux.

**Differs from the paper:**

* There a device that becomes free looks for a client. When several are free, here the best pair of client and device
  is taken first, so that a lone request goes to a device where its model is warm.
* There the devices that are affine to a client are named when it registers. Here, unless `affine` is `home`, a device
  is affine if the function of the client's oldest request that fits there is warm on it now. At `home`, clients have
  one device each, dealt in turn.
* The virtual time of a client that returns is raised to the least of those that wait. The paper's reset also lowers it,
  from which a client gains that lets its queue run empty. Mode `compat` resets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np

from fairlead.model import Invocation
from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.kaas.devices import Devices, Free, Mode, Spot, heads

Affine = Literal["warm", "home"]


class Candidate(NamedTuple):
    """A client's oldest invocation that fits on a device, and its price there; the least is started."""

    price_s: float
    last_run: int
    client: int
    rank: int  # of the device, in free-list order
    head: Invocation
    free: Free


@dataclass
class Affinity(Policy):
    """Start the client that has had least device time, unless another's model is warm where it would load its own.

    Args:
        mode: `compat` also lowers the virtual time of a client that returns.
        penalty: Price of a device that is not affine, in runs of the client; not negative. At 0 the policy is fair and
            blind to locality.
        affine: `warm`: the devices where the model is warm now. `home`: one device per client, whatever lies there.
    """

    paper: ClassVar[str] = "KaaS (Pemberton et al. 2022)"

    mode: Mode = "online"
    penalty: float = 10.0
    affine: Affine = "warm"

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < inf:
            raise ValueError(f"penalty must be finite and not negative; got {self.penalty}.")
        if self.affine not in get_args(Affine):
            raise ValueError(f"affine must be 'warm' or 'home'; got {self.affine!r}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._devices = Devices(site)
        self._rank = {name: i for i, name in enumerate(site.workflows)}
        homes = [spot for spot in self._devices.declared if spot.device is not None]
        self._home = {name: homes[i % len(homes)] for name, i in self._rank.items()} if homes else {}
        self._virtual_s = dict.fromkeys(site.workflows, 0.0)
        self._last_run = dict.fromkeys(site.workflows, 0)
        self._runs = 0
        self._least_s = 0.0  # of those that wait; it never falls
        self._present: set[str] = set()  # the clients that waited after the last decision

    def decide(self, view: View) -> Iterator[Action]:
        up = self._devices.up(view)
        weight_s = {function: self._devices.expected_s(view, function) for _, function in view.queues()}
        self._welcome(view)
        while (best := self._best(view, up, weight_s)) is not None:
            client = best.head.workflow
            yield best.free.start(best.head)
            if view.is_waiting(best.head):
                return  # it was not carried out
            self._virtual_s[client] += weight_s[best.head.function]
            self._runs += 1
            self._last_run[client] = self._runs
        self._present = {client for client, _ in view.queues()}

    def _welcome(self, view: View) -> None:
        """Let clients that return begin with the least virtual time of those that waited all along."""
        waiting = {client for client, _ in view.queues()}
        stayed = waiting & self._present
        self._least_s = max(self._least_s, min((self._virtual_s[client] for client in stayed), default=0.0))
        for client in waiting - stayed:
            own_s = self._virtual_s[client]
            self._virtual_s[client] = self._least_s if self.mode == "compat" else max(own_s, self._least_s)
        self._present = waiting

    def _is_affine(self, view: View, head: Invocation, free: Free) -> bool:
        if self.affine == "home" and free.spot.device is not None:
            return free.spot == self._home[head.workflow]
        return view.is_warm(head.function, free.configuration, free.spot.node, free.spot.device)

    def _best(self, view: View, up: list[Spot], weight_s: dict[str, float]) -> Candidate | None:
        """The pair of client and device with the least price; ties go to the client that ran least recently."""
        taken: set[tuple[str, Spot]] = set()
        best: Candidate | None = None
        rank = {spot: i for i, spot in enumerate(up)}
        for head in heads(view):
            for free in self._devices.free(view, head.function, up):
                if (head.workflow, free.spot) in taken:
                    continue  # the client has an older one that fits here
                taken.add((head.workflow, free.spot))
                is_affine = self._is_affine(view, head, free)
                price_s = self._virtual_s[head.workflow] + (0 if is_affine else self.penalty * weight_s[head.function])
                candidate = Candidate(
                    price_s, self._last_run[head.workflow], self._rank[head.workflow], rank[free.spot], head, free
                )
                if best is None or candidate[:4] < best[:4]:
                    best = candidate
        return best
