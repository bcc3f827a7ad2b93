"""One app, served: the controller on the real clock, instances that act its effects out, and the values in between.

Everything happens on the thread of the event loop. Events that come in within one turn of the loop are handed to the
controller together, as one instant; it is called when something happened or when it asked to be, never by polling.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import thread_time
from typing import Protocol

import msgspec

from fairlead.app.manifest import Manifest
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.books import NoRows, Recorder
from fairlead.engine.core.controller import Controller
from fairlead.engine.core.replytime import ReplyTime
from fairlead.engine.core.site import prepare
from fairlead.engine.core.transfers import INLINE_MB
from fairlead.engine.live.clock import REAL, Clock
from fairlead.engine.live.contracts import InstanceSpec
from fairlead.engine.live.deadlines import Deadlines
from fairlead.engine.live.demand import Amount, Demand, held_by, together
from fairlead.engine.live.fallback import fall_back
from fairlead.engine.live.instances import Instances
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.needs import Needs
from fairlead.engine.live.obstacles import Obstacles
from fairlead.engine.live.pool import WarmPool
from fairlead.engine.live.predictions import predictions_of
from fairlead.engine.live.routes import Route
from fairlead.engine.live.scaling import Notes, Scalings, ScalingWatch
from fairlead.engine.live.sharing import Seat
from fairlead.engine.live.status import CacheStatus
from fairlead.engine.live.tally import Tally
from fairlead.engine.live.tracing.tracer import Tracer
from fairlead.engine.live.transit import Done, OpenRequest, Origin, Transit
from fairlead.engine.live.values import LOST_INPUT, MOST_ITEMS, Ending, Outcome, Result, Value
from fairlead.engine.live.warmup import WarmUp
from fairlead.engine.live.watch import NodeWatch
from fairlead.errors import ConfigError, FairleadError, Fault, PolicyError
from fairlead.model import Invocation, Node, Refusal, Request
from fairlead.policy import make_policy
from fairlead.policy.base import Move, Resize, Retire, Scale, Warm
from fairlead.workload import Scenario

Log = Callable[[str], None]

_TIMER_ROUNDING_S = 0.0005
_LOOK_AGAIN_S = 1.0  # how often it is checked whether a request that is late can still go on


class RunLog(Recorder, Scalings, Protocol):
    """Where a run is recorded. `times_s` takes the CPU time of each decision, where those are wanted."""

    times_s: list[float]

    def log(self, now: float, events: Sequence[ev.Event]) -> None:
        """Note what the controller is told."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """Note an action that could not be carried out."""
        ...

    def close(self, end_s: float, stale_events: int = 0) -> None:
        """The run is over."""
        ...


class Runtime:
    """Serves one app until it is drained.

    Args:
        manifest: The app.
        scenario: What the controller is told of it: cluster, functions, profiles, workflows, and the policies.
        instances: Where functions run.
        log: Gets a line for everything worth knowing.
        record: Takes the run's records; None keeps none.
        seed: Of the policies' own randomness.
        is_watched: Whether the nodes are watched by the monitor; None for where there is a scaler, if it can be done.
        warms_up: Whether the examples of the app run before it is served, unless the app itself forbids it.
        broken: Called with a fault of ours: effects are lost, so requests would stay open for ever, and only a new
            start helps. Without it the fault is raised.
        max_items: How many items a list may give to a map stage.
        is_timed: Whether the CPU time of every decision is recorded.
        seat: Its place in a cluster that other apps use too; None for a cluster of its own.
        clock: Where instants come from.
        tracer: Takes the traces of requests; None to trace none.
    """

    def __init__(
        self,
        manifest: Manifest,
        scenario: Scenario,
        instances: Instances,
        log: Log,
        record: RunLog | None = None,
        seed: int = 0,
        broken: Callable[[Exception], None] | None = None,
        *,
        is_watched: bool | None = None,
        max_items: int = MOST_ITEMS,
        warms_up: bool = True,
        is_timed: bool = False,
        seat: Seat | None = None,
        clock: Clock = REAL,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._broken = broken
        self._clock = clock
        self._monotonic = clock.now
        self._is_watched = is_watched
        self._watch: NodeWatch | None = None
        self._signals_at = inf  # when the controller is next told what was seen
        self.manifest = manifest
        self._name = f"{manifest.name}-{instances.generation}"  # begins the names of its requests
        self.scenario = scenario
        self._instances = instances
        self._seat = seat
        self._needs = Needs(scenario)
        self._log = log
        self._record = record
        self._routes = {spec.name: Route(spec) for spec in manifest.workflows}
        large = {name for name, function in scenario.functions.items() if function.output_mb > INLINE_MB}
        self._transit = Transit(instances.values, max_items, large)
        self._open = self._transit.open
        self._predictions = predictions_of(manifest, self._transit, instances.values)
        self._recalled: list[ev.Recalled] = []  # at this instant
        self._vcpus: dict[int, float] = {}  # by instance: its CPU limit now
        self._next_request = 0
        self._parked: dict[int, tuple[OpenRequest, int, bool]] = {}  # see `_unpark`
        self._deadlines = Deadlines(lambda: self.now, self._open, self._look_at_late)
        self._events: list[ev.Event] = []
        self._cancelled: list[int] = []  # requests that were cancelled in the turn in which they arrived
        self._is_due = False  # whether a turn is scheduled
        self._is_in_turn = False
        self._is_giving_up = False
        self._is_opening = True  # until all that a former gateway left is adopted or gone, nothing is decided
        self._is_closed = False  # nothing is started any more, whatever is heard of instances
        self._has_answered = False  # in this turn
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = inf  # when it rings
        self._wanted_at = inf  # when the controller wants to be called; not before the timer rings
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self.policy_name = scenario.policy.name
        self.scaler_name = None if scenario.scaler is None else scenario.scaler.name
        self.policy_errors = 0
        self._refused = 0
        dispatcher = make_policy(scenario.policy.name, scenario.policy.parameters)
        self._reply_time = ReplyTime(dispatcher)
        own = scenario.scaler
        scaler = None if own is None else make_policy(own.name, own.parameters)
        names = (scenario.policy.name, own.name if own else "scaler")
        prepare((dispatcher, scaler), names, scenario, seed)
        rows = NoRows() if record is None else record
        self.controller = Controller(
            scenario,
            dispatcher,
            scaler,
            thread_time if is_timed and record is not None else None,
            names,
            rows,
            growable=instances.capabilities.growable,
            awaits_end=True,
            send=self._run_batch,
            recall=None if self._predictions is None else self._recall,
            seed=seed,
        )
        if is_timed and record is not None:
            record.times_s = self.controller.decisions.times_s
        self.tally = Tally(manifest, self.controller, clock)
        self._scaling = None if scaler is None else ScalingWatch(self.controller, scaler, record, log)
        self._pool = WarmPool(manifest, self.controller, self.order, log, clock)
        self._warms_up = warms_up and manifest.warm_up
        self._warm_up = WarmUp(
            manifest, self.controller, instances, self._pool, log, self.lost, self._resize, self.order, clock
        )
        self._obstacles = Obstacles(manifest, self.controller, self._pool)
        self._act: dict[type, Callable[..., None]] = {
            fx.StartInstance: self._start_instance,
            fx.RunBatch: self._run_batch,
            fx.StopInstance: self._stop_instance,
            fx.Answer: self._answer,
            fx.Refuse: self._refuse,
            fx.AddNode: self._add_node,
            fx.RemoveNode: self._remove_node,
        }

    # --- the gateway's side ----------------------------------------------------------------------------------------

    async def open(self, *, is_patient: bool = False) -> None:
        """Start the back end and the first instances, wait until each function has one, and run the examples on them.

        ConfigError if one cannot start; to the patient, that is no error: it is tried again, while others serve.
        """
        self._loop = asyncio.get_running_loop()
        self._began = self._monotonic()
        self.started_unix = self._clock.wall()
        self._instances.claim(self)
        if self._seat is not None:
            self._seat.take(self)  # before anything starts
        await self._instances.open()
        self._is_opening = False
        if self._events:
            self._turn_soon()
        await self._begin_watch()
        self._pool.fill(is_patient=is_patient, is_scaled=self._scaling is not None)
        await self._pool.is_filled()
        if self._warms_up:
            times = await self._warm_up.run()
            if times:
                self._note(ev.Tried(times))
                self._turn()  # before anything else: the next request is decided by what was seen

    async def _begin_watch(self) -> None:
        """Have the nodes watched. ConfigError where that was asked for and cannot be."""
        if self._is_watched is False or (self._is_watched is None and self._scaling is None):
            return
        places = [place for place in self._instances.places() if place.name in self.controller.nodes]
        watch = NodeWatch(places, self._log)
        try:
            await asyncio.to_thread(watch.open)
        except FairleadError as error:
            if self._is_watched:
                raise ConfigError(self.manifest.name, [Fault("monitor", str(error))]) from error
            self._log(f"nodes are not watched: {error}")
            return
        self._watch = watch
        self._signals_at = self.scenario.control_period_s
        if self._scaling is None:  # nobody has control periods: they are kept here
            self._loop.call_later(self.scenario.control_period_s, self._note_signals)

    def _note_signals(self) -> None:
        if self._watch is not None:
            for event in self._watch.events():
                self._note(event)
            self._loop.call_later(self.scenario.control_period_s, self._note_signals)

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._monotonic() - self._began

    @property
    def open_requests(self) -> int:
        """How many requests are on their way."""
        return len(self._open)

    @property
    def refused_actions(self) -> int:
        """How many actions of the policies and of operators could not be carried out."""
        return self._refused

    def notes(self) -> Notes:
        """What the scaler noted after the last control period, by function."""
        return {} if self._scaling is None else self._scaling.notes

    @property
    def watch(self) -> NodeWatch | None:
        """Who watches the nodes; None where nobody does."""
        return self._watch

    @property
    def tried(self) -> Mapping[str, int]:
        """How often functions ran before the first request, because they were never measured."""
        return self._warm_up.runs

    def cpu_s(self, most: int | None = None) -> Mapping[str, float]:
        """CPU time of each function's instances so far, as far as it is known. See `Instances` for `most`."""
        return self._instances.cpu_s(most)

    def usage(self, instance: int) -> Usage:
        """What an instance has used so far."""
        return self._instances.usage(instance)

    def caches(self) -> Mapping[str, CacheStatus]:
        """How the prediction caches stand, by function."""
        return {} if self._predictions is None else self._predictions.status()

    def open_by_workflow(self) -> Counter[str]:
        """How many requests are on their way, by workflow."""
        return self._transit.by_workflow()

    def obstacles(self) -> tuple[str, ...]:
        """Why workflows cannot run now, as sentences; empty if all of them can."""
        return self._obstacles.all()

    def submit(
        self,
        workflow: str,
        value: Value,
        *,
        deadline_s: float | None,
        budget_usd: float | None,
        done: Done,
        late_limit_s: float | None = None,
        origin: Origin | None = None,
    ) -> int:
        """Take in a request, and say which number it has. `done` is called once, later, however it ends.

        With `late_limit_s` somebody waits for the answer: the request is dropped that long after its deadline, and at
        its deadline if it cannot run. Without, it waits while a function of its workflow is held at zero instances.
        `origin` is what its caller said; its id is that of the answer where it has none of its own.

        Raises:
            InputError: The workflow maps over its input, which is no list or too long.
            HeldAtZeroError: A caller waits for the answer, and a function of the workflow is held at zero instances.
        """
        if late_limit_s is not None:
            self._obstacles.require_instances(workflow)
        route = self._routes[workflow]
        spec = route.spec
        value, items = self._transit.take_in(value, route)
        now = self.now
        has_own_deadline = deadline_s is not None
        if deadline_s is None:
            deadline_s = inf if spec.slo_s is None else spec.slo_s
        if budget_usd is None:
            budget_usd = inf if spec.cost_usd is None else spec.cost_usd
        id = self._next_request
        self._next_request = id + 1
        request = Request(id, workflow, now, now + deadline_s, budget_usd)
        name = f"{self._name}-{id}"
        if origin is None:
            origin = Origin(name)
        else:
            origin = Origin(origin.id or name, origin.trace, name if origin.id else None)
        state = OpenRequest(request, route, value, items, done, origin)
        if self._tracer is not None:
            state.trace = self._tracer.begin(origin.trace, now)
        self.tally.arrived(workflow)
        if late_limit_s is None and self._obstacles.held_at_zero(workflow) is not None:
            self._parked[id] = state, items, has_own_deadline
            return id
        if late_limit_s is not None and request.deadline < inf:
            self._deadlines.add(request.deadline, id, request.deadline + late_limit_s)
        self._begin(state, items)
        return id

    def _begin(self, state: OpenRequest, items: int) -> None:
        self._open[state.request.id] = state
        self._idle.clear()
        self._note(ev.Arrived(self._reply_time.before(state.request), items))

    def _unpark(self) -> None:
        """Let asynchronous requests begin that came while a function was held at zero, once it is not any more.

        The objective of their workflow counts from now on; a deadline of their own stays what it is.
        """
        now = self.now
        for id, (state, items, has_own_deadline) in list(self._parked.items()):
            request = state.request
            if self._obstacles.held_at_zero(request.workflow) is not None:
                continue
            del self._parked[id]
            deadline = request.deadline if has_own_deadline else now + (request.deadline - request.arrival)
            if deadline <= now:
                self._end(state, "dropped", "its deadline passed while a function was held at 0 instances", None, None)
                continue
            state.request = msgspec.structs.replace(request, arrival=now, deadline=deadline)
            self._begin(state, items)

    def _look_at_late(self, request: int, last: float) -> float:
        """Drop a request that is past its deadline if it cannot go on, or past its last instant; else look again."""
        state = self._open[request]
        now = self.now
        reason = None
        if now >= last:
            late_s = last - state.request.deadline
            reason = f"there was no answer within {late_s:g} s after it"
        elif state.core is not None:
            reason = self._obstacles.of(state.core)
        if reason is None or state.core is None:
            return min(now + _LOOK_AGAIN_S, last)
        self._note(ev.Expired(request, reason))
        return inf

    def cancel(self, request: int) -> None:
        """Give a request up, unless it has ended."""
        parked = self._parked.pop(request, None)
        if parked is not None:
            reason = "the gateway is stopping" if self._is_giving_up else "the client gave up"
            self._end(parked[0], "cancelled", reason, None, None)
            return
        state = self._open.get(request)
        if state is not None:
            if state.core is None:  # the controller has not heard of it yet, and hears of cancelling first
                self._cancelled.append(request)
            else:
                self._note(ev.Cancelled(request))

    def order(self, action: Warm | Retire | Scale | Resize | Move, *, holds: bool = False) -> None:
        """Have an action carried out; with `holds`, as an operator's order that policies may not undo."""
        self._note(ev.Ordered(action, holds))

    def scale(self, function: str, instances: int | None) -> None:
        """Fix a function's number of instances; None leaves its number and its node to the policies again."""
        self._pool.scale(function, instances)

    def move(self, function: str, node: str) -> None:
        """Bring a function's instances to a node; from then on it has as many as it has now, until it is scaled."""
        self._pool.move(function, node)

    def retire(self, *, is_removed: bool = False) -> None:
        """Get ready to end once nothing is open: what an operator held is given back.

        A function that is held at zero would keep its requests waiting for ever, and replicas that nothing calls may
        take the room that the others need. Requests that never began because of a hold begin then; they fail if the app
        is removed.
        """
        if is_removed:
            for state, _, _ in self._parked.values():
                reason = f"the app {self.manifest.name!r} was removed before the request could run"
                self._end(state, "failed", reason, None, None)
            self._parked.clear()
        for function in self.scenario.functions:
            if function in self.controller.holds:
                self.scale(function, None)
        if self._parked:
            self._idle.clear()  # they begin in the next turn

    async def drained(self) -> None:
        """Wait until no request is on its way. Those that may not run because of an operator's hold do not count."""
        await self._idle.wait()

    def give_up(self) -> None:
        """Cancel every request that is open."""
        self._is_giving_up = True
        for request in (*self._parked, *self._open):
            self.cancel(request)

    async def close(self) -> None:
        """End it: requests that are still open end as cancelled."""
        self._pool.close()
        self._deadlines.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self.give_up()
        self._turn()
        if self._open:  # they arrived in that very turn
            self._turn()
        if self._timer is not None:
            self._timer.cancel()
        if self._scaling is not None:
            self._scaling.close()
        self._is_closed = True
        await self._instances.close()
        if self._predictions is not None:
            self._predictions.close()
        if self._seat is not None:
            self._seat.leave()
        self.controller.finish()
        if self._record is not None:
            self._record.close(self.now, self.controller.stale_events)

    # --- what is heard of instances and nodes -------------------------------------------------------------------

    def ready(self, instance: int) -> None:
        """An instance has started."""
        self._note(ev.InstanceReady(instance))
        self._pool.ready(instance)

    def lost(self, instance: int, error: str) -> None:
        """An instance is gone."""
        running = self.controller.pool.instances.get(instance)
        if running is not None and running.is_ready and running.batch >= 0:
            self._transit.forget(running.batch)
        self._vcpus.pop(instance, None)
        self._warm_up.lost(instance, error)
        self._pool.stopped(instance, error)
        self._note(ev.InstanceLost(instance, error))

    def adopted(self, spec: InstanceSpec) -> int | None:
        """An instance of a former gateway is ready and idle; None where it fits no configuration of its function."""
        profile = self.scenario.profiles.get(spec.function)
        if profile is None:
            return None
        own_gb = self.scenario.functions[spec.function].memory_gb
        fitting = [
            configuration
            for configuration in profile.configurations
            if configuration.vcpus == spec.vcpus
            and configuration.vgpus == spec.vgpus
            and (configuration.memory_gb or own_gb) == spec.memory_gb
        ]
        if not fitting:
            return None
        event = self.controller.adopt(spec.function, min(fitting), spec.node, spec.device)
        self._vcpus[event.instance] = spec.vcpus
        self._pool.adopted(event.instance, spec.function)
        self._note(event)
        return event.instance

    def ended(self, instance: int) -> None:
        """An instance that was stopped is gone."""
        self._note(ev.InstanceGone(instance))

    def resize_refused(self, instance: int, vcpus: float, reason: str) -> None:
        """An instance keeps its CPU limit."""
        self._vcpus[instance] = vcpus
        self._note(ev.ResizeRefused(instance, vcpus))

    def evicted(self, instance: int, buffers: Sequence[str]) -> None:
        """Constants of a kernel have left the device of an instance."""
        self._note(ev.BuffersEvicted(instance, tuple(buffers)))

    def node_joined(self, node: Node) -> None:
        """A node can be used. One of a kind that this deployment does not know is left to the next deployment."""
        known = self.scenario.cluster.kinds.get(node.kind)
        if known is None or known.speed != node.speed:
            what = f"of kind {node.kind!r} with speed {node.speed:g}"
            self._log(f"node {node.name} is {what}, which {self.manifest.name} was not deployed for: deploy it again")
            return
        self._note(ev.NodeJoined(node))

    def node_changed(self, node: Node) -> None:
        """A node has other capacities. In a shared cluster the lease that follows says how much of it is this app's."""
        vgpus = tuple(device.vgpus for device in node.devices)  # a device that is lost and in use has nothing to give
        self._note(ev.NodeChanged(node.name, node.capacity_vcpus, node.memory_gb, node.devices, vgpus))

    def lease(self, node: str, vcpus: float, memory_gb: float, vgpus: tuple[float, ...]) -> None:
        """From now on this app may use this much of a node, and of each of its devices."""
        self._note(ev.NodeChanged(node, vcpus, memory_gb, None, vgpus or None))

    def demand(self) -> Demand:
        """What this app uses of every node, and what its waiting work could use besides."""
        demand = self._needs.demand(self.controller, self._pool.missing(), self.now)
        known = self.controller.pool.instances
        unknown = held_by(spec for number, spec in self._instances.claimed() if number not in known)
        if not unknown:
            return demand
        uses = {node: together(use, unknown.get(node, Amount())) for node, use in demand.uses.items()}
        return msgspec.structs.replace(demand, uses=uses)

    def lacks_room(self) -> bool:
        """Whether there is work that does not fit into the leases of this app."""
        return self._needs.lacks_room(self.controller, self.now, is_short=bool(self._pool.missing()))

    def node_lost(self, name: str, reason: str) -> None:
        """A node is gone, with what ran there."""
        self._log(f"node {name} was lost: {reason}")
        self._note(ev.NodeLost(name))

    def node_draining(self, event: ev.NodeDraining) -> None:
        """An operator drains a node; one that was never known here is left alone."""
        if event.node in self.controller.nodes:
            self._note(event)

    def node_reopened(self, node: Node) -> None:
        """A node that was drained is used again."""
        if node.name in self.controller.nodes:
            self._note(ev.NodeDraining(node.name, "open"))
        else:
            self.node_joined(node)

    def is_moving(self, node: str) -> bool:
        """Whether instances that were started for those of a draining node are not ready yet, as far as is known."""
        return self.controller.drains.is_moving(node)

    def has_left(self, node: str) -> bool:
        """Whether nothing of this app exists on a draining node any more."""
        return self.controller.drains.has_left(node)

    def finished(self, batch: int, results: Sequence[Result], work_s: float, transfer_s: float = 0.0) -> None:
        """A batch has ended: its instance has nothing to do until the controller knows."""
        if batch < 0:
            self._warm_up.finished(batch, results)
            return
        found = self._transit.finish(batch, results, self.now, transfer_s)
        if found is None:
            return
        running, event = found
        if self._predictions is not None and event.outcomes is not None:
            self._predictions.finished(running, results, event.outcomes)
        self._note(event)
        if not self._is_in_turn:  # it goes before what else the loop has to do
            self._turn()
        self.tally.batch(running, event.work_s, event.transfer_s)

    # --- the controller's side -------------------------------------------------------------------------------------

    def _note(self, event: ev.Event) -> None:
        if self._is_closed:
            return
        self._events.append(event)
        if not self._is_opening:
            self._turn_soon()

    def _turn_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn_if_due)

    def _turn_if_due(self) -> None:
        if self._is_due and not self._is_closed:  # a batch that ended meanwhile may have brought the turn forward
            self._turn()

    def _turn(self) -> None:
        self._is_in_turn = True
        try:
            self._take_turn()
        except Exception as error:
            if self._broken is None:
                raise
            self._broken(error)
        finally:
            self._is_in_turn = False

    def _take_turn(self) -> None:
        """Tell the controller all that happened since the last turn, and do what it wants done."""
        self._is_due = False
        events, self._events = self._events, []
        controller = self.controller
        now = self._monotonic() - self._began
        if now >= self._signals_at and self._watch is not None and self._scaling is not None:  # the scaler is due
            events = [*self._watch.events(), *events]
            self._signals_at = now + self.scenario.control_period_s
        is_logged_later = self._predictions is not None  # with what is recalled meanwhile
        if self._record is not None and not is_logged_later:
            self._record.log(now, events)
        try:
            effects = controller.handle(now, events)
        except PolicyError as error:
            effects = controller.effects
            self._fall_back(error)
        finally:
            if is_logged_later:
                recalled, self._recalled = self._recalled, []
                if self._record is not None:
                    self._record.log(now, [*events, *recalled])
        for event in events:
            if type(event) is ev.Arrived:
                id = event.request.id
                state = self._open[id]
                state.core = controller.requests.get(id)
                if state.trace is not None:
                    state.trace.decided(self.now)
        act = self._act
        for effect in effects:
            act[type(effect)](effect)
        if self._has_answered:  # what was woken by the answers runs before what is asked for now
            self._has_answered = False
            self._loop.call_soon(self._observe_answers, now)
        if self._cancelled:
            cancelled, self._cancelled = self._cancelled, []
            for request in cancelled:
                self.cancel(request)
        if controller.refusals:
            self._note_refusals(controller.refusals)
        if self._scaling is not None:
            self._scaling.look(now)
        if self._parked:
            self._unpark()
        if self._pool.is_short:
            self._pool.keep()
        if self._seat is not None:
            self._seat.turned(self)
        self._wanted_at = wake = controller.next_wake
        if wake < self._armed_at:  # a timer that rings earlier is left as it is, and set again when it rings
            self._arm(wake)

    def _recall(self, ready: Sequence[Invocation]) -> Sequence[ev.Recalled]:
        """What the prediction caches have for invocations that have just become ready."""
        assert self._predictions is not None
        found = self._predictions.recall(ready, self.controller.waiting.tasks, self.controller.now)
        self._recalled += found
        return found

    def _observe_answers(self, since: float) -> None:
        self._reply_time.observe(self.now - since)

    def _arm(self, wake: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._armed_at = self._loop.call_later(self._delay_s(wake), self._wake), wake

    def _wake(self) -> None:
        self._timer, self._armed_at = None, inf
        wake = self._wanted_at
        if wake <= self.now:
            self._wanted_at = inf
            if not self._is_due:
                self._turn()
        elif wake < inf:  # too early for anything to be due
            self._arm(wake)

    def _delay_s(self, wake: float) -> float:
        """How long to sleep until an instant: the loop rounds to milliseconds, and may not come before it."""
        return max(0.0, wake - self.now) + _TIMER_ROUNDING_S

    def _note_refusals(self, refusals: list[Refusal]) -> None:
        """Write down the actions that could not be carried out; a run without end must not keep them."""
        self._refused += len(refusals)
        if self._record is not None:
            for refusal in refusals:
                self._record.refused(refusal)
        refusals.clear()

    def _fall_back(self, error: PolicyError) -> None:
        """A policy raised: another one takes over, and nothing that was accepted is lost."""
        self.policy_errors += 1
        is_scaler = self.controller.decisions.is_scaler(error.policy)
        name, policy = fall_back(self.controller, error)
        self._log(f"{error}; {name} takes over")
        if is_scaler and self._scaling is not None:
            self.scaler_name = name
            self._scaling.replace(policy)
        else:
            self.policy_name = name
        self._turn_soon()

    def _start_instance(self, effect: fx.StartInstance) -> None:
        function = self.scenario.functions[effect.function]
        memory_gb = effect.configuration.memory_gb or function.memory_gb
        configuration = msgspec.structs.replace(effect.configuration, memory_gb=memory_gb)
        self._vcpus[effect.instance] = configuration.vcpus
        self._pool.started(effect.instance, effect.function)
        is_kernel = bool(function.buffers) and configuration.vgpus > 0
        self._instances.start(
            effect.instance, effect.function, configuration, effect.node, effect.device, is_kernel=is_kernel
        )

    def _run_batch(self, effect: fx.RunBatch) -> None:
        """Send a batch to its instance, which begins while the policy goes on."""
        instance = self.controller.running[effect.batch]
        self._resize(effect.instance, effect.configuration.vcpus)
        predicted_s = self.tally.predict_s(effect.function, effect.configuration, effect.node)
        # Its time counts from the decision, as policies plan it: what the loop does before the batch is sent is part.
        keys, inputs, about = self._transit.begin(effect, instance.start, instance.cold_s, effect.at, predicted_s)
        if inputs:
            self._instances.run(effect.batch, effect.instance, keys, inputs, about)
        else:  # all of them ended while the instance started
            self.finished(effect.batch, (), 0.0)

    def _resize(self, instance: int, vcpus: float) -> None:
        if self._vcpus.get(instance) != vcpus:
            self._vcpus[instance] = vcpus
            self._instances.resize(instance, vcpus)

    def _stop_instance(self, effect: fx.StopInstance) -> None:
        self._transit.forget(effect.batch)
        self._vcpus.pop(effect.instance, None)
        self._pool.stopped(effect.instance)
        self._warm_up.lost(effect.instance, "it was stopped")
        self._instances.stop(effect.instance, now=effect.batch >= 0)

    def _add_node(self, effect: fx.AddNode) -> None:
        """Ask for a node of one of the kinds that the provider can add; the controller asks for no other."""
        self._instances.grow(effect.kind)

    def _remove_node(self, effect: fx.RemoveNode) -> None:
        """Give back a node on which nothing runs any more."""
        self._instances.shrink(effect.node)

    def _answer(self, effect: fx.Answer) -> None:
        state = self._open.pop(effect.request)
        self._has_answered = True
        if effect.outcome == "completed":
            self._end(state, "completed", effect.reason, None, state.answer())
        else:
            self._end(state, "failed", effect.reason, None, None)

    def _refuse(self, effect: fx.Refuse) -> None:
        state = self._open.pop(effect.request)
        outcome: Outcome = (
            "rejected" if effect.outcome == "rejected" else "dropped" if effect.outcome == "dropped" else "cancelled"
        )
        reason = "the gateway is stopping" if self._is_giving_up and outcome == "cancelled" else effect.reason
        self._end(state, outcome, reason, effect.retry_after_s, None)

    def _end(
        self, state: OpenRequest, outcome: Outcome, reason: str | None, retry_after_s: float | None, value: Value | None
    ) -> None:
        request = state.request
        core = state.core
        ending = Ending(
            request=request.id,
            workflow=request.workflow,
            outcome=outcome,
            arrival=request.arrival,
            end=self.now,
            deadline=request.deadline,
            value=value,
            reason=reason,
            code="value_lost" if outcome == "failed" and (reason or "").startswith(LOST_INPUT) else None,
            retry_after_s=retry_after_s,
            cost_usd=core.cost_usd if core else 0.0,
            promised=core.promised if core else None,
            wait_s=state.wait_s,
            cold_s=state.cold_s,
            run_s=state.run_s,
            traceback=state.traceback if outcome == "failed" else None,
        )
        self._transit.leave(state, value)
        if self._predictions is not None:
            self._predictions.forget(request.id)
        if state.trace is not None and self._tracer is not None:
            self._tracer.put(state.trace.ended(ending, state.origin.id))
        state.done(ending)  # before the books are closed: somebody waits for it
        self.tally.ended(ending)
        if not self._open:
            self._idle.set()
