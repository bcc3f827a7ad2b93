"""What a function can be run with: every configuration on every kind of node, with its time, its use and its price.

Resources are counted in pools over all nodes: a second of a vCPU on a node of speed 2 is worth two on one of speed 1.
"""

from collections.abc import Iterable
from math import inf

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Cluster, Configuration, Function, Node
from fairlead.planning.feasibility import could_run
from fairlead.policy.fairlead.carried import carried, seen
from fairlead.profile import Estimate

Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]
Pair = tuple[float, float]  # of vCPUs and of vGPUs, where a decision counts: quicker than arrays of two

_MIG_PART = {1: 1.0, 2: 7 / 3, 3: 3.5, 4: 3.5, 7: 7.0}  # sevenths of a device that a slice keeps from all others
_LEAST_S = 1e-9  # what a function declared to take no time is taken to need: times are divided by each other
_FOLLOW = 0.05  # weight of the newest observation of a full cluster
_LEAST = 0.2
_FOLLOW_COLD = 0.3  # weight of the newest cold start
_ROUNDING = 1e-6
_WRONG = 0.1  # from which difference on an assumed time is corrected at once


class Supply:
    """The two resources of a cluster, vCPUs and vGPUs, summed over nodes at their speeds, and their prices."""

    def __init__(self, cluster: Cluster) -> None:
        self.kinds = tuple(cluster.kinds)
        self._kinds = cluster.kinds
        self._is_mig = {
            name: any(device.sharing == "mig" for device in node.devices) for name, node in cluster.kinds.items()
        }
        base = [cluster.price.vcpu_usd_per_hour / 3600, cluster.price.vgpu_usd_per_hour / 3600]
        self.usd_per_s: Reals = np.maximum(np.array(base), 1e-12)
        self.count(cluster.nodes)

    def _learned(self) -> None:
        self.usable: Reals = self.amounts * self.attainable  # what of each can be used at a time, by experience
        cpu, gpu = self.usable.tolist()
        self.usable_pair: Pair = (cpu, gpu)

    def observe_full(self, held: Pair, needed: Pair) -> None:
        """See what is in use at an instant when a run that needs these resources cannot be started for lack of room."""
        wanted = [i for i in (0, 1) if needed[i] > 0]
        if any(self.amounts_pair[i] <= 0 for i in wanted):
            return  # there is no node for it at all
        use = [held[i] / self.amounts_pair[i] if i in wanted else 0.0 for i in (0, 1)]
        bottleneck = int(use[1] > use[0])
        self.attainable[bottleneck] += _FOLLOW * (max(use[bottleneck], _LEAST) - self.attainable[bottleneck])
        self._learned()

    def count(self, nodes: Iterable[Node]) -> None:
        """Add up what these nodes have; what was learned of how much can be used was learned on others."""
        self.attainable: Reals = np.ones(2)  # share of the amounts that is in use when nothing more can be started
        self.amounts: Reals = np.zeros(2)
        for node in nodes:
            self.amounts += node.speed * np.array([node.vcpus, sum(device.vgpus for device in node.devices)])
        cpu, gpu = self.amounts.tolist()
        self.amounts_pair: Pair = (cpu, gpu)
        self._learned()

    def slots(self, holding: Pair) -> int:
        """How many runs that take so much of each resource can go on at the same time without others, at least 1."""
        counts = [amount / taken + 1e-9 for amount, taken in zip(self.amounts_pair, holding, strict=True) if taken > 0]
        return max(1, int(min(counts)))

    def is_cut(self, kind: str) -> bool:
        """Whether nodes of a kind have devices that are cut into slices as instances need them."""
        return self._is_mig[kind]

    def part(self, kind: str, vgpus: float) -> float:
        """vGPUs of a device that no other instance can use while one has this share."""
        return _MIG_PART.get(int(vgpus), vgpus) if self._is_mig[kind] else vgpus

    def holding(self, configuration: Configuration, kind: str) -> Reals:
        """What a run of this configuration takes of each resource."""
        speed = self._kinds[kind].speed
        return speed * np.array([configuration.vcpus, self.part(kind, configuration.vgpus)])

    def blocks_device(self, configuration: Configuration, kind: str) -> bool:
        """Whether a run takes vCPUs that work on a device of the node may need."""
        return not configuration.vgpus and bool(self._kinds[kind].devices)


class Menu:
    """The options of one function as arrays, one entry per (configuration, kind of node).

    An option is left out if another one of the same kind and batch is at least as fast and needs no more. Times of
    options that have not run yet follow from those that have (`carried`): cautious ones, and, for what a run costs
    while there is room, hopeful ones. Of a function whose times are assumed, no option is left out, and all times
    are those of the estimate, which carries over what was seen.

    Args:
        function: What is run.
        estimate: Its declared times.
        cluster: Where it runs.
        supply: The resources in which use is counted.
    """

    def __init__(self, function: Function, estimate: Estimate, cluster: Cluster, supply: Supply) -> None:
        self.function = function
        self.name = function.name
        self.sensitivity = estimate.sensitivity
        self.safety = 0.5  # part of the way from the mean to the safe percentile that a run is planned with
        self._cold_factor = 1.0  # how long instances took to start, over the declared time
        self._starts = 0  # that were observed
        self._declared_cold_s = estimate.cold_start_s()
        # Where no instance stays, every run begins with a cold start.
        self._is_always_cold = function.keep_alive_s <= 0 and not function.warm
        self._set_cold()
        self.version = 0  # of its times, one more whenever they change
        self.ran_s = 0.0  # how long a run has taken per member of its batch, on average; 0 before the first
        self.wait_s = 0.0  # how long runs have waited for a place, on average
        self._loads = 0.0  # of a kernel: the share of runs that had to load what was not on their device
        self.transfer_s = function.output_mb * 8e-3 / cluster.bandwidth_gbps
        self._supply, self._price, self._estimate = supply, cluster.price, estimate
        self.options: list[tuple[Configuration, str]] = [
            (configuration, kind)
            for kind, node in cluster.kinds.items()
            for configuration in estimate.configurations
            if could_run(node, function, configuration) and estimate.latency_s(configuration, kind) < inf
        ]
        self._arrange()
        if not estimate.is_assumed:
            self.keep(self._undominated())

    def _arrange(self) -> None:
        options, supply, estimate = self.options, self._supply, self._estimate
        # As notes have them: sizes that are whole numbers are written alike in a run and in its replay.
        self.told = [
            (Configuration(c.batch, float(c.vcpus), float(c.vgpus), float(c.memory_gb)), kind) for c, kind in options
        ]
        self.batch: Reals = np.array([c.batch for c, _ in options], float)
        self.vcpus: Reals = np.array([c.vcpus for c, _ in options], float)
        self.vgpus: Reals = np.array([c.vgpus for c, _ in options], float)
        self.usd_per_s: Reals = np.array([self._price.usd_per_s(c.vcpus, c.vgpus) for c, _ in options])
        self.holding: Reals = np.array([supply.holding(c, kind) for c, kind in options])
        blocks = np.array([supply.blocks_device(c, kind) for c, kind in options])
        self.aversion: Reals = np.where(blocks, 1.02, 1.0)  # of equal options, the one that leaves GPU nodes alone
        declared_s = np.array([estimate.latency_s(c, kind) for c, kind in options])
        self._declared_s: Reals = np.maximum(declared_s, _LEAST_S)
        self._believed_s = self._declared_s.copy()
        self._hoped_s = self._believed_s
        upper_s = np.array([estimate.upper_s(c, kind) for c, kind in options])
        self._spread: Reals = np.maximum(upper_s, _LEAST_S) / self._declared_s
        self._runs: dict[int, int] = {}  # by option: how many batches of it were started
        self._smallest: dict[tuple[int, int], int] = {}
        self.batches: tuple[float, ...] = tuple(sorted(set(self.batch.tolist())))
        self.most = int(self.batches[-1]) if options else 0  # in one batch
        self.sizes = [(c.vcpus, c.vgpus, kind) for c, kind in options]
        self.members: list[float] = self.batch.tolist()
        self.vgpus_each: list[float] = self.vgpus.tolist()
        self.vcpus_each: list[float] = self.vcpus.tolist()
        self.uses_gpu = bool(self.vgpus.any())
        self.held_by: list[Pair] = [(cpu, gpu) for cpu, gpu in self.holding.tolist()]  # what a run takes, by option
        sizes = {size: number for number, size in enumerate(dict.fromkeys(self.sizes))}
        self.size_of = [sizes[size] for size in self.sizes]
        wants = [(*size, c.memory_gb) for size, (c, _) in zip(self.sizes, options, strict=True)]
        numbers = {want: number for number, want in enumerate(dict.fromkeys(wants))}
        self.footprint = [numbers[want] for want in wants]  # equal for options that differ in their batch only
        self.footprints = [self.footprint.index(number) for number in range(len(numbers))]  # an option of each
        # When no node was found for a footprint, by what `Ground.find` looks for; and when it fitted nowhere at all.
        self.nowhere = [[-9] * len(numbers) for _ in range(4)]
        self.blocked = [-9] * len(numbers)
        self._derive()

    def _undominated(self) -> Mask:
        kinds = np.array([kind for _, kind in self.options])
        order = np.lexsort((self._declared_s, self.vcpus, self.vgpus))
        kept = np.zeros(len(order), bool)
        for i in order:  # whatever beats an option needs no more than it, so it comes before
            rivals = kept & (kinds == kinds[i]) & (self.batch == self.batch[i])
            rivals &= (self.vcpus <= self.vcpus[i]) & (self._declared_s <= self._declared_s[i])
            kept[i] = not rivals.any()
        return kept

    def __len__(self) -> int:
        return len(self.options)

    @property
    def size(self) -> Reals:
        """The share that tells instances apart: vGPUs, or vCPUs for a function that needs no GPU."""
        return self.vgpus if self.vgpus.any() else self.vcpus

    def keep(self, kept: Mask) -> None:
        """Leave all other options out, unless none would be left. For use before the first run only."""
        if kept.any() and not kept.all():
            self.options = [option for option, stays in zip(self.options, kept, strict=True) if stays]
            self._arrange()

    def smallest_for(self, option: int, members: int) -> int:
        """Of the options of the same size, the one with the smallest batch that holds `members` invocations."""
        key = (option, members)
        found = self._smallest.get(key)
        if found is None:
            same = (self.vcpus == self.vcpus[option]) & (self.vgpus == self.vgpus[option]) & (self.batch >= members)
            same &= np.array([kind == self.options[option][1] for _, kind in self.options])
            able = np.flatnonzero(same)
            found = self._smallest[key] = int(able[self.batch[able].argmin()])
        return found

    def started(self, option: int) -> None:
        """Note that an option was started, so that its time will be observed."""
        self._runs[option] = self._runs.get(option, 0) + 1

    def ended(self, seconds: float, members: int, *, is_cold: bool) -> None:
        """Note how long a batch took, how many were in it, and whether its instance was started for it."""
        each_s = seconds / members
        self.ran_s = each_s if self.ran_s == 0 else self.ran_s + _FOLLOW * (each_s - self.ran_s)
        if self.function.buffers:
            self._loads += _FOLLOW * (is_cold - self._loads)

    def _set_cold(self) -> None:
        cold_s = self._declared_cold_s * self._cold_factor
        self.cold_s, self._run_cold_s = (0.0, cold_s) if self._is_always_cold else (cold_s, 0.0)

    def was_started(self, kind: str, seconds: float) -> None:
        """Note how long an instance took to start on a node of this kind."""
        declared_s = self._estimate.cold_start_s(kind)
        if not 0 < seconds < inf or declared_s <= 0 or self.function.buffers or self._supply.is_cut(kind):
            return  # of a kernel, parts are there already; a MIG device may be cut before the start
        ratio = seconds / declared_s
        self._starts += 1
        if abs(ratio - self._cold_factor) > _ROUNDING:
            self._cold_factor += max(_FOLLOW_COLD, 1 / self._starts) * (ratio - self._cold_factor)
            self._set_cold()

    def is_wrong(self, estimate: Estimate) -> bool:
        """Whether some option has run, and the estimate of any differs from what it is planned with by a tenth."""
        return bool(self._runs) and any(
            not 1 - _WRONG <= estimate.latency_s(*option) / believed_s <= 1 + _WRONG
            for option, believed_s in zip(self.options, self._believed_s.tolist(), strict=True)
        )

    def learn(self, estimate: Estimate, *, corrects: bool = True) -> None:
        """Take over what is believed now of the options that have run, and what that says of the others."""
        before = self._believed_s.tobytes(), self._hoped_s.tobytes(), self._spread.tobytes()
        if self._runs and corrects:
            for i in range(len(self)) if estimate.is_assumed else self._runs:
                self._believed_s[i] = max(estimate.latency_s(*self.options[i]), _LEAST_S)
                self._spread[i] = max(estimate.upper_s(*self.options[i]), _LEAST_S) / self._believed_s[i]
            if not estimate.is_assumed:
                self._carry_over()
        is_same = before == (self._believed_s.tobytes(), self._hoped_s.tobytes(), self._spread.tobytes())
        if not is_same or self._derived_for != (self.safety, self._run_cold_s, self._loads):
            self._derive()

    def _carry_over(self) -> None:
        """Take over what the runs of some options say of those that have not run."""
        known, runs = np.array(list(self._runs)), np.array(list(self._runs.values()), float)
        believed_s = self._believed_s[known]
        ratios = seen(believed_s / self._declared_s[known], runs)
        hopeful, cautious = carried(self._declared_s, known, ratios, runs)
        self._hoped_s = np.maximum(self._declared_s * hopeful, _LEAST_S)
        self._believed_s = np.maximum(self._declared_s * cautious, _LEAST_S)
        self._hoped_s[known] = self._believed_s[known] = believed_s

    def _derive(self) -> None:
        self.version += 1
        self._derived_for = self.safety, self._run_cold_s, self._loads
        fixed_s = self._estimate.overhead_s + self._run_cold_s
        hope = max(0.0, 2 * self.safety - 1)  # as long as there is room, and none once much of it is used
        self.mean_s: Reals = self._believed_s + hope * (self._hoped_s - self._believed_s) + fixed_s
        self.upper_s: Reals = (self._believed_s + fixed_s) * (1 + self.safety * (self._spread - 1))
        self.fastest_s = float(self.mean_s.min()) if len(self) else inf
        self.slowest_s = float(self.upper_s.max()) if len(self) else inf
        held_s = self.mean_s + self._loads * self.cold_s  # a kernel has its device while it loads
        self.use: Reals = self.holding * (held_s / self.batch)[:, None]  # resource-seconds per invocation
        billed_s = self.mean_s if self._price.bill_cold_start else self.mean_s - self._run_cold_s
        self.usd: Reals = self.usd_per_s * billed_s  # of the whole batch
        self.means_s: list[float] = self.mean_s.tolist()  # the same by option, for decisions
        self.uppers_s: list[float] = self.upper_s.tolist()
        self.usd_each: list[float] = self.usd.tolist()
        self.uses: list[Pair] = [(cpu, gpu) for cpu, gpu in self.use.tolist()]
