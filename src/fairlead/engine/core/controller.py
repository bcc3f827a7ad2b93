"""The controller: a state machine with no clock and no I/O.

`handle(now, events)` applies all events of one instant, fires its own timers, asks the scaler if its period is due, then
the dispatcher once, and returns the effects. Drivers (`engine.sim`, `engine.live`) supply time and act effects out.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NoReturn

import msgspec

from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.belief import Beliefs
from fairlead.engine.core.capacity import InstanceState, NodeState, Shape
from fairlead.engine.core.placement import Placement
from fairlead.engine.core.pool import Pool
from fairlead.engine.core.progress import RequestState, StagePlan, WorkflowPlan
from fairlead.engine.core.queues import Task, Waiting
from fairlead.engine.core.recorder import Recorder
from fairlead.engine.core.scaling import Replicas
from fairlead.engine.core.view import ControllerView
from fairlead.errors import PolicyError
from fairlead.model import Invocation, Record, Refusal
from fairlead.policy import base
from fairlead.workload import Scenario


class Running:
    """A batch from its start to its end."""

    __slots__ = ("cold_s", "id", "instance", "is_cold", "shape", "start", "tasks", "transfer_mb")

    def __init__(self, id: int, shape: Shape, instance: InstanceState, tasks: list[Task], start: float) -> None:
        self.id = id
        self.shape = shape
        self.instance = instance
        self.tasks = tasks
        self.start = start
        self.cold_s = 0.0
        self.is_cold = False
        self.transfer_mb = 0.0


class Controller:
    """Queues, instances, capacities and deadlines of one run, and the policies that decide over them.

    Args:
        scenario: Everything declared: cluster, functions, workflows, settings. Arrivals are the driver's business.
        dispatcher: Prepared by the caller.
        scaler: Prepared by the caller; asked once per control period.
        stopwatch: Where the caller wants decision times measured, its clock; the controller has none.
    """

    def __init__(
        self,
        scenario: Scenario,
        dispatcher: base.Policy,
        scaler: base.Policy | None = None,
        stopwatch: Callable[[], float] | None = None,
        names: tuple[str, str] = ("dispatcher", "scaler"),
    ) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.recorder = Recorder()
        self.refusals: list[Refusal] = []
        self.stale_events = 0
        self.decision_s: list[float] = []
        self.waiting = Waiting()
        self.nodes = {node.name: NodeState(i, node) for i, node in enumerate(scenario.cluster.nodes)}
        self.placement = Placement(list(self.nodes.values()))
        self.pool = Pool(self.placement, self._stopped)
        self.beliefs = Beliefs(scenario, self.pool)
        self.replicas = Replicas(self)
        self.running: dict[int, Running] = {}
        self.requests: dict[int, RequestState] = {}
        self.fresh: list[int] = []
        self.freed: list[str] = []
        self.lost: list[Invocation] = []
        self.effects: list[fx.Effect] = []
        self._plans = {
            name: WorkflowPlan(workflow, dict(scenario.functions), self.waiting)
            for name, workflow in scenario.workflows.items()
        }
        self._dispatcher = dispatcher
        self._scaler = scaler
        self._names = names
        self._stopwatch = stopwatch
        self._observers = [p for p in (dispatcher, scaler) if p and type(p).observe is not base.Policy.observe]
        self._price = scenario.cluster.price
        self._next_invocation = 0
        self._next_batch = 0
        self._timer_sequence = 0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._wakes: list[float] = []
        self._next_control = scenario.control_period_s if scaler else inf
        self._busy_until = 0.0  # the dispatcher thinks until then, where decision time is modelled
        self._steps = 0
        self.view = ControllerView(self)
        self._apply: dict[type, Callable[..., None]] = {
            ev.Arrived: self._arrived,
            ev.Finished: self._finished,
            ev.InstanceReady: self._instance_ready,
            ev.InstanceLost: self._instance_lost,
            ev.NodeLost: self._node_lost,
            ev.NodeJoined: self._node_joined,
            ev.Pressure: self._pressure,
            ev.Cancelled: self._cancelled,
        }
        self._carry: dict[type, Callable[..., str | None]] = {
            base.Start: self._start,
            base.Reject: self._reject,
            base.Cancel: self._cancel,
            base.Warm: self._warm,
            base.Retire: self._retire,
            base.Wake: self._wake,
            base.Plan: self._plan,
            base.Searched: self._searched,
            base.Scale: self.replicas.scale,
            base.Resize: self.replicas.resize,
            base.Move: self.replicas.move,
            base.Grow: self.replicas.grow,
            base.Shrink: self.replicas.shrink,
        }

    # --- the driver's side -------------------------------------------------------------------------------------

    def handle(self, now: float, events: Sequence[ev.Event]) -> list[fx.Effect]:
        """Apply all events of this instant, decide once, and say what is to be done."""
        if now < self.now:
            raise ValueError(f"time went back from {self.now} to {now}.")
        self.now = now
        self.effects = effects = []
        if self.fresh or self.freed or self.lost:
            self.fresh, self.freed, self.lost = [], [], []
        if len(events) > 1:
            events = sorted(events, key=lambda event: ev.RANK[type(event)])
        for event in events:
            self._apply[type(event)](event)
        self.pool.expire(now)
        timers = self._timers
        while timers and timers[0][0] <= now:
            heappop(timers)[2]()
        wake_due = False
        while self._wakes and self._wakes[0] <= now:
            heappop(self._wakes)
            wake_due = True
        if self.replicas.is_short and (self.freed or events):
            self.replicas.reconcile()
        if now >= self._next_control:
            self._next_control += self.scenario.control_period_s
            assert self._scaler is not None
            self._ask(self._names[1], self._scaler.adjust)
        if now >= self._busy_until:
            if self.waiting.tasks or wake_due or self.fresh or self.lost:
                self._dispatch()
        elif wake_due:
            heappush(self._wakes, self._busy_until)
        return effects

    @property
    def next_wake(self) -> float:
        """When the controller wants to be called at the latest; infinity if never."""
        at = min(self.pool.next_expiry(), default=inf)
        if self._timers and self._timers[0][0] < at:
            at = self._timers[0][0]
        if self._wakes and self._wakes[0] < at:
            at = self._wakes[0]
        if self._busy_until > self.now and self.waiting.tasks and self._busy_until < at:
            at = self._busy_until
        return min(at, self._next_control)

    @property
    def has_work(self) -> bool:
        """Whether any admitted request is still open, or an instance starting."""
        return bool(self.requests)

    @property
    def has_timers(self) -> bool:
        """Whether a limit or a retry of its own is pending."""
        return bool(self._timers)

    def finish(self) -> None:
        """Close the books: requests that are still open end as unfinished, instances live to the end."""
        for state in list(self.requests.values()):
            self._record_request(state, None, "unfinished", None, None)
        self.requests.clear()
        for instance in self.pool.instances.values():
            self.pool.count_busy(instance, self.now)
            self._record_instance(instance, None, None)

    # --- policies ----------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        self._steps = 0
        first = len(self.effects)
        watch = self._stopwatch
        if watch is None:
            self._ask(self._names[0], self._dispatcher.decide)
        else:
            before = watch()
            self._ask(self._names[0], self._dispatcher.decide)
            self.decision_s.append(watch() - before)
        decision = self.scenario.decision
        delay = decision.fixed_s + decision.per_step_s * self._steps
        if delay > 0 and len(self.effects) > first:
            self._delay(first, delay)

    def _delay(self, first: int, delay: float) -> None:
        """Let what this decision started begin only when the decision is made."""
        self._busy_until = at = self.now + delay
        for i in range(first, len(self.effects)):
            effect = self.effects[i] = msgspec.structs.replace(self.effects[i], at=at)
            if isinstance(effect, fx.RunBatch):
                self.running[effect.batch].start = at
            elif isinstance(effect, fx.StartInstance):
                instance = self.pool.instances[effect.instance]
                instance.started = at
                if instance.batch >= 0:
                    self.running[instance.batch].start = at

    def _ask(self, name: str, call: Callable[[base.View], Iterator[base.Action]]) -> None:
        """Call a policy and carry out its actions, one by one as they are yielded."""
        carry = self._carry
        try:
            actions = iter(call(self.view))
        except Exception as error:
            self._fail(name, error)
        while True:
            try:
                action = next(actions, None)
            except Exception as error:
                self._fail(name, error)
            if action is None:
                return
            method = carry.get(type(action))
            refusal = "it is not an action" if method is None else method(action)
            if refusal is not None:
                self.refusals.append(Refusal(now=self.now, action=repr(action), reason=refusal))
                close = getattr(actions, "close", None)
                if close is not None:
                    close()
                return

    def _fail(self, name: str, error: Exception) -> NoReturn:
        raise PolicyError(name, self.now, error) from error

    # --- actions: each gives the reason why it was refused, or None -----------------------------------------------

    def _start(self, action: base.Start) -> str | None:
        batch = action.batch
        if not batch:
            return "the batch is empty"
        function = batch[0].function
        shape = self.beliefs.shape(function, action.configuration)
        if shape is None:
            return f"{function} has no configuration {action.configuration}"
        node = self.nodes.get(action.node)
        if node is None:
            return f"there is no node {action.node!r}"
        if len(batch) > action.configuration.batch:
            return f"{len(batch)} invocations in a batch of {action.configuration.batch}"
        tasks = []
        for invocation in batch:
            task = self.waiting.tasks.get(invocation.id)
            if task is None:
                return f"invocation {invocation.id} does not wait"
            if task[2].function.name != function:
                return f"a batch of {function} cannot hold an invocation of {task[2].function.name}"
            tasks.append(task)
        if len(tasks) > 1 and len({invocation.id for invocation in batch}) < len(tasks):
            return "an invocation is in the batch twice"
        now = self.now
        if self.replicas.sets and function in self.replicas.sets:
            replica = self.replicas.take(function, node, action.device)
            if replica is None:
                return f"{function} is scaled and has no free replica on {action.node}"
            shape = self.beliefs.shape(function, replica.configuration) or shape
            instance, is_cold = replica, False
        else:
            if not shape.fits(node, action.device):
                return f"{function} at {action.configuration} does not fit on {action.node}"
            found = self.pool.warm_instance(shape, node, action.device)
            is_cold = False
            if found is not None:
                instance = found
                self.pool.reuse(instance, shape, now)
            else:
                found = self.pool.starting_instance(shape, node, action.device)
                if found is not None:
                    instance = found
                    shape.flavour.starting[node.index].remove(instance)
                else:
                    is_cold = True
                    device = shape.device_for(node, action.device) if shape.vgpus else None
                    instance = self.pool.create(shape, node, device, now, on_demand=True)
        running = Running(self._next_batch, shape, instance, tasks, now)
        self._next_batch += 1
        running.is_cold = is_cold
        instance.batch = running.id
        self.running[running.id] = running
        remove = self.waiting.remove
        for task in tasks:
            remove(task)
            task[1].waiting.discard(task[0].id)
            if task[1].outputs is not None:
                running.transfer_mb += sum(mb for where, mb in self.inputs(task) if where != node.node.name)
        if instance.is_ready:
            self._run(running)
        elif is_cold:
            self.start_instance(instance)
        return None

    def start_instance(self, instance: InstanceState) -> None:
        """Tell the driver to start an instance that has been given its capacity."""
        function = instance.flavour.function
        device = -1 if instance.device is None else instance.device.index
        self.effects.append(
            fx.StartInstance(
                self.now, instance.id, function.name, instance.configuration, instance.node.node.name, device
            )
        )
        if function.start_limit_s < inf:
            self._after(function.start_limit_s, lambda: self._start_limit(instance))

    def _run(self, running: Running) -> None:
        """Tell the driver to run a batch, now that its instance is ready."""
        instance, shape = running.instance, running.shape
        device = -1 if instance.device is None else instance.device.index
        self.effects.append(
            fx.RunBatch(
                self.now,
                running.id,
                instance.id,
                shape.function.name,
                tuple([task[0] for task in running.tasks]),
                shape.configuration,
                instance.node.node.name,
                device,
                running.transfer_mb,
            )
        )
        if shape.function.run_limit_s < inf:
            self._after(shape.function.run_limit_s, lambda: self._run_limit(running))

    def _reject(self, action: base.Reject) -> str | None:
        state = self.requests.get(action.request)
        if state is None:
            return f"request {action.request} is not open"
        outcome = "rejected" if action.request in self.fresh else "dropped"
        self._close(state, outcome, action.reason, action.retry_after_s)
        self.effects.append(fx.Refuse(self.now, action.request, outcome, action.reason, action.retry_after_s))
        return None

    def _cancel(self, action: base.Cancel) -> str | None:
        for running in self.running.values():
            if any(task[0].id == action.invocation for task in running.tasks):
                break
        else:
            return f"invocation {action.invocation} does not run"
        self._abort(running, "preempted")
        self._end_instance(running.instance, "preempted")
        for task in running.tasks:
            if task[1].is_open:
                self._ready(task[1], task[2], task[0].item, task[0].attempt)
        return None

    def _warm(self, action: base.Warm) -> str | None:
        if action.function in self.replicas.sets:
            return f"{action.function} is scaled: its scaler decides how many instances it has"
        shape = self.beliefs.shape(action.function, action.configuration)
        if shape is None:
            return f"{action.function} has no configuration {action.configuration}"
        node = self.nodes.get(action.node)
        if node is None:
            return f"there is no node {action.node!r}"
        if not shape.fits(node, action.device):
            return f"{action.function} at {action.configuration} does not fit on {action.node}"
        device = shape.device_for(node, action.device) if shape.vgpus else None
        instance = self.pool.create(shape, node, device, self.now, on_demand=False)
        shape.flavour.starting.setdefault(node.index, []).append(instance)
        self.start_instance(instance)
        return None

    def _retire(self, action: base.Retire) -> str | None:
        instance = self.pool.instances.get(action.instance)
        if instance is None or not instance.is_idle:
            return f"instance {action.instance} is not idle"
        self.pool.stop(instance, self.now, "retired")
        return None

    def _wake(self, action: base.Wake) -> str | None:
        if not self.now < action.at < inf:
            return f"a wake must lie in the future; got {action.at} at {self.now}"
        heappush(self._wakes, action.at)
        return None

    def _plan(self, action: base.Plan) -> str | None:
        state = self.requests.get(action.request)
        if state is None:
            return f"request {action.request} is not open"
        state.promised = action.finish
        return None

    def _searched(self, action: base.Searched) -> str | None:
        if action.steps < 0:
            return f"steps must not be negative; got {action.steps}"
        self._steps += action.steps
        return None

    # --- events ------------------------------------------------------------------------------------------------

    def _arrived(self, event: ev.Arrived) -> None:
        request = event.request
        state = RequestState(request, self._plans[request.workflow])
        self.requests[request.id] = state
        self.fresh.append(request.id)
        for stage, item in state.begin(event.items):
            self._ready(state, stage, item, 1)

    def _ready(self, state: RequestState, stage: StagePlan, item: int, attempt: int) -> Invocation:
        """Let an invocation wait. It carries the request's one deadline."""
        request = state.request
        id = self._next_invocation
        self._next_invocation = id + 1
        invocation = Invocation(
            id, request.id, request.workflow, stage.name, stage.function.name, self.now, request.deadline, item, attempt
        )
        self.waiting.add((invocation, state, stage))
        state.waiting.add(id)
        return invocation

    def _finished(self, event: ev.Finished) -> None:
        running = self.running.pop(event.batch, None)
        if running is None:
            self.stale_events += 1
            return
        instance, shape = running.instance, running.shape
        self.freed.append(instance.node.node.name)
        instance.batch = -1
        if instance.is_replica:
            self.replicas.give_back(instance)
        else:
            self.pool.release(instance, self.now)
            if self.replicas.sets and shape.function.name in self.replicas.sets:  # it was scaled while this ran
                self.pool.stop(instance, self.now, "retired")
        if instance.node.is_draining:
            self.replicas.drain_node(instance.node)
        self.beliefs.observe(shape, instance.node.kind, event.work_s)
        outcomes = event.outcomes
        cost = self._cost(running) / len(running.tasks)
        for i, task in enumerate(running.tasks):
            invocation, state, stage = task
            state.cost_usd += cost
            outcome = None if outcomes is None else outcomes[i]
            if not state.is_open:
                self._record(running, task, cost, event.transfer_s, "discarded")
            elif outcome is None or outcome.ok:
                self._record(running, task, cost, event.transfer_s, "done")
                if state.outputs is not None:
                    state.outputs[stage.index, invocation.item] = instance.node.node.name
                following = (
                    state.advance(stage, invocation.item, None, 1)
                    if outcome is None
                    else state.advance(stage, invocation.item, outcome.arm, outcome.items)
                )
                for successor, item in following:
                    self._ready(state, successor, item, 1)
                if state.unresolved == 0:
                    self._close(state, "completed", None, None)
                    self.effects.append(fx.Answer(self.now, state.request.id, "completed"))
            else:
                self._record(running, task, cost, event.transfer_s, "failed")
                self._retry_or_fail(task, outcome.error or "the function failed", stage.function.retries + 1)

    def _instance_ready(self, event: ev.InstanceReady) -> None:
        instance = self.pool.instances.get(event.instance)
        if instance is None or instance.is_ready:
            self.stale_events += 1
            return
        instance.is_ready = True
        instance.ready = instance.since = self.now
        if instance.is_replica and instance.batch < 0:
            self.replicas.ready(instance)
        elif instance.batch >= 0:
            running = self.running[instance.batch]
            running.cold_s = self.now - running.start
            self._run(running)
        else:
            instance.flavour.starting[instance.node.index].remove(instance)
            self.pool.release(instance, self.now)

    def _instance_lost(self, event: ev.InstanceLost) -> None:
        instance = self.pool.instances.get(event.instance)
        if instance is None:
            self.stale_events += 1
            return
        batch = instance.batch
        self.replicas.forget(instance)
        self.pool.stop(instance, self.now, "lost")
        if batch >= 0:
            self._lose(self.running.pop(batch), event.error)

    def _node_lost(self, event: ev.NodeLost) -> None:
        node = self.nodes.get(event.node)
        if node is None or not node.is_up:
            self.stale_events += 1
            return
        node.is_up = False
        for instance in self.pool.forget_node(node):
            self.replicas.forget(instance)
            self.pool.count_busy(instance, self.now)
            self._stopped(instance, "lost")
            if instance.batch >= 0:
                self._lose(self.running.pop(instance.batch), f"node {event.node} was lost")
        node.reset()
        self.placement.update(node)

    def _node_joined(self, event: ev.NodeJoined) -> None:
        state = self.nodes.get(event.node.name)
        if state is None:
            state = self.nodes[event.node.name] = NodeState(len(self.nodes), event.node)
            self.placement.add(state)
        elif state.is_up:
            self.stale_events += 1
        else:
            state.is_up, state.is_draining = True, False
            self.placement.version += 1

    def _pressure(self, event: ev.Pressure) -> None:
        node = self.nodes.get(event.node)
        if node is None:
            self.stale_events += 1
        else:
            node.pressure = event.pressure

    def _cancelled(self, event: ev.Cancelled) -> None:
        state = self.requests.get(event.request)
        if state is None:
            self.stale_events += 1
            return
        reason = "the client gave up"
        self._close(state, "cancelled", reason, None)
        self.effects.append(fx.Refuse(self.now, event.request, "cancelled", reason))

    # --- ends --------------------------------------------------------------------------------------------------

    def _lose(self, running: Running, error: str) -> None:
        """Work that was lost with its node or instance is retried or failed, by the run's setting."""
        attempts = self.scenario.max_attempts if self.scenario.on_loss == "retry" else 1
        cost = self._cost(running) / len(running.tasks)
        for task in running.tasks:
            task[1].cost_usd += cost
            self._record(running, task, cost, 0.0, "lost" if task[1].is_open else "discarded")
            if task[1].is_open:
                self._retry_or_fail(task, error, attempts, is_loss=True)

    def _retry_or_fail(self, task: Task, error: str, attempts: int, is_loss: bool = False) -> None:
        invocation, state, stage = task
        if not state.is_open:
            return
        if invocation.attempt >= attempts:
            self._close(state, "failed", error, None)
            self.effects.append(fx.Answer(self.now, state.request.id, "failed", error))
        elif self.scenario.retry_delay_s > 0:
            self._after(self.scenario.retry_delay_s, lambda: self._retry(task))
        else:
            again = self._ready(state, stage, invocation.item, invocation.attempt + 1)
            if is_loss:
                self.lost.append(again)

    def _retry(self, task: Task) -> None:
        invocation, state, stage = task
        if state.is_open:
            self._ready(state, stage, invocation.item, invocation.attempt + 1)

    def _close(self, state: RequestState, outcome: str, reason: str | None, retry_after_s: float | None) -> None:
        """End a request: what waits of it goes; what runs will be discarded."""
        state.is_open = False
        for id in sorted(state.waiting):
            self.waiting.remove(self.waiting.tasks[id])
        state.waiting.clear()
        del self.requests[state.request.id]
        self._record_request(state, self.now, outcome, reason, retry_after_s)

    def _abort(self, running: Running, outcome: str) -> None:
        """Take a batch back before its end."""
        del self.running[running.id]
        cost = self._cost(running) / len(running.tasks)
        for task in running.tasks:
            task[1].cost_usd += cost
            self._record(running, task, cost, 0.0, outcome)

    def _end_instance(self, instance: InstanceState, cause: str) -> None:
        self.replicas.forget(instance)
        self.pool.stop(instance, self.now, cause)

    def _run_limit(self, running: Running) -> None:
        if self.running.get(running.id) is not running:
            return
        self._abort(running, "failed")
        self._end_instance(running.instance, "limit")
        limit = running.shape.function.run_limit_s
        for task in running.tasks:
            self._retry_or_fail(task, f"it ran longer than {limit:g} s", task[2].function.retries + 1)

    def _start_limit(self, instance: InstanceState) -> None:
        if instance.is_ready or instance.id not in self.pool.instances:
            return
        running = self.running.get(instance.batch)
        if running is not None:
            self._abort(running, "failed")
        self._end_instance(instance, "limit")
        if running is not None:
            limit = running.shape.function.start_limit_s
            for task in running.tasks:
                self._retry_or_fail(task, f"no instance within {limit:g} s", task[2].function.retries + 1)

    def _after(self, delay_s: float, call: Callable[[], None]) -> None:
        self._timer_sequence += 1
        heappush(self._timers, (self.now + delay_s, self._timer_sequence, call))

    # --- accounts ----------------------------------------------------------------------------------------------

    def inputs(self, task: Task) -> list[tuple[str, float]]:
        """Where the input of an invocation lies: (node, megabytes) per predecessor's output."""
        _, state, stage = task
        if state.outputs is None:
            return []
        item = task[0].item
        found = []
        for predecessor in stage.predecessors:
            if predecessor.output_mb:
                if predecessor.region >= 0 and predecessor.region != stage.region:  # a join takes every item
                    places = [node for (index, _), node in state.outputs.items() if index == predecessor.index]
                else:
                    where = state.outputs.get((predecessor.index, item if predecessor.region >= 0 else 0))
                    places = [] if where is None else [where]
                found += [(node, predecessor.output_mb) for node in places]
        return found

    def _cost(self, running: Running) -> float:
        """What a batch costs up to now: its allocation x price, with or without its cold start."""
        seconds = self.now - running.start
        if not self._price.bill_cold_start:
            seconds -= running.cold_s
        return max(0.0, seconds) * running.shape.usd_per_s

    def _record(self, running: Running, task: Task, cost: float, transfer_s: float, outcome: str) -> None:
        invocation = task[0]
        instance, shape = running.instance, running.shape
        device = -1 if instance.device is None else instance.device.index
        node = instance.node.node.name
        self.recorder.invocations.add(
            (
                invocation.request,
                invocation.workflow,
                invocation.stage,
                invocation.function,
                invocation.item,
                invocation.attempt,
                running.id,
                len(running.tasks),
                instance.id,
                node,
                device,
                shape.configuration.vcpus,
                shape.configuration.vgpus,
                invocation.ready,
                running.start,
                running.cold_s,
                transfer_s,
                self.now,
                running.is_cold,
                cost,
                outcome,
            )
        )
        if self._observers:
            record = Record(
                request=invocation.request,
                workflow=invocation.workflow,
                stage=invocation.stage,
                function=invocation.function,
                node=node,
                device=device,
                ready=invocation.ready,
                start=running.start,
                cold_s=running.cold_s,
                transfer_s=transfer_s,
                end=self.now,
                batch_size=len(running.tasks),
                vcpus=shape.configuration.vcpus,
                vgpus=shape.configuration.vgpus,
                cost_usd=cost,
                deadline=invocation.deadline,
                outcome=outcome,
            )
            for policy in self._observers:
                try:
                    policy.observe(record)
                except Exception as error:
                    self._fail(type(policy).__name__, error)

    def _record_request(
        self, state: RequestState, end: float | None, outcome: str, reason: str | None, retry_after_s: float | None
    ) -> None:
        request = state.request
        self.recorder.requests.add(
            (
                request.id,
                request.workflow,
                request.arrival,
                request.deadline,
                request.budget_usd,
                end,
                outcome,
                reason,
                retry_after_s,
                state.promised,
                state.cost_usd,
            )
        )

    def _stopped(self, instance: InstanceState, cause: str) -> None:
        batch = instance.batch if instance.is_ready else -1
        self.effects.append(fx.StopInstance(self.now, instance.id, batch))
        self._record_instance(instance, self.now, cause)

    def _record_instance(self, instance: InstanceState, stopped: float | None, cause: str | None) -> None:
        configuration, function = instance.configuration, instance.flavour.function
        self.recorder.instances.add(
            (
                instance.id,
                function.name,
                instance.node.node.name,
                -1 if instance.device is None else instance.device.index,
                configuration.vcpus,
                configuration.vgpus,
                configuration.memory_gb or function.memory_gb,
                instance.started,
                instance.ready,
                stopped,
                instance.busy_s,
                cause,
                instance.on_demand,
            )
        )
