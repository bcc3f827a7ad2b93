"""The simulator's driver: a virtual clock that feeds the controller and acts its effects out."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from heapq import heappop, heappush
from math import inf
from time import perf_counter

import msgspec
import polars as pl

from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.controller import Controller
from fairlead.engine.core.device_memory import memory_use
from fairlead.engine.core.site import prepare
from fairlead.engine.sim.arrivals import open_arrivals
from fairlead.engine.sim.physics import Physics
from fairlead.engine.sim.sharing import SharedNode
from fairlead.engine.sim.tables import Tables
from fairlead.engine.sim.users import Loop
from fairlead.errors import PolicyError
from fairlead.model import Recording, Request
from fairlead.policy import Policy
from fairlead.workload import ClosedLoop, Scenario

Progress = Callable[[float], None]

IDLE_INSTANTS = 10_000  # with nothing running and no request to come: the policies will not start what waits
REPORT_EVERY = 4096
_LEAST_ROUND_S = 1e-3  # between two calls of one user in a closed loop
_WORK = frozenset({ev.Arrived, ev.Finished})


class Simulation:
    """One run in the making. `end_s` is how long an instance that is stopped takes to end and free what it used."""

    __slots__ = (
        "aborted",
        "act",
        "arrivals",
        "began",
        "coming",
        "controller",
        "end_s",
        "faults",
        "given",
        "heap",
        "loop_of",
        "loops",
        "next_request",
        "nodes",
        "ordinals",
        "parameters",
        "physics",
        "policy_name",
        "scaler_name",
        "scenario",
        "schedule",
        "seed",
        "sequence",
        "shared",
        "slo",
        "tables",
    )

    def __init__(
        self,
        scenario: Scenario,
        policy: tuple[str, Policy],
        scaler: tuple[str | None, Policy | None],
        seed: int,
        physics: Physics | None,
        given: Sequence[tuple[float, ev.Event]],
        *,
        end_s: float = 0.0,
        stopwatch: Callable[[], float] = perf_counter,
    ) -> None:
        self.scenario = scenario
        self.end_s = end_s
        self.given = given
        self.seed = seed
        self.policy_name, dispatcher = policy
        self.scaler_name, scaling = scaler
        self.parameters = parameters_of(dispatcher, scaling)
        self.physics = physics or Physics(scenario, seed)
        requests = [(at, event.request) for at, event in given if isinstance(event, ev.Arrived)]
        self.schedule = _schedule(scenario, seed)
        self.arrivals = iter(self.schedule)
        if requests:
            self.schedule = sorted(self.schedule + [(at, request.workflow) for at, request in requests])
        self.loops = [
            Loop(i, loop, seed, scenario.duration_s)
            for i, loop in enumerate(a for a in scenario.arrivals if isinstance(a, ClosedLoop))
        ]
        names = (self.policy_name, self.scaler_name or "scaler")
        prepare((dispatcher, scaling), names, scenario, seed, tuple(self.schedule))
        self.tables = Tables()
        policies = (dispatcher, scaling)
        recall = self.physics.recall if self.physics.has_hits else None
        self.controller = Controller(
            scenario, *policies, stopwatch, names, self.tables, awaits_end=end_s > 0, recall=recall
        )
        self.heap: list[tuple[float, int, object]] = []  # (instant, sequence, event or call)
        self.sequence = 0
        self.coming = 0  # how many of them are arrivals
        self.faults = 0  # how many are node losses, returns, and changes of pressure
        self.slo = {name: workflow.slo for name, workflow in scenario.workflows.items()}
        self.next_request = max((request.id for _, request in requests), default=-1) + 1
        self.ordinals: Counter[str] = Counter()
        self.loop_of: dict[int, tuple[Loop, float]] = {}  # by request: whose user called, and when
        self.nodes = {node.name: node for node in scenario.cluster.nodes}
        self.aborted: set[int] = set()
        self.shared: dict[str, SharedNode] = {}
        if self.physics.has_interference:
            self.shared = {n.name: SharedNode(n, scenario.profiles) for n in scenario.cluster.nodes}
        self.began: dict[int, tuple[fx.RunBatch, float, float]] = {}
        self.act: dict[type, Callable[..., None]] = {
            fx.RunBatch: self._run_shared if self.shared else self._run_alone,
            fx.StartInstance: self._start_instance,
            fx.StopInstance: self._stop_instance,
            fx.Answer: self._ended,
            fx.Refuse: self._ended,
            fx.AddNode: self._add_node,
            fx.RemoveNode: self._remove_node,
        }

    def run(self, progress: Progress | None, point: Mapping[str, object]) -> Recording:
        """From the beginning to the end."""
        began = perf_counter()
        self.open()
        for at, event in self.given:
            self.coming += isinstance(event, ev.Arrived)
            self.faults += isinstance(event, ev.NodeLost | ev.NodeJoined | ev.NodeChanged | ev.Pressure)
            self.push(at, event)
        for loop in self.loops:
            for at in loop.first():
                self.coming += 1
                self.push(at, loop)
        failure: PolicyError | None = None
        try:
            with _rare_collection():
                self.loop(progress)
        except PolicyError as error:
            failure = error
        self.controller.finish()
        recording = Recording(
            scenario=self.scenario.name,
            policy=self.policy_name,
            scaler=self.scaler_name,
            seed=self.seed,
            parameters=self.parameters,
            cluster=self.scenario.cluster,
            warmup_s=self.scenario.warmup_s,
            duration_s=self.scenario.duration_s,
            end_s=self.controller.now,
            requests=self.request_table(),
            invocations=self.tables.invocation_table(),
            instances=self.tables.instance_table(),
            refusals=tuple(self.controller.decisions.refusals),
            stale_events=self.controller.stale_events,
            decision_s=tuple(self.controller.decisions.times_s),
            run_wall_s=perf_counter() - began,
            point=dict(point),
            device_memory=memory_use(self.controller.nodes.values()),
            nodes=self.controller.roster.lives(),
        )
        if failure is not None:
            failure.recording = recording
            raise failure
        return recording

    def request_table(self) -> pl.DataFrame:
        """The requests, as they are reported."""
        return self.tables.request_table()

    def open(self) -> None:
        """Put what is sure to happen among what is to come."""
        heappush(self.heap, (inf, -1, None))
        self._schedule_faults()
        self._next_arrival()

    def loop(self, progress: Progress | None, until: float = inf) -> None:
        """Bring the controller from instant to instant until nothing is left to do, or nothing up to an instant."""
        controller, heap, act, aborted = self.controller, self.heap, self.act, self.aborted
        handle, timers = controller.handle, controller.timers
        idle = steps = 0
        while True:
            now, _, what = heap[0]
            events: Sequence[ev.Event] = ()
            is_wake = timers.soonest <= now and controller.next_wake < now
            if is_wake:
                now = timers.soonest
            if now > until or now == inf:
                return
            if not is_wake:
                heappop(heap)
                if type(what) is ev.Finished and heap[0][0] != now and not aborted:
                    events = (what,)
                else:
                    events = self._gather(now, what)
            if self.coming == 0 and not controller.running and not any(type(e) in _WORK for e in events):
                if not controller.requests:  # nobody comes, nothing runs and nobody waits
                    return
                idle += 1
                if idle > IDLE_INSTANTS and not self.faults and controller.is_stuck:
                    return
            for effect in handle(now, events):
                act[type(effect)](effect)
            if progress is not None:
                steps += 1
                if steps % REPORT_EVERY == 0:
                    progress(now)

    def _next_arrival(self) -> None:
        """Put the next open-loop arrival among what is to come."""
        at, workflow = next(self.arrivals, (inf, ""))
        if at < inf:
            self.coming += 1
            heappush(self.heap, (at, -1, workflow))

    def _gather(self, now: float, first: object) -> list[ev.Event]:
        """All events of an instant."""
        events: list[ev.Event] = []
        self._happen(first, now, events)
        while self.heap[0][0] == now:
            self._happen(heappop(self.heap)[2], now, events)
        return events

    def _happen(self, what: object, now: float, events: list[ev.Event]) -> None:
        """Turn what was scheduled into events for the controller."""
        if type(what) is ev.Finished:
            if what.batch in self.aborted:
                self.aborted.discard(what.batch)
            else:
                events.append(what)
        elif type(what) is str:
            self.coming -= 1
            events.append(self._arrive(now, what, None))
            self._next_arrival()
        elif isinstance(what, Loop):
            self.coming -= 1
            if what.calls_at(now):
                events.append(self._arrive(now, what.workflow, what))
        elif isinstance(what, ev.InstanceReady | ev.InstanceGone | ev.Ordered | ev.Cancelled | ev.Expired):
            events.append(what)
        elif isinstance(what, ev.Arrived):
            self.coming -= 1
            self._admit(what.request.id, what.request.workflow)
            events.append(what)
        elif isinstance(what, _NodeEnds):
            node = self.shared[what.node]
            if what.version == node.version:
                for batch in node.due(now):
                    effect, began, transfer_s = self.began.pop(batch)
                    events.append(ev.Finished(batch, now - began, transfer_s, self.physics.outcomes(effect)))
                self._predict(what.node)
        elif isinstance(what, _Begin):
            if what.effect.batch in self.aborted:
                self.aborted.discard(what.effect.batch)
            else:
                self._begin(what.effect, now, what.transfer_s)
        elif isinstance(what, ev.Pressure):
            self.faults -= 1
            if what.node in self.shared:
                self.shared[what.node].set_pressure(now, what.pressure)
                self._predict(what.node)
            events.append(what)
        elif isinstance(what, ev.NodeJoined):
            if what.node.name in self.nodes:
                self.faults -= 1
            else:
                self.nodes[what.node.name] = what.node
                self.physics.join(what.node)
                if self.physics.has_interference:
                    self.shared[what.node.name] = SharedNode(what.node, self.scenario.profiles)
            events.append(what)
        else:
            assert isinstance(what, ev.NodeLost | ev.NodeChanged), what
            self.faults -= 1
            events.append(what)

    def _arrive(self, now: float, workflow: str, loop: "Loop | None") -> ev.Arrived:
        id = self.next_request
        self.next_request = id + 1
        slo = self.slo[workflow]
        if loop is not None:
            self.loop_of[id] = loop, now
        items = self._admit(id, workflow)
        return ev.Arrived(Request(id, workflow, now, now + slo.latency_s, slo.cost_usd), items)

    def _admit(self, id: int, workflow: str) -> int:
        """Let the physics know of a request; gives the number of items of its input."""
        ordinal = self.ordinals[workflow]
        self.ordinals[workflow] = ordinal + 1
        return self.physics.admit(id, ordinal, workflow)

    # --- acting effects out ----------------------------------------------------------------------------------------

    def _run_alone(self, effect: fx.RunBatch) -> None:
        """Nothing disturbs a batch: its end is known when it starts."""
        physics = self.physics
        is_moved = effect.transfer_mb or effect.copy_mb or physics.has_overhead
        transfer_s = physics.transfer_s(effect) if is_moved else 0.0
        work_s = physics.work_s(effect)
        self.sequence = sequence = self.sequence + 1
        finished = ev.Finished(effect.batch, work_s, transfer_s, physics.outcomes(effect))
        heappush(self.heap, (effect.at + transfer_s + work_s, sequence, finished))

    def _run_shared(self, effect: fx.RunBatch) -> None:
        """Others may slow a batch down: its node will tell when it ends."""
        transfer_s = self.physics.transfer_s(effect)
        at = effect.at + transfer_s
        if at > self.controller.now:
            self.push(at, _Begin(effect, transfer_s))
        else:
            self._begin(effect, at, transfer_s)

    def _begin(self, effect: fx.RunBatch, now: float, transfer_s: float) -> None:
        """On a node with interference: start to consume the work."""
        self.began[effect.batch] = (effect, now, transfer_s)
        self.shared[effect.node].begin(now, effect, self.physics.work_s(effect))
        self._predict(effect.node)

    def _predict(self, node: str) -> None:
        at = self.shared[node].next_end()
        if at < inf:
            self.push(max(at, self.controller.now), _NodeEnds(node, self.shared[node].version))

    def _start_instance(self, effect: fx.StartInstance) -> None:
        self.push(effect.at + self.physics.cold_start_s(effect), ev.InstanceReady(effect.instance))

    def _stop_instance(self, effect: fx.StopInstance) -> None:
        """What still runs on the instance never ends."""
        if effect.batch >= 0:
            self._stop_batch(effect)
        if self.end_s:
            self.push(effect.at + self.end_s, ev.InstanceGone(effect.instance))

    def _stop_batch(self, effect: fx.StopInstance) -> None:
        found = self.began.pop(effect.batch, None)
        if found is None:
            self.aborted.add(effect.batch)
        else:
            node = found[0].node
            self.shared[node].end(self.controller.now, effect.batch)
            self._predict(node)

    def _ended(self, effect: fx.Answer | fx.Refuse) -> None:
        """A user of a closed loop has its answer, and thinks before the next call."""
        loop, called = self.loop_of.pop(effect.request, (None, 0.0))
        if loop is not None:
            at = effect.at + loop.think()
            if at <= called:  # refused at once and never thinking: time must pass nevertheless
                at = called + _LEAST_ROUND_S
            if loop.calls_at(at):
                self.coming += 1
                self.push(at, loop)

    def _add_node(self, effect: fx.AddNode) -> None:
        pattern = self.scenario.cluster.kinds[effect.kind]
        self.sequence += 1
        name = f"{pattern.name}+{self.sequence}"
        node = msgspec.structs.replace(pattern, name=name)
        bounds = self.scenario.growth.get(effect.kind)
        own_s = None if bounds is None else bounds.provision_s
        self.push(effect.at + (self.scenario.provision_s if own_s is None else own_s), ev.NodeJoined(node))

    def _remove_node(self, effect: fx.RemoveNode) -> None:
        """The controller has emptied it already."""

    # --- scheduling --------------------------------------------------------------------------------------------------

    def push(self, at: float, what: object) -> None:
        """Put an event, or what will become one, among what is to come."""
        self.sequence += 1
        heappush(self.heap, (at, self.sequence, what))

    def _schedule_faults(self) -> None:
        for fault in self.scenario.node_faults:
            self.push(fault.at_s, ev.NodeLost(fault.node))
            if fault.back_s is not None:
                self.push(fault.at_s + fault.back_s, ev.NodeJoined(self.nodes[fault.node]))
        for change in self.scenario.pressures:
            self.push(change.at_s, ev.Pressure(change.node, change.pressure))
        self.faults = len(self.scenario.pressures) + sum(
            1 + (fault.back_s is not None) for fault in self.scenario.node_faults
        )


class _NodeEnds(msgspec.Struct, frozen=True, gc=False):
    """The next batch on a node ends, unless the node's state has changed since."""

    node: str
    version: int


class _Begin(msgspec.Struct, frozen=True, gc=False):
    """A batch has its input and begins to work."""

    effect: fx.RunBatch
    transfer_s: float


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Let the garbage collector look less often: a run makes millions of values and no cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def parameters_of(dispatcher: Policy, scaler: Policy | None) -> dict[str, object]:
    """The parameters of both, by name."""
    of_scaler = {} if scaler is None else {f"scaler.{name}": value for name, value in asdict(scaler).items()}
    return asdict(dispatcher) | of_scaler


def _schedule(scenario: Scenario, seed: int) -> list[tuple[float, str]]:
    """All open-loop arrivals as (instant, workflow), in order."""
    times, workflows = open_arrivals(scenario, seed)
    names = list(scenario.workflows)
    return list(zip(times.tolist(), [names[i] for i in workflows.tolist()], strict=True))
