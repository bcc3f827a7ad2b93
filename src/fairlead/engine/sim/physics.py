"""The cluster's physics: how long things really take.

A batch's *work* is its profile x bias x spread x noise, fixed at its start. Alone, it is consumed at rate 1; what
others do to that rate is in `sharing`.
"""

from collections.abc import Sequence
from math import inf

from msgspec.structs import replace

from fairlead.engine.core.effects import RunBatch, StartInstance
from fairlead.engine.core.events import Outcome, Recalled
from fairlead.engine.sim.draws import Stream, normal, uniform
from fairlead.engine.sim.sharing import has_interference
from fairlead.model import Configuration, Invocation, Node, Stage, Workflow
from fairlead.profile import Profile, copy_s, load_s
from fairlead.workload import Scenario

_COPY_APART = 10**12  # positions in a stream between the copies of one invocation


class StageTruth:
    """What really happens in one stage of a workflow: its spread, failures, branches and items."""

    __slots__ = ("arms", "failures", "hits", "items", "noise", "says_more", "spread", "width")

    def __init__(
        self, key: tuple[int, ...], stage: Stage, workflow: Workflow, profile: Profile, hit_rate: float
    ) -> None:
        self.spread = Stream((*key, 0), profile.spread) if profile.spread is not None else None
        self.noise = Stream((*key, 1), normal) if profile.noise else None
        self.failures = Stream((*key, 2), uniform) if profile.failure_rate else None
        after = [s for s in workflow.stages if s.after == (stage.name,)]
        arms = [(s.name, s.when) for s in after if s.when is not None]
        self.arms = (Stream((*key, 3), uniform), arms) if arms else None
        maps = [s.map for s in after if s.map is not None]
        self.items = (Stream((*key, 4), uniform), maps[0]) if maps else None
        self.hits = (Stream((*key, 6), uniform), hit_rate) if hit_rate else None
        region = workflow.regions[stage.name]
        opener = next((s for s in workflow.stages if s.name == region), None)
        self.width = opener.map[1] if opener is not None and opener.map is not None else 1
        # Whether a finished invocation needs an outcome of its own.
        self.says_more = self.failures is not None or self.arms is not None or self.items is not None


class Physics:
    """Times and outcomes of one run; all randomness comes from the seed and the request's number in its workflow."""

    __slots__ = (
        "_entry_items",
        "_is_plain",
        "_mb_per_s",
        "_nodes",
        "_ordinals",
        "_overhead_s",
        "_profiles",
        "_seed",
        "_stages",
        "_takes_turns",
        "_work",
        "has_hits",
        "has_interference",
        "has_overhead",
    )

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._seed = seed
        self._profiles = scenario.profiles
        self._nodes = {node.name: node for node in scenario.cluster.nodes}
        self._mb_per_s = scenario.cluster.bandwidth_gbps * 125
        self._takes_turns = any(d.sharing == "time" for n in scenario.cluster.nodes for d in n.devices)
        self._work: dict[tuple[str, Configuration, str], float] = {}
        self._ordinals: dict[int, int] = {}
        self._stages: dict[tuple[str, str], StageTruth] = {}
        self._entry_items: dict[str, tuple[Stream, tuple[int, int]]] = {}
        for w, workflow in enumerate(scenario.workflows.values()):
            for s, stage in enumerate(workflow.stages):
                key = (seed, w, s)
                hit_rate = scenario.functions[stage.function].hit_rate
                truth = StageTruth(key, stage, workflow, scenario.profiles[stage.function], hit_rate)
                self._stages[workflow.name, stage.name] = truth
                if stage.map is not None and not stage.after:
                    self._entry_items[workflow.name] = (Stream((*key, 5), uniform), stage.map)
        self._is_plain = not any(truth.says_more for truth in self._stages.values())
        self.has_hits = any(truth.hits for truth in self._stages.values())  # whether a cache answers some invocations
        self.has_interference = has_interference(scenario.cluster, scenario.profiles)
        self._overhead_s = {name: p.overhead_s for name, p in scenario.profiles.items() if p.overhead_s}
        self.has_overhead = bool(self._overhead_s)  # whether a batch whose input is there takes time beside its work

    def stage(self, workflow: str, stage: str) -> StageTruth:
        """What really happens in a stage."""
        return self._stages[workflow, stage]

    def join(self, node: Node) -> None:
        """Get to know a node that was added during the run."""
        self._nodes[node.name] = node

    def admit(self, request: int, ordinal: int, workflow: str) -> int:
        """Note a request as the n-th of its workflow; gives the number of items of its input."""
        self._ordinals[request] = ordinal
        entry = self._entry_items.get(workflow)
        return 1 if entry is None else _between(entry[0][ordinal], entry[1])

    def forget(self, request: int) -> None:
        """Let go of a request that will run no more."""
        self._ordinals.pop(request, None)

    def cold_start_s(self, effect: StartInstance) -> float:
        """How long this instance takes to start: the one place where a cold start is charged."""
        node = self._nodes[effect.node]
        declared_s = self._profiles[effect.function].cold_s(node.kind)
        cut_s = node.devices[effect.device].repartition_s if effect.is_cut else 0.0
        if effect.load_mb is None:
            return declared_s + cut_s
        if not effect.load_mb and not effect.starts_executor:
            return cut_s  # everything is there
        return declared_s + load_s(node.devices[effect.device], effect.load_mb, effect.starts_executor) + cut_s

    def transfer_s(self, effect: RunBatch) -> float:
        """What a batch takes besides its work: its input from other nodes, what a kernel copies, the way to it."""
        seconds = self._overhead_s.get(effect.function, 0.0) if self._overhead_s else 0.0
        seconds += effect.transfer_mb / self._mb_per_s if effect.transfer_mb else 0.0
        if effect.copy_mb:
            seconds += copy_s(self._nodes[effect.node].devices[effect.device], effect.copy_mb)
        return seconds

    def work_s(self, effect: RunBatch) -> float:
        """How long the batch would take undisturbed; its first invocation draws for all."""
        node = self._nodes[effect.node]
        configuration = effect.configuration
        if self._takes_turns and effect.device >= 0 and node.devices[effect.device].sharing == "time":
            configuration = self._in_turn(effect, node)
        key = (effect.function, configuration, node.kind)
        base = self._work.get(key)
        if base is None:
            profile = self._profiles[effect.function]
            base = self._work[key] = profile.latency_s(configuration, node.kind, node.speed) * profile.bias
        invocation = effect.invocations[0]
        truth = self._stages[invocation.workflow, invocation.stage]
        if truth.spread is not None:
            base *= truth.spread[self._luck(invocation, truth)]
        if truth.noise is not None:
            sigma = self._profiles[effect.function].noise
            base *= max(0.05, 1 + sigma * truth.noise[self._luck(invocation, truth)])
        return base

    def _in_turn(self, effect: RunBatch, node: Node) -> Configuration:
        """What a run has while it is its turn: the whole device, or the most of it of which its law knows."""
        profile, own = self._profiles[effect.function], effect.configuration
        whole = replace(own, vgpus=node.devices[effect.device].vgpus)
        if profile.latency_s(whole, node.kind) < inf:
            return whole
        known = [
            replace(own, vgpus=c.vgpus)
            for c in profile.configurations
            if (c.batch, c.vcpus) == (own.batch, own.vcpus) and own.vgpus <= c.vgpus <= whole.vgpus
        ]
        return max((c for c in known if profile.latency_s(c, node.kind) < inf), key=lambda c: c.vgpus, default=own)

    def outcomes(self, effect: RunBatch) -> tuple[Outcome, ...] | None:
        """How each invocation ends; None when all simply succeed."""
        if self._is_plain:
            return None
        for invocation in effect.invocations:
            if self._stages[invocation.workflow, invocation.stage].says_more:
                return tuple([self._outcome(i) for i in effect.invocations])
        return None

    def recall(self, ready: Sequence[Invocation]) -> list[Recalled]:
        """The invocations among those that have just become ready that a prediction cache answers."""
        found = []
        for invocation in ready:
            truth = self._stages[invocation.workflow, invocation.stage]
            if truth.hits is not None and invocation.attempt == 1 and not invocation.copy:
                stream, rate = truth.hits
                if stream[self._position(invocation, truth)] < rate:
                    outcome = self._choice(invocation, truth)
                    found.append(Recalled(invocation.request, invocation.stage, invocation.item, outcome))
        return found

    def _outcome(self, invocation: Invocation) -> Outcome:
        truth = self._stages[invocation.workflow, invocation.stage]
        if truth.failures is not None:
            # Attempts of one invocation are drawn far apart, so that a retry has a chance of its own.
            rate = self._profiles[invocation.function].failure_rate
            if truth.failures[self._luck(invocation, truth) + (invocation.attempt - 1) * 10**9] < rate:
                return Outcome(ok=False, error="the function failed")
        return self._choice(invocation, truth)

    def _choice(self, invocation: Invocation, truth: StageTruth) -> Outcome:
        """What an answer leads to: the branch that is taken after it, and how many items it has."""
        position = self._position(invocation, truth)
        arm = None
        if truth.arms is not None:
            stream, arms = truth.arms
            left = stream[position]
            for name, probability in arms:
                left -= probability
                if left < 0:
                    arm = name
                    break
        items = 1 if truth.items is None else _between(truth.items[0][position], truth.items[1])
        return Outcome(arm=arm, items=items)

    def _position(self, invocation: Invocation, truth: StageTruth) -> int:
        """Where to read what the input decides (branch, items): the same for all copies, as their answers are."""
        return self._ordinals[invocation.request] * truth.width + invocation.item

    def _luck(self, invocation: Invocation, truth: StageTruth) -> int:
        """Where to read what each copy has of its own: how long it takes and whether it fails."""
        return self._position(invocation, truth) + invocation.copy * _COPY_APART


def _between(u: float, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return low + int(u * (high - low + 1))
