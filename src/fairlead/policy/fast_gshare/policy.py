"""FaST-GShare: pods of the most throughput per resource, as many as the observed rate needs, packed onto GPUs.

J. Gu, Y. Zhu, P. Wang, M. Chadha, M. Gerndt: FaST-GShare: Enabling Efficient Spatio-Temporal GPU Sharing in Serverless
Computing for Deep Learning Inference, ICPP 2023: heuristic auto-scaling by the gap between observed and profiled
requests per second (RPS), and placement by maximal rectangles. Implemented from its authors' slides and public
controller, which the parameters are from; the paper itself was not available.

**Differs from the paper**, which knows neither workflows nor batches nor vCPUs (more in docs/policies/fast-gshare.md):

* A pod is of a workflow's function. A run may take the function's share of the SLO, in proportion to its average time.
* The space is batch x vCPUs x vGPUs: quota 1, SM share the vGPUs, and per resource means per price of vCPUs and vGPUs.
  Sizes for which another does as much with less are left out.
* Times are those that 95 % of runs keep, corrected by what was observed; there, profiled once.
* The observed rate also counts what waits, as if that came once more. That new pods are multiplied by the growth of
  the rate, as in a version of the public controller, is left out.
* Every function has one pod of the most efficient size from the first arrival on, and keeps one. If there was no room,
  it comes with its first invocation, in the place of an idle one.
* Where the size that the rule asks for finds no room, the most efficient that does is taken. Queues are given pods in
  turn. A pod goes to a warm instance that no other pod has, then to the kind of node where it is fastest, then by best
  area fit; the rule of the paper's selection is recalled, not read. One without a GPU avoids nodes that have some.
* A pod takes what waits when it is free, up to its batch, the most efficient free pod first; it never waits for more,
  and takes nothing before its instance is warm.
* A pod that is closed leaves its instance to the platform's keep-alive. Freed rectangles join at once.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import ClassVar

import numpy as np

from fairlead.model import Configuration
from fairlead.policy.base import Action, Changes, Policy, Site, Start, View, Wake, Warm
from fairlead.policy.fast_gshare.fleet import Fleet, Pod
from fairlead.policy.fast_gshare.sizing import Size, most_efficient, needed, sizes, superfluous, throughput, weight
from fairlead.policy.kit.arrivals import Arrivals
from fairlead.policy.kit.capacity import Place, milli
from fairlead.policy.kit.objectives import Queue, queue_objectives
from fairlead.policy.kit.options import Options, all_options


class _Flow:
    """One queue: how long a run may take, what sizes that leaves, the idle pods, and what came since the last tick."""

    __slots__ = ("arrivals", "idle", "limit_s", "sizes")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.sizes: list[Size] = []
        self.idle: list[Pod] = []  # the most efficient first
        self.arrivals = Arrivals()


@dataclass
class FastGshare(Policy):
    """Open the pods that the observed rate needs, by throughput per resource; each takes what waits when it is free.

    Args:
        tick_s: How often pods are opened and closed, in seconds; positive.
        window_s: Over how long the rate is taken, in seconds; positive.
        threshold: How far rate and capacity may be apart before anything is done, as a share of capacity; not negative.
    """

    paper: ClassVar[str] = "FaST-GShare, ICPP 2023"

    tick_s: float = 2.0
    window_s: float = 10.0
    threshold: float = 0.2

    def __post_init__(self) -> None:
        for name in ("tick_s", "window_s"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be positive and finite; got {getattr(self, name)}.")
        if not 0 <= self.threshold < inf:
            raise ValueError(f"threshold must be finite and not negative; got {self.threshold}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._site = site
        self._profiles = site.profiles
        self._fleet = Fleet(site.cluster.nodes)
        self._flows = {queue: _Flow(limit_s) for queue, limit_s in queue_objectives(site).items()}
        self._running: dict[int, Pod] = {}  # by the first invocation of the batch
        self._ready_at: dict[Place, float] = {}  # when the last instance that was warmed there is ready
        self._is_deployed = False
        self._due, self._wake_at = inf, -inf
        self._learn(all_options(site))

    def decide(self, view: View) -> Iterator[Action]:
        self._follow(view.changes)
        if not self._is_deployed:
            yield from self._deploy(view)
        if view.now >= self._due:
            yield from self._tick(view)
        for queue in view.queues():
            yield from self._serve(view, queue)
        if self._wake_at <= view.now and view.oldest() is not None:
            self._wake_at = self._due
            yield Wake(self._due)  # what waits may need a pod that only a tick opens

    def _follow(self, changes: Changes) -> None:
        """Count what came, free the pods whose batches ended, and forget those on nodes that were lost."""
        for invocation in changes.ready:
            self._flows[invocation.workflow, invocation.function].arrivals.count += 1
        for record in changes.ended:
            pod = self._running.pop(record.invocation, None)
            if pod is not None:
                pod.is_busy = False
                pod.last_used = record.end
                if pod.is_closing:
                    self._fleet.close(pod)
                else:
                    self._rest(pod)
        for pod in self._fleet.follow(changes.nodes):
            if not pod.is_busy:
                self._flows[pod.queue].idle.remove(pod)

    # --- between ticks: pods take what waits -------------------------------------------------------------------------

    def _serve(self, view: View, queue: Queue) -> Iterator[Action]:
        flow = self._flows[queue]
        if not self._fleet.pods.get(queue):
            yield from self._open_first(view, queue)
        while flow.idle and (head := view.oldest(*queue)) is not None:
            pod = self._first_able(view, flow.idle)
            if pod is None:
                return
            batch = tuple(islice(view.by_ready(*queue), pod.configuration.batch))
            yield Start(batch, pod.holding(len(batch)), pod.node, pod.device)
            flow.idle.remove(pod)
            pod.is_busy = pod.has_run = True
            self._running[head.id] = pod

    def _first_able(self, view: View, pods: list[Pod]) -> Pod | None:
        """The first of these pods that can run now. Those in one place are interchangeable: one is looked at."""
        tried: set[tuple[Place, Configuration]] = set()
        for pod in pods:
            key = (pod.place, pod.configuration)
            if key not in tried and self._can_run(view, pod):
                return pod
            tried.add(key)
        return None

    def _can_run(self, view: View, pod: Pod) -> bool:
        """Whether an instance for a pod is warm, or none is starting, so that waiting would be in vain."""
        where = _where(pod)
        return (view.is_warm(*where) or view.now > self._ready_at.get(pod.place, -inf)) and view.fits(*where)

    def _rest(self, pod: Pod) -> None:
        insort(self._flows[pod.queue].idle, pod, key=lambda each: -each.rpr)

    # --- ticks: the number of pods follows the rate ------------------------------------------------------------------

    def _tick(self, view: View) -> Iterator[Action]:
        self._due = view.now + self.tick_s
        self._profiles = {name: view.profile(name) for name in self._site.functions}
        self._learn(all_options(self._site, self._profiles))
        wanted: dict[Queue, list[Size]] = {}
        for queue, flow in self._flows.items():
            rate_rps = flow.arrivals.measure(view.now, self.window_s) + view.waiting(*queue) / self.window_s
            pods = [pod for pod in self._fleet.pods.get(queue, ()) if not pod.is_closing]
            capacity_rps = sum(pod.rps for pod in pods)
            gap_rps = rate_rps - capacity_rps
            if gap_rps > self.threshold * capacity_rps:
                wanted[queue] = needed(gap_rps, flow.sizes)
            elif -gap_rps > self.threshold * capacity_rps:
                for pod in superfluous(pods, rate_rps):
                    self._close(pod)
        spare = {name: self._fleet.capacity.spare(view, name) for name in {queue[1] for queue in wanted}}
        while wanted:  # in rounds, so that where room is short every queue gets some
            for queue in list(wanted):
                opened = self._open(queue, wanted[queue].pop(0), spare[queue[1]])
                if opened is None or not wanted[queue]:
                    del wanted[queue]
                if opened is not None:
                    yield from self._warm(view, opened, spare[queue[1]])

    def _learn(self, known: dict[str, Options]) -> None:
        """Take over what is believed of all functions now."""
        self._known = known
        price = self._site.cluster.price
        for (_, function), flow in self._flows.items():
            flow.sizes = sizes(known[function], price, flow.limit_s)
        for pods in self._fleet.pods.values():
            for pod in pods:
                self._rate(pod)
        for flow in self._flows.values():
            flow.idle.sort(key=lambda pod: -pod.rpr)

    def _rate(self, pod: Pod) -> None:
        kind = self._fleet.capacity.rooms[pod.node].node.kind
        latency_s = self._profiles[pod.function.name].upper_s(pod.configuration, kind)
        pod.rps = throughput(pod.configuration, latency_s)
        pod.rpr = pod.rps / weight(pod.configuration, self._site.cluster.price)

    # --- opening and closing -----------------------------------------------------------------------------------------

    def _deploy(self, view: View) -> Iterator[Action]:
        """A pod for every function, as long as there is room."""
        self._is_deployed = True
        self._due = view.now + self.tick_s
        for queue, flow in self._flows.items():
            flow.arrivals.measure(view.now, self.window_s)
            spare = self._fleet.capacity.spare(view, queue[1])
            pod = self._open(queue, most_efficient(flow.sizes), spare)
            if pod is not None:
                yield from self._warm(view, pod, spare)

    def _open_first(self, view: View, queue: Queue) -> Iterator[Action]:
        """A pod for a queue that has none; if there is no room, in the place of pods that are idle."""
        size = most_efficient(self._flows[queue].sizes)
        spare = self._fleet.capacity.spare(view, queue[1])
        while (pod := self._open(queue, size, spare)) is None:
            other = self._least_needed(view)
            if other is None:
                return
            self._close(other)
            spare[other.place] += 1
        yield from self._warm(view, pod, spare)

    def _least_needed(self, view: View) -> Pod | None:
        """The idle pod that can be spared best; one for which invocations wait only after it has run some."""
        found: tuple[bool, bool, float, Pod] | None = None
        for queue, flow in self._flows.items():
            is_wanted = bool(flow.idle) and view.waiting(*queue) > 0
            is_last = len(self._fleet.pods.get(queue, ())) == 1
            for pod in flow.idle:
                if pod.has_run or not is_wanted:
                    rank = (is_wanted, is_last, pod.last_used)
                    if found is None or rank < found[:3]:
                        found = (*rank, pod)
        return None if found is None else found[3]

    def _open(self, queue: Queue, size: Size, spare: Counter[Place]) -> Pod | None:
        """A pod of this size or, if there is no room for it, of the most efficient size for which there is.

        `spare` says by place how many more instances of the function there are than pods, and is kept up to date.
        """
        function = self._site.functions[queue[1]]
        others = sorted(self._flows[queue].sizes, key=lambda each: -each.rpr)
        unused = [place for place, count in spare.items() if count > 0 and place[0] == function.name]
        for configuration in dict.fromkeys(each.configuration for each in (size, *others)):
            warm = {(node, device) for _, node, device, vgpus in unused if vgpus == configuration.vgpus}
            spot = self._fleet.find(function, configuration, self._profiles[function.name], warm)
            if spot is not None:
                pod = Pod(function, configuration, *spot, queue, self._batches(function.name, configuration))
                self._rate(pod)
                self._fleet.open(pod)
                self._rest(pod)
                spare[pod.place] -= 1
                return pod
        return None

    def _batches(self, function: str, size: Configuration) -> tuple[Configuration, ...]:
        alike = (
            each
            for each in self._known[function].configurations
            if (each.vcpus, each.vgpus, each.memory_gb) == (size.vcpus, size.vgpus, size.memory_gb)
        )
        return tuple(sorted((each for each in alike if each.batch <= size.batch), key=lambda each: each.batch))

    def _close(self, pod: Pod) -> None:
        """Close a pod, at the end of what it runs. Its instance is left to the platform, which may keep it warm."""
        if pod.is_busy:
            pod.is_closing = True
        else:
            self._flows[pod.queue].idle.remove(pod)
            self._fleet.close(pod)

    def _warm(self, view: View, pod: Pod, spare: Counter[Place]) -> Iterator[Action]:
        """Start an instance for a new pod, unless there is one that no other pod uses."""
        name, fleet = pod.function.name, self._fleet
        cold_s = self._profiles[name].cold_start_s(fleet.capacity.rooms[pod.node].node.kind)
        if cold_s == 0 or spare[pod.place] >= 0:
            return
        if not self._can_warm(view, pod, spare[pod.place] + fleet.placed[pod.place]):
            return  # where none can be warmed, its first run will start one
        spare[pod.place] += 1
        self._ready_at[pod.place] = max(self._ready_at.get(pod.place, -inf), view.now + cold_s)
        yield Warm(*_where(pod))

    def _can_warm(self, view: View, pod: Pod, instances: int) -> bool:
        """Whether an instance can be started for a pod now, given how many are in its place.

        The general answer is that of `Capacity.can_warm`, which looks at every instance of the function. None of them
        has to be looked at where there is none, nor on a shared device while one that was warmed for another starts.
        """
        if instances == 0:
            return view.fits(*_where(pod))
        capacity = self._fleet.capacity
        node = capacity.rooms[pod.node].node
        is_slice = pod.device is None or node.devices[pod.device].sharing == "mig"
        if is_slice or view.now >= self._ready_at.get(pod.place, -inf):
            return capacity.can_warm(view, pod)
        free_vcpus = round((1 - view.load(pod.node)) * milli(node.capacity_vcpus))
        free_vgpus = next(d.free_vgpus for d in view.devices() if (d.node, d.device) == (pod.node, pod.device))
        configuration = pod.configuration
        return free_vcpus >= milli(configuration.vcpus) and milli(free_vgpus) >= milli(configuration.vgpus)


def _where(pod: Pod) -> tuple[str, Configuration, str, int | None]:
    return pod.function.name, pod.configuration, pod.node, pod.device
