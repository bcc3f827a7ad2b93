"""What the runtime counts of itself: totals, and the last seconds."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from math import isfinite

from fairlead.app.manifest import Manifest, StageSpec, WorkflowSpec
from fairlead.engine.core.capacity import InstanceState
from fairlead.engine.core.controller import Controller
from fairlead.engine.live.clock import REAL, Clock
from fairlead.engine.live.glance import StageGlance
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.status import (
    CacheStatus,
    FunctionStatus,
    GpuStatus,
    NodeStatus,
    WorkflowStatus,
    accelerator_status,
)
from fairlead.engine.live.transit import Batch
from fairlead.engine.live.values import Ending
from fairlead.model import Configuration, Device
from fairlead.monitor import COUNTERS, Signals

RECENT_S = 10.0
_MOST_RECENT = 20_000  # endings looked back on


class _WorkflowTally:
    __slots__ = ("arrivals", "cost_usd", "endings", "in_time", "offered", "outcomes", "spec")

    def __init__(self, spec: WorkflowSpec) -> None:
        self.spec = spec
        self.offered = 0
        self.in_time = 0
        self.cost_usd = 0.0
        self.outcomes = dict.fromkeys(("completed", "failed", "rejected", "dropped", "cancelled"), 0)
        self.arrivals: deque[float] = deque(maxlen=_MOST_RECENT)
        self.endings: deque[tuple[float, str, bool, float]] = deque(maxlen=_MOST_RECENT)  # when, how, in time, latency


class _FunctionTally:
    __slots__ = ("batches", "invocations", "observed_s", "predicted_s", "sizes", "transfer_s")

    def __init__(self) -> None:
        self.batches = self.invocations = 0
        self.transfer_s = 0.0
        self.predicted_s: float | None = None
        self.observed_s: float | None = None
        self.sizes: deque[int] = deque(maxlen=64)


class _StageTally:
    __slots__ = ("batched", "cold_s", "function", "name", "run_s", "runs", "transfer_s", "wait_s")

    def __init__(self, spec: StageSpec) -> None:
        self.name, self.function = spec.name, spec.function
        self.runs = self.batched = 0
        self.wait_s = self.cold_s = self.transfer_s = self.run_s = 0.0


class Tally:
    """Counts of one app."""

    def __init__(self, manifest: Manifest, controller: Controller, clock: Clock = REAL) -> None:
        self._now = clock.now
        self._controller = controller
        self._workflows = {spec.name: _WorkflowTally(spec) for spec in manifest.workflows}
        self._functions = {spec.name: _FunctionTally() for spec in manifest.functions}
        self._stages = {
            spec.name: {stage.name: _StageTally(stage) for stage in spec.stages} for spec in manifest.workflows
        }

    def arrived(self, workflow: str) -> None:
        """A request came in."""
        tally = self._workflows[workflow]
        tally.offered += 1
        tally.arrivals.append(self._now())

    def ended(self, ending: Ending) -> None:
        """A request ended."""
        tally = self._workflows[ending.workflow]
        tally.outcomes[ending.outcome] += 1
        is_in_time = ending.is_in_time
        tally.in_time += is_in_time
        tally.cost_usd += ending.cost_usd
        tally.endings.append((self._now(), ending.outcome, is_in_time, ending.latency_s))

    def predict_s(self, function: str, configuration: Configuration, node: str) -> float:
        """How long a batch is believed to take."""
        shape = self._controller.beliefs.shape(function, configuration)
        belief = shape.beliefs.get(self._controller.nodes[node].kind) if shape else None
        return belief.declared_s * belief.correction if belief else 0.0

    def batch(self, batch: Batch, work_s: float, transfer_s: float) -> None:
        """A batch ended. `work_s` has the time that its instance took to start, where it had to."""
        invocations = batch.effect.invocations
        size = len(invocations)
        tally = self._functions[batch.effect.function]
        tally.transfer_s += transfer_s
        tally.batches += 1
        tally.invocations += size
        tally.predicted_s, tally.observed_s = batch.predicted_s, work_s
        tally.sizes.append(size)
        cold_s, started = batch.cold_s, batch.started
        run_s = max(0.0, work_s - cold_s)
        is_plain = not cold_s and not transfer_s
        for invocation in invocations:
            stage = self._stages[invocation.workflow][invocation.stage]
            stage.runs += 1
            stage.batched += size
            stage.wait_s += started - invocation.ready
            stage.run_s += run_s
            if not is_plain:
                stage.cold_s += cold_s
                stage.transfer_s += transfer_s

    def workflows(self, now: float, open_requests: dict[str, int]) -> tuple[WorkflowStatus, ...]:
        """Every workflow now; `now` is the run's clock, for slacks."""
        slacks = self._slacks(now)
        return tuple(
            self._workflow(name, tally, open_requests.get(name, 0), slacks.get(name))
            for name, tally in self._workflows.items()
        )

    def _workflow(self, name: str, tally: _WorkflowTally, is_open: int, slack_s: float | None) -> WorkflowStatus:
        since = self._now() - RECENT_S
        recent = list(takewhile(lambda ending: ending[0] >= since, reversed(tally.endings)))
        judged = [is_in_time for _, outcome, is_in_time, _ in recent if outcome != "cancelled"]
        in_time = sum(judged)
        latencies = sorted(latency_s for _, outcome, _, latency_s in recent if outcome == "completed")
        return WorkflowStatus(
            name=name,
            slo_s=tally.spec.slo_s,
            open=is_open,
            offered=tally.offered,
            completed=tally.outcomes["completed"],
            in_time=tally.in_time,
            rejected=tally.outcomes["rejected"],
            dropped=tally.outcomes["dropped"],
            failed=tally.outcomes["failed"],
            cancelled=tally.outcomes["cancelled"],
            cost_usd=tally.cost_usd,
            recent_offered_rps=sum(1 for _ in takewhile(lambda at: at >= since, reversed(tally.arrivals))) / RECENT_S,
            recent_goodput_rps=in_time / RECENT_S,
            recent_attainment=in_time / len(judged) if judged else None,
            recent_p50_s=_quantile(latencies, 0.5),
            recent_p99_s=_quantile(latencies, 0.99),
            least_slack_s=slack_s,
        )

    def functions(
        self,
        notes: Mapping[str, Mapping[str, float]] = {},
        cpu_s: Mapping[str, float] = {},
        caches: Mapping[str, CacheStatus] = {},
        usage: Callable[[int], Usage] = lambda instance: Usage(),
    ) -> tuple[FunctionStatus, ...]:
        """Every function now, with its scaler's notes, its CPU time and its prediction cache.

        `usage` tells what an instance has used.
        """
        gpus: dict[str, list[GpuStatus]] = {name: [] for name in self._functions}
        states = {name: [0, 0, 0] for name in self._functions}  # starting, idle, busy
        held = dict.fromkeys(self._functions, 0)
        for instance in self._controller.pool.instances.values():
            which = 0 if not instance.is_ready else 1 if instance.batch < 0 else 2
            states[instance.flavour.function.name][which] += 1
            held[instance.flavour.function.name] += instance.vcpus
            if instance.device is not None and instance.flavour.kernel is None:
                gpus[instance.flavour.function.name].append(_gpu(instance, usage(instance.id)))
        sets = self._controller.replicas.sets
        waiting = dict.fromkeys(self._functions, 0)
        for workflow, function in self._controller.view.queues():
            waiting[function] += self._controller.view.waiting(workflow, function)
        return tuple(
            FunctionStatus(
                name=name,
                waiting=waiting[name],
                starting=states[name][0],
                idle=states[name][1],
                busy=states[name][2],
                batches=tally.batches,
                invocations=tally.invocations,
                recent_batch_size=sum(tally.sizes) / len(tally.sizes) if tally.sizes else None,
                predicted_s=tally.predicted_s,
                observed_s=tally.observed_s,
                replicas=sets[name].target if name in sets else None,
                replica_vcpus=sets[name].configuration.vcpus if name in sets else None,
                held="operator" if name in self._controller.holds else None,
                vcpus=held[name] / 1000,
                cpu_s=cpu_s.get(name),
                notes=notes.get(name, {}),
                cache=caches.get(name),
                gpus=tuple(gpus[name]),
                transfer_s=tally.transfer_s,
            )
            for name, tally in self._functions.items()
        )

    def stages(self) -> tuple[StageGlance, ...]:
        """Every stage of every workflow, with its totals and what waits now."""
        waiting = self._controller.view.waiting
        return tuple(
            StageGlance(
                workflow,
                stage.name,
                stage.function,
                waiting(workflow, stage.function),
                stage.runs,
                stage.wait_s,
                stage.cold_s,
                stage.transfer_s,
                stage.run_s,
                stage.batched,
            )
            for workflow, stages in self._stages.items()
            for stage in stages.values()
        )

    def nodes(
        self,
        seen: Mapping[str, Signals] = {},
        whole: Mapping[str, float] | None = None,
        states: Mapping[str, str] = {},
        offered: Mapping[str, Sequence[Device]] = {},
    ) -> tuple[NodeStatus, ...]:
        """Every node now, with what the monitor sees of it; `whole` has the vCPUs of those that apps share.

        `states` says of nodes that are being drained how far they are, `offered` which accelerators nodes offer now:
        the controller keeps one that is in use as it was.
        """
        whole = whole or {}
        counts = dict.fromkeys(self._controller.nodes, 0)
        used: dict[str, Counter[int]] = {name: Counter() for name in self._controller.nodes}
        for instance in self._controller.pool.instances.values():
            counts[instance.node.name] += 1
            if instance.device is not None:
                used[instance.node.name][instance.device.index] += instance.flavour.vgpus
        view = self._controller.view
        return tuple(
            NodeStatus(
                name=node.name,
                vcpus=whole.get(node.name, node.vcpus),
                lease_vcpus=self._controller.nodes[node.name].total / 1000 / node.overcommit
                if node.name in whole
                else None,
                state=states.get(node.name, "up"),
                load=view.load(node.name),
                instances=counts[node.name],
                speed=node.speed,
                pressure=seen[node.name].extras.get("pressure") if node.name in seen else None,
                signals=_known(seen[node.name]) if node.name in seen else {},
                accelerators=tuple(
                    accelerator_status(device, used[node.name][number] / 1000)
                    for number, device in enumerate(offered.get(node.name, node.devices))
                ),
            )
            for node in view.nodes
        )

    def _slacks(self, now: float) -> dict[str, float]:
        least: dict[str, float] = {}
        for invocation in self._controller.view.by_deadline():
            if invocation.workflow not in least and invocation.deadline < float("inf"):
                least[invocation.workflow] = invocation.deadline - now
                if len(least) == len(self._workflows):
                    break
        return least


def _gpu(instance: InstanceState, usage: Usage) -> GpuStatus:
    assert instance.device is not None
    return GpuStatus(
        instance=instance.id,
        node=instance.node.name,
        device=instance.device.index,
        vgpus=instance.flavour.vgpus / 1000,
        memory_bytes=usage.gpu_bytes,
        utilisation=usage.gpu_share,
    )


def _known(signals: Signals) -> dict[str, float]:
    counters = {name: getattr(signals, name) for name in COUNTERS}
    found = {**counters, **signals.extras}
    return {name: value for name, value in found.items() if value is not None and isfinite(value)}


def _quantile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
