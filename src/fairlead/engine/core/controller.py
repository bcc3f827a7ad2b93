"""The controller: a state machine with no clock and no I/O.

`handle(now, events)` applies all events of one instant, fires its own timers, asks the scaler if its period is due,
then the dispatcher once, and returns the effects. Drivers (`engine.sim`, `engine.live`) supply time and act effects
out.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from math import inf

from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core import transfers
from fairlead.engine.core.abandoned import Abandoned
from fairlead.engine.core.belief import Beliefs
from fairlead.engine.core.books import Books, Recorder, Rows
from fairlead.engine.core.capacity import InstanceState, NodeState, milli
from fairlead.engine.core.changes import ChangeLog
from fairlead.engine.core.decisions import Decisions
from fairlead.engine.core.draining import Drains
from fairlead.engine.core.holds import Holds
from fairlead.engine.core.placement import Placement
from fairlead.engine.core.pool import Pool
from fairlead.engine.core.progress import RequestState, WorkflowPlan
from fairlead.engine.core.queues import Task, Waiting
from fairlead.engine.core.races import Races, is_wanted
from fairlead.engine.core.recalling import Recall, Recalling
from fairlead.engine.core.recoveries import Recoveries
from fairlead.engine.core.roster import Roster
from fairlead.engine.core.running import Running
from fairlead.engine.core.scaling import Replicas
from fairlead.engine.core.site import with_tried
from fairlead.engine.core.timers import Timers
from fairlead.model import Configuration, Invocation, Refusal
from fairlead.policy.base import Policy, View
from fairlead.workload import Scenario

ALL_WELL = ev.Outcome()


class Controller:
    """Queues, instances, capacities and deadlines of one run, and the policies that decide over them.

    Args:
        scenario: Everything declared: cluster, functions, workflows, settings. Arrivals are the driver's business.
        dispatcher: Prepared by the caller.
        scaler: Prepared by the caller; asked once per control period.
        stopwatch: Where the caller wants decision times measured, its clock; the controller has none.
        names: What the two policies are called in messages.
        recorder: Takes the rows of the books; without one, they are all kept.
        growable: The kinds of nodes that the driver can add and remove; None for all. A `Grow` or `Shrink` of any other
            kind is refused.
        awaits_end: Whether an instance that is stopped takes time to end: what it used is free when the driver says
            `InstanceGone`. Without, it is free at once.
        send: Takes each `RunBatch` as soon as it is decided, while the dispatcher may still think about others; without
            it they are among the effects. It must not call the controller.
        recall: Says which of the invocations that have just become ready need no run, because their answers are known.
            Asked at every instant, after its events and before any policy; see `Recalling`.
        seed: What the dispatcher was prepared with.
    """

    __slots__ = (
        "_apply",
        "_free_cold_start",
        "_has_kernels",
        "_plans",
        "_retries",
        "_seed",
        "_send",
        "abandoned",
        "beliefs",
        "books",
        "changes",
        "decisions",
        "drains",
        "effects",
        "freed",
        "fresh",
        "growable",
        "holds",
        "lost",
        "nodes",
        "now",
        "placement",
        "pool",
        "races",
        "recalling",
        "recoveries",
        "replicas",
        "requests",
        "roster",
        "running",
        "scenario",
        "stale_events",
        "timers",
        "transfers",
        "waiting",
    )

    def __init__(
        self,
        scenario: Scenario,
        dispatcher: Policy,
        scaler: Policy | None = None,
        stopwatch: Callable[[], float] | None = None,
        names: tuple[str, str] = ("dispatcher", "scaler"),
        recorder: Recorder | None = None,
        growable: Collection[str] | None = None,
        *,
        awaits_end: bool = False,
        send: Callable[[fx.RunBatch], None] | None = None,
        recall: Recall | None = None,
        seed: int = 0,
    ) -> None:
        self.scenario = scenario
        self.growable = growable
        self._send = send
        self._seed = seed
        self.now = 0.0
        policies = zip(names, (dispatcher, scaler), strict=True)
        self.changes = ChangeLog()
        watching = [(name, policy) for name, policy in policies if policy is not None]
        self.books = Books(watching, recorder or Rows(), self.changes.ended)
        self.stale_events = 0
        self.waiting = Waiting(self.changes.ready)
        self._has_kernels = any(function.buffers for function in scenario.functions.values())
        nodes = enumerate(scenario.cluster.nodes)
        self.nodes = {node.name: NodeState(i, node, self._has_kernels) for i, node in nodes}
        self.roster = Roster(scenario)
        self.placement = Placement(list(self.nodes.values()))
        self.running = Running()
        self.timers = Timers(self.running)
        self.pool = Pool(self.placement, self.timers, self._stopped, awaits_end=awaits_end)
        self.beliefs = Beliefs(scenario, self.pool)
        self.replicas = Replicas(self)
        self.drains = Drains(self)
        self.holds = Holds(self.replicas)
        self.races = Races(self)
        self.recoveries = Recoveries(self)
        self.transfers = transfers.Transfers(scenario)
        self.abandoned = Abandoned(self)
        self.requests: dict[int, RequestState] = {}
        self.fresh: list[int] = []
        self.freed: list[str] = []
        self.lost: list[Invocation] = []
        self.effects: list[fx.Effect] = []
        self._plans = {
            name: WorkflowPlan(workflow, scenario.functions) for name, workflow in scenario.workflows.items()
        }
        queues = (stage.queue for plan in self._plans.values() for stage in plan.stages)
        self.waiting.names += dict.fromkeys(queues)
        self._retries = 0  # invocations that wait for their retry delay
        self._free_cold_start = not scenario.cluster.price.bill_cold_start
        self.decisions = Decisions(self, dispatcher, scaler, stopwatch, names)
        self.recalling = Recalling(self, recall)
        self._apply: dict[type, Callable[..., None]] = {
            ev.Arrived: self._arrived,
            ev.Finished: self._finished,
            ev.InstanceReady: self._instance_ready,
            ev.InstanceLost: self._instance_lost,
            ev.InstanceGone: self._instance_gone,
            ev.InstanceAdopted: self._instance_adopted,
            ev.ResizeRefused: self._resize_refused,
            ev.BuffersEvicted: self._buffers_evicted,
            ev.NodeChanged: self._node_changed,
            ev.NodeDraining: self.drains.apply,
            ev.NodeLost: self._node_lost,
            ev.NodeJoined: self._node_joined,
            ev.Pressure: self._pressure,
            ev.Signalled: self._signalled,
            ev.Cancelled: self._cancelled,
            ev.Expired: self._expired,
            ev.Ordered: self.decisions.order,
            ev.Recalled: self.recalling.apply,
            ev.Tried: self._tried,
        }

    # --- the driver's side -------------------------------------------------------------------------------------

    def handle(self, now: float, events: Sequence[ev.Event]) -> list[fx.Effect]:
        """Apply all events of this instant, decide once, and say what is to be done."""
        if now < self.now:
            raise ValueError(f"time went back from {self.now} to {now}.")
        self.now = now
        effects: list[fx.Effect] = []
        self.effects = effects
        if len(events) > 1:
            events = sorted(events, key=_rank)
        for event in events:
            self._apply[type(event)](event)
        if self.recalling.is_due:
            self.recalling.ask()
        if now >= self.timers.soonest:
            self.timers.fire(now, self._expire, self._run_limit)
            if self.decisions.control_due:
                self.decisions.ask_scaler(now)
        if self.replicas.is_short:
            self.replicas.reconcile()
        if self.waiting.tasks or self.fresh or self.decisions.wake_due:
            self.decisions.ask_dispatcher(now)
            if self.abandoned and self.waiting.tasks:
                self.abandoned.reclaim()
        failure = self.books.failure
        if failure is not None:
            self.books.failure = None
            raise failure
        return effects

    @property
    def next_wake(self) -> float:
        """When the controller wants to be called again at the latest; infinity if never."""
        return self.timers.next()

    @property
    def view(self) -> View:
        """What the policies see."""
        return self.decisions.view

    @property
    def refusals(self) -> list[Refusal]:
        """Actions that could not be carried out."""
        return self.decisions.refusals

    @property
    def is_stuck(self) -> bool:
        """Whether requests are open and no retry is on its way: unless something runs, only a policy can help."""
        return not self._retries

    def finish(self) -> None:
        """Close the books: requests that are still open end as unfinished, instances live to the end."""
        for state in list(self.requests.values()):
            self.books.request(state, None, "unfinished")
        self.requests.clear()
        for instance in self.pool.instances.values():
            self.books.instance(instance, None, None)

    def adopt(self, function: str, configuration: Configuration, node: str, device: int = -1) -> ev.InstanceAdopted:
        """The event that lets an instance of a former gateway be used, with a number of its own.

        It must be among the events of the next `handle`. A replay is given the same events, and so the same numbers.
        """
        return ev.InstanceAdopted(self.pool.next_id(), function, configuration, node, device)

    def start_instance(self, instance: InstanceState) -> None:
        """Tell the driver to start an instance that has its capacity, once those evicted for it are gone."""
        endings = self.pool.endings
        if endings is None or not endings.hold_back(instance):
            self._start(instance)

    def _start(self, instance: InstanceState) -> None:
        function = instance.flavour.function
        device = -1 if instance.device is None else instance.device.index
        load_mb = None if instance.flavour.kernel is None else instance.load_mb
        what = (function.name, instance.configuration, instance.node.name, device, load_mb)
        how = (instance.starts_executor, instance.is_cut)
        self.effects.append(fx.StartInstance(self.now, instance.id, *what, *how))
        if function.start_limit_s < inf:
            begun = self.now  # its start may have been held back until now
            self._after(function.start_limit_s, lambda: self._start_limit(instance, begun))

    def run(self, instance: InstanceState, at: float) -> None:
        """Tell the driver to run a batch, now that its instance is ready, but not before it is decided."""
        shape, tasks = instance.shape, instance.tasks
        effect = fx.RunBatch(
            at,
            instance.batch,
            instance.id,
            shape.name,
            (tasks[0][0],) if len(tasks) == 1 else tuple([task[0] for task in tasks]),
            shape.configuration,
            instance.node.name,
            -1 if instance.device is None else instance.device.index,
            instance.transfer_mb,
            shape.copy_mb,
        )
        if shape.run_limit_s is not None:
            self.timers.limit(at + shape.run_limit_s, instance.batch)
        if self._send is None:
            self.effects.append(effect)
        else:
            self._send(effect)

    # --- events ------------------------------------------------------------------------------------------------

    def _arrived(self, event: ev.Arrived) -> None:
        request = event.request
        state = RequestState(request, self._plans[request.workflow])
        self.requests[request.id] = state
        ready = state.begin(event.items)
        if state.unresolved == 0:  # a map over an empty list is all there is to it
            self.close(state, "completed", None, None)
            self.effects.append(fx.Answer(self.now, request.id, "completed"))
            return
        self.fresh.append(request.id)
        for stage, item in ready:
            if stage.copies == 1:
                self.waiting.add(state, stage, item, 1, self.now)
            else:
                self.races.begin(state, stage, item)
        line = self.waiting.all
        if len(line.items) > line.limit:
            self.waiting.tidy()

    def _tried(self, event: ev.Tried) -> None:
        self.scenario = with_tried(self.scenario, event.times)
        self.beliefs.declare_again(self.scenario, event.times)
        self.decisions.prepare_again(self._seed)

    def _finished(self, event: ev.Finished) -> None:
        instance = self.running.end(event.batch)
        if instance is None:
            self.stale_events += 1
            return
        if self.abandoned:
            self.abandoned.pop(event.batch, None)
        now = self.now
        node, shape, tasks = instance.node, instance.shape, instance.tasks
        self.freed.append(node.name)
        instance.batch = -1
        if self.replicas.in_use:
            self.replicas.release(instance, now)
        else:
            self.pool.release(instance, now)
        if shape.kernel is not None and instance.device is not None:
            instance.device.buffers.ran(shape.kernel)
        shape.beliefs[node.kind].learn(event.work_s)
        if instance.transfer_mb:
            self.transfers.learn(instance, event.transfer_s)
        seconds = now - instance.start
        if self._free_cold_start:
            seconds -= instance.cold_s
        cost = seconds * shape.usd_per_s / len(tasks)
        for task, outcome in zip(tasks, event.outcomes or repeat(ALL_WELL)):  # noqa: B905 - the second may be endless
            self._done(instance, event, task, cost, outcome, now)

    def _done(
        self, instance: InstanceState, event: ev.Finished, task: Task, cost: float, outcome: ev.Outcome, now: float
    ) -> None:
        """One invocation of a batch has ended: let the next stages wait, or answer, or try again."""
        invocation, state, stage = task
        state.cost_usd += cost
        wanted = state.is_open if stage.copies == 1 else is_wanted(task)
        if not (outcome.ok and wanted):
            ending = "failed" if wanted else "discarded"
            self.books.invocation(instance, event.batch, task, cost, event.transfer_s, now, ending)
            if wanted and not (outcome.lost_at and self.recoveries.begin(task, outcome.lost_at)):
                self._retry_or_fail(task, outcome.error or "the function failed", stage.function.retries + 1)
            return
        self.books.invocation(instance, event.batch, task, cost, event.transfer_s, now, "done")
        if stage.copies > 1:
            self.races.win(task)
        if state.outputs is not None or outcome.output_mb is not None:
            transfers.keep(state, stage, invocation.item, instance.node.name, outcome.output_mb)
        if self.recoveries.open and self.recoveries.end(state, stage, invocation.item):
            return  # what follows from it has happened before
        if state.is_chain:
            state.unresolved -= 1
            following = stage.then
        else:
            following = state.advance(stage, invocation.item, outcome.arm, outcome.items)
        for successor, item in following:
            if successor.copies == 1:
                self.waiting.add(state, successor, item, 1, now)
            else:
                self.races.begin(state, successor, item)
        if state.unresolved == 0:
            self.close(state, "completed", None, None)
            self.effects.append(fx.Answer(now, state.request.id, "completed"))

    def _instance_ready(self, event: ev.InstanceReady) -> None:
        instance = self.pool.instances.get(event.instance)
        if instance is None or instance.is_ready:
            self.stale_events += 1
            return
        instance.is_ready = True
        instance.ready = self.now
        instance.flavour.unready -= 1
        self.changes.started.append(instance)
        kernel = instance.flavour.kernel
        if kernel is not None and instance.device is not None:
            instance.device.buffers.ready(kernel)
        if instance.is_replica and instance.batch < 0:
            self.replicas.ready(instance)
        elif instance.batch >= 0:
            instance.cold_s = max(0.0, self.now - instance.start)
            self.run(instance, max(self.now, instance.start))
        else:
            instance.flavour.starting[instance.node.index].remove(instance)
            self.pool.release(instance, self.now)
            is_scaled = instance.flavour.function.name in self.replicas.sets  # while this started
            if is_scaled and instance.id in self.pool.instances:
                self.pool.stop(instance, self.now, "retired")
            if instance.node.is_draining:
                self.replicas.drain_node(instance.node)

    def _instance_lost(self, event: ev.InstanceLost) -> None:
        self._ended(event.instance, event.error)

    def _instance_gone(self, event: ev.InstanceGone) -> None:
        self._ended(event.instance, "the instance ended")

    def _ended(self, id: int, error: str) -> None:
        """An instance exists no more, whether it was told to stop or not."""
        instance = self.pool.instances.get(id)
        if instance is None:
            self._freed(id)
            return
        batch = instance.batch
        self.end_instance(instance, "lost")
        if batch >= 0:
            self._lose(instance, error)

    def _freed(self, id: int) -> None:
        """A terminating instance exists no more: others may have its room."""
        instance = self.pool.gone(id, self.now)
        endings = self.pool.endings
        if instance is None or endings is None:
            self.stale_events += 1
            return
        self.note_freed(instance.node)
        for waiting in endings.startable():
            self._start(waiting)
        if instance.node.is_draining and not instance.node.is_up:
            self.replicas.remove_node(instance.node)

    def _instance_adopted(self, event: ev.InstanceAdopted) -> None:
        node = self.nodes.get(event.node)
        shape = self.beliefs.shape(event.function, event.configuration)
        adopted = None
        if node is not None and shape is not None and event.function not in self.replicas.sets:
            adopted = self.pool.adopt(event.instance, shape, node, event.device, self.now)
        if adopted is not None:
            self.changes.started.append(adopted)
            return
        self.effects.append(fx.StopInstance(self.now, event.instance))
        if node is not None and shape is not None:
            self.pool.turn_away(event.instance, shape, node, event.device, self.now)

    def _resize_refused(self, event: ev.ResizeRefused) -> None:
        endings = self.pool.endings
        ending = None if endings is None else endings.find(event.instance)
        instance = self.pool.instances.get(event.instance) if ending is None else ending[0]
        if instance is None:
            self.stale_events += 1
        else:
            self.pool.resized(instance, milli(event.vcpus), self.now)
            self._withdraw_starts(instance.node)

    def _buffers_evicted(self, event: ev.BuffersEvicted) -> None:
        instance = self.pool.instances.get(event.instance)
        if instance is None:  # what is believed of the device says so already
            self.stale_events += 1
        else:
            self.pool.lost_buffers(instance, event.buffers, self.now)

    def _node_lost(self, event: ev.NodeLost) -> None:
        node = self.nodes.get(event.node)
        if node is None or not node.is_up:
            self.stale_events += 1
            if node is not None and self.pool.endings is not None:  # it was drained, and took what terminated there
                self.pool.endings.forget_node(node)
                node.reset()
                self.placement.update(node)
            return
        node.is_up = node.is_open = False
        self.roster.leave(node.name, self.now, is_given_back=False)
        self.changes.node(node.node, "lost")
        for instance in self.pool.forget_node(node):
            self.replicas.forget(instance)
            self._stopped(instance, "lost")
            if instance.batch >= 0:
                self._lose(instance, f"node {event.node} was lost")
        node.reset()
        self.placement.update(node)

    def _node_joined(self, event: ev.NodeJoined) -> None:
        state = self.nodes.get(event.node.name)
        if state is None:
            state = self.nodes[event.node.name] = NodeState(len(self.nodes), event.node, self._has_kernels)
            self.placement.add(state)
            self.roster.join(state.node, self.now, is_new=True)
        elif state.is_up:
            self.stale_events += 1
            return
        else:
            state.is_up = state.is_open = True
            state.is_draining = False
            self.placement.version += 1
            if event.node != state.node and event.node.kind == state.kind:  # it has come back with another size
                state.node = event.node
                state.reset()
                self.placement.resize(state)
            self.roster.join(state.node, self.now, is_new=False)
        self.changes.node(state.node, "joined")

    def _node_changed(self, event: ev.NodeChanged) -> None:
        node = self.nodes.get(event.node)
        if node is None or not node.is_up:
            self.stale_events += 1
            return
        self.pool.change(node, event, self.now)
        self._withdraw_starts(node)
        if self.replicas.in_use and node.is_over:
            self.replicas.make_way(node)
        self.note_freed(node)
        self.changes.node(node.node, "changed", node.is_draining)

    def _withdraw_starts(self, node: NodeState) -> None:
        """Give up starts that are held back on a node where more is in use than it has; their work waits again."""
        endings = self.pool.endings
        if endings is None:
            return
        for instance in endings.held_back_on(node):
            if not node.is_over:
                return
            tasks = instance.tasks if instance.batch >= 0 else []
            if tasks:
                self.abort(instance.batch, "preempted")
            self.end_instance(instance, "preempted")
            for task in tasks:
                if is_wanted(task):
                    invocation, state, stage = task
                    self.waiting.add(state, stage, invocation.item, invocation.attempt, self.now, invocation.copy)

    def note_freed(self, node: NodeState) -> None:
        """Tell the dispatcher that something has become free on a node."""
        if node.name not in self.freed:  # it may be long until a dispatcher looks
            self.freed.append(node.name)

    def _pressure(self, event: ev.Pressure) -> None:
        node = self.nodes.get(event.node)
        if node is None:
            self.stale_events += 1
        elif node.pressure != event.pressure:
            node.pressure = event.pressure
            self.changes.node(node.node, "changed", node.is_draining)

    def _signalled(self, event: ev.Signalled) -> None:
        node = self.nodes.get(event.node)
        if node is None:
            self.stale_events += 1
        else:
            node.signals = event.counters

    def _cancelled(self, event: ev.Cancelled) -> None:
        self._refuse(event.request, "cancelled", "the client gave up")

    def _expired(self, event: ev.Expired) -> None:
        self._refuse(event.request, "dropped", event.reason)

    def _refuse(self, request: int, outcome: str, reason: str) -> None:
        """End a request that need not be answered any more, unless it has ended."""
        state = self.requests.get(request)
        if state is None:
            self.stale_events += 1
            return
        self.close(state, outcome, reason, None)
        self.abandoned.leave(state)
        self.effects.append(fx.Refuse(self.now, request, outcome, reason))

    # --- ends --------------------------------------------------------------------------------------------------

    def _lose(self, instance: InstanceState, error: str) -> None:
        """Work that was lost with its node or instance is retried or failed, by the run's setting."""
        self.abort(instance.batch, "lost")
        attempts = self.scenario.max_attempts if self.scenario.on_loss == "retry" else 1
        for task in instance.tasks:
            self._retry_or_fail(task, error, attempts, is_loss=True)

    def _retry_or_fail(self, task: Task, error: str, attempts: int, is_loss: bool = False) -> None:
        invocation, state, stage = task
        if not is_wanted(task):
            return
        if invocation.attempt >= attempts:
            if stage.copies > 1 and self.races.lose(task):
                return  # other copies may still succeed
            self.close(state, "failed", error, None)
            self.effects.append(fx.Answer(self.now, state.request.id, "failed", error))
        elif self.scenario.retry_delay_s > 0:
            self._retries += 1
            self._after(self.scenario.retry_delay_s, lambda: self._retry(task))
        else:
            attempt = invocation.attempt + 1
            again = self.waiting.add(state, stage, invocation.item, attempt, self.now, invocation.copy)
            if is_loss:
                self.lost.append(again)

    def _retry(self, task: Task) -> None:
        invocation, state, stage = task
        self._retries -= 1
        if is_wanted(task):
            self.waiting.add(state, stage, invocation.item, invocation.attempt + 1, self.now, invocation.copy)

    def close(self, state: RequestState, outcome: str, reason: str | None, retry_after_s: float | None) -> None:
        """End a request: what waits of it goes; what runs will be discarded."""
        state.is_open = False
        if outcome != "completed":
            for invocation in state.invocations:
                task = self.waiting.tasks.get(invocation)
                if task is not None:
                    self.waiting.remove(task)
        del self.requests[state.request.id]
        if self.recoveries.open:
            self.recoveries.forget(state.request.id)
        self.changes.closed.append((state.request, outcome, self.now))
        self.books.request(state, self.now, outcome, reason, retry_after_s)

    def abort(self, batch: int, outcome: str) -> None:
        """Take a batch back before its end."""
        instance = self.running.end(batch)
        assert instance is not None, "the batch runs"
        self.abandoned.pop(batch, None)
        instance.start = min(instance.start, self.now)
        if not instance.is_ready:
            instance.cold_s = self.now - instance.start
        seconds = self.now - instance.start - (instance.cold_s if self._free_cold_start else 0.0)
        cost = max(0.0, seconds) * instance.shape.usd_per_s / len(instance.tasks)
        for task in instance.tasks:
            task[1].cost_usd += cost
            ending = outcome if task[1].is_open else "discarded"
            self.books.invocation(instance, batch, task, cost, 0.0, self.now, ending)

    def end_instance(self, instance: InstanceState, cause: str) -> None:
        """Stop an instance, replica or not."""
        self.replicas.forget(instance)
        self.pool.stop(instance, self.now, cause)
        if instance.node.is_draining:
            self.replicas.drain_node(instance.node)

    def _run_limit(self, batch: int) -> None:
        instance = self.running.get(batch)
        if instance is None:
            return
        limit = instance.shape.function.run_limit_s
        due = instance.start + instance.cold_s + limit
        if due > self.now:  # it was decided at one instant and began at a later one
            self.timers.limit(due, batch)
        else:
            self._give_up(instance, f"it ran longer than {limit:g} s")

    def _start_limit(self, instance: InstanceState, begun: float) -> None:
        if instance.is_ready or instance.id not in self.pool.instances:
            return
        limit = instance.flavour.function.start_limit_s
        due = max(instance.started, begun) + limit
        if due > self.now:
            self.timers.at(due, lambda: self._start_limit(instance, begun))
        else:
            self._give_up(instance, f"its instance did not start within {limit:g} s")

    def _give_up(self, instance: InstanceState, error: str) -> None:
        """An instance broke one of its limits: it ends, and its batch fails or is tried again."""
        tasks = instance.tasks if instance.batch >= 0 else []
        if tasks:
            self.abort(instance.batch, "failed")
        self.end_instance(instance, "limit")
        for task in tasks:
            self._retry_or_fail(task, error, task[2].function.retries + 1)

    def _after(self, delay_s: float, call: Callable[[], None]) -> None:
        self.timers.at(self.now + delay_s, call)

    def _expire(self, instance: InstanceState) -> None:
        function = instance.flavour.function
        if function.warm and sum(1 for _ in self.pool.of(function.name)) <= function.warm:
            stamp = instance.stamp
            self._after(max(1.0, function.keep_alive_s), lambda: self._expire_later(instance, stamp))
            return
        self.pool.stop(instance, self.now, "expired")

    def _expire_later(self, instance: InstanceState, stamp: int) -> None:
        if instance.is_idle and instance.stamp == stamp and instance.id in self.pool.instances:
            self._expire(instance)

    # --- accounts ----------------------------------------------------------------------------------------------

    def _stopped(self, instance: InstanceState, cause: str) -> None:
        instance.started = min(instance.started, self.now)  # it may end before the decision to start it is made
        batch = instance.batch if instance.is_ready else -1
        if not instance.is_held_back:  # else the driver has not been told of it
            self.effects.append(fx.StopInstance(self.now, instance.id, batch))
        self.books.instance(instance, self.now, cause)
        self.changes.stopped.append((instance, cause))


def _rank(event: ev.Event) -> int:
    return ev.RANK[type(event)]
