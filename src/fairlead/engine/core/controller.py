"""The controller: a state machine with no clock and no I/O.

`handle(now, events)` applies all events of one instant, fires its own timers, asks the scaler if its period is due, then
the dispatcher once, and returns the effects. Drivers (`engine.sim`, `engine.live`) supply time and act effects out.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf

import msgspec

from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.belief import Beliefs
from fairlead.engine.core.books import Books
from fairlead.engine.core.capacity import InstanceState, NodeState
from fairlead.engine.core.placement import Placement
from fairlead.engine.core.pool import Pool
from fairlead.engine.core.progress import RequestState, StagePlan, WorkflowPlan
from fairlead.engine.core.queues import Task, Waiting
from fairlead.engine.core.scaling import Replicas
from fairlead.engine.core.timers import Timers
from fairlead.engine.core.view import ControllerView
from fairlead.errors import PolicyError
from fairlead.model import Configuration, Invocation, Refusal
from fairlead.policy import base
from fairlead.workload import DecisionTime, Scenario

ALL_WELL = ev.Outcome()


class Controller:
    """Queues, instances, capacities and deadlines of one run, and the policies that decide over them.

    Args:
        scenario: Everything declared: cluster, functions, workflows, settings. Arrivals are the driver's business.
        dispatcher: Prepared by the caller.
        scaler: Prepared by the caller; asked once per control period.
        stopwatch: Where the caller wants decision times measured, its clock; the controller has none.
    """

    __slots__ = (
        "_apply",
        "_busy_until",
        "_carry",
        "_control_due",
        "_decision",
        "_dispatcher",
        "_names",
        "_next_batch",
        "_plans",
        "_retries",
        "_scaler",
        "_steps",
        "_stopwatch",
        "_wake_due",
        "beliefs",
        "books",
        "decision_s",
        "effects",
        "freed",
        "fresh",
        "lost",
        "nodes",
        "now",
        "placement",
        "pool",
        "refusals",
        "replicas",
        "requests",
        "running",
        "scenario",
        "stale_events",
        "timers",
        "view",
        "waiting",
    )

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
        self.books = Books(scenario.cluster.price, [p for p in (dispatcher, scaler) if p is not None])
        self.refusals: list[Refusal] = []
        self.stale_events = 0
        self.decision_s: list[float] = []
        self.waiting = Waiting()
        self.nodes = {node.name: NodeState(i, node) for i, node in enumerate(scenario.cluster.nodes)}
        self.placement = Placement(list(self.nodes.values()))
        self.timers = Timers()
        self.pool = Pool(self.placement, self.timers, self._stopped)
        self.beliefs = Beliefs(scenario, self.pool)
        self.replicas = Replicas(self)
        self.running: dict[int, InstanceState] = {}  # by batch
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
        self._next_batch = 0
        self._wake_due = False
        self._control_due = False
        self._retries = 0  # invocations that wait for their retry delay
        decision = scenario.decision
        self._decision = decision if decision.fixed_s or decision.per_step_s else None
        self._busy_until = 0.0  # the dispatcher thinks until then, where decision time is modelled
        self._steps = 0
        if scaler is not None:
            self._after(scenario.control_period_s, self._control)
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
        fresh, waiting = self.fresh, self.waiting.tasks
        if fresh:
            fresh.clear()
        if self.freed:
            self.freed.clear()
        if self.lost:
            self.lost.clear()
        if len(events) > 1:
            events = sorted(events, key=_rank)
        for event in events:
            self._apply[type(event)](event)
        if now >= self.timers.soonest:
            self.timers.fire(now, self._expire)
            if self._control_due:
                self._control_due = False
                assert self._scaler is not None
                self._ask(self._names[1], self._scaler.adjust)
        if self.replicas.is_short:
            self.replicas.reconcile()
        if (waiting or fresh or self._wake_due or self.lost) and now >= self._busy_until:
            self._ask_dispatcher()
        return effects

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
            self._count_busy(instance)
            self.books.instance(instance, None, None)

    # --- policies ----------------------------------------------------------------------------------------------

    def _ask_dispatcher(self) -> None:
        self._wake_due = False
        first, watch = len(self.effects), self._stopwatch
        if watch is None:
            self._ask(self._names[0], self._dispatcher.decide)
        else:
            before = watch()
            self._ask(self._names[0], self._dispatcher.decide)
            self.decision_s.append(watch() - before)
        if self._decision is not None:
            self._delay(first, self._decision)

    def _control(self) -> None:
        self._control_due = True
        self._after(self.scenario.control_period_s, self._control)

    def _delay(self, first: int, decision: DecisionTime) -> None:
        """Let what this decision did begin only when the decision is made; until then there is no other."""
        delay = decision.fixed_s + decision.per_step_s * self._steps
        self._steps = 0
        if delay <= 0 or len(self.effects) == first:
            return
        self._busy_until = at = self.now + delay
        self._after(delay, lambda: None)
        for i in range(first, len(self.effects)):
            effect = self.effects[i] = msgspec.structs.replace(self.effects[i], at=at)
            if isinstance(effect, fx.RunBatch):
                self.running[effect.batch].start = at
            elif isinstance(effect, fx.StartInstance):
                instance = self.pool.instances[effect.instance]
                instance.started = at
                instance.start = at

    def _ask(self, name: str, call: Callable[[base.View], Iterator[base.Action]]) -> None:
        """Call a policy and carry out its actions, one by one as they are yielded."""
        carry = self._carry
        is_ours = False  # whether an error is from carrying out, and so not the policy's
        try:
            actions = call(self.view)
            for action in actions:
                is_ours = True
                method = carry.get(type(action))
                refusal = "it is not an action" if method is None else method(action)
                is_ours = False
                if refusal is not None:
                    self.refusals.append(Refusal(now=self.now, action=repr(action), reason=refusal))
                    close = getattr(actions, "close", None)
                    if close is not None:
                        close()
                    return
        except Exception as error:
            if is_ours:
                raise
            raise PolicyError(name, self.now, error) from error

    # --- actions: each gives the reason why it was refused, or None -----------------------------------------------

    def _start(self, action: base.Start) -> str | None:
        batch = action.batch
        if not batch:
            return "the batch is empty"
        function = batch[0].function
        configuration = action.configuration
        shape = self.beliefs.shapes.get((function, configuration)) or self.beliefs.shape(function, configuration)
        if shape is None:
            return f"{function} has no configuration {configuration}"
        node = self.nodes.get(action.node)
        if node is None:
            return f"there is no node {action.node!r}"
        waiting = self.waiting
        tasks = []
        for invocation in batch:
            task = waiting.tasks.get(invocation)
            if task is None:
                return f"invocation {invocation.id} does not wait"
            tasks.append(task)
        if len(batch) > 1:
            refusal = _batch_refusal(batch, configuration)
            if refusal is not None:
                return refusal
        now = self.now
        is_cold = False
        if self.replicas.sets and function in self.replicas.sets:
            instance = self.replicas.take(function, node, action.device)
            if instance is None:
                return f"{function} is scaled and has no free replica on {action.node}"
            shape = self.beliefs.shape(function, instance.configuration) or shape
        else:
            if not shape.fits(node, action.device):
                return f"{function} at {action.configuration} does not fit on {action.node}"
            instance = self.pool.warm(shape, node, action.device, now)
            if instance is None:
                instance = self.pool.starting(shape, node, action.device)
            if instance is None:
                is_cold = True
                device = shape.device_for(node, action.device) if shape.vgpus else None
                instance = self.pool.create(shape, node, device, now, on_demand=True)
        instance.batch = id = self._next_batch
        self._next_batch = id + 1
        self.running[id] = instance
        instance.shape = shape
        instance.tasks = tasks
        instance.start = now
        instance.is_cold = is_cold
        instance.cold_s = instance.transfer_mb = 0.0
        for task in tasks:
            waiting.remove(task)
            if task[1].outputs is not None:
                instance.transfer_mb += sum(mb for where, mb in self.inputs(task) if where != node.name)
        if instance.is_ready:
            self._run(instance)
        elif is_cold:
            self.start_instance(instance)
        return None

    def start_instance(self, instance: InstanceState) -> None:
        """Tell the driver to start an instance that has been given its capacity."""
        function = instance.flavour.function
        device = -1 if instance.device is None else instance.device.index
        self.effects.append(
            fx.StartInstance(
                self.now, instance.id, function.name, instance.configuration, instance.node.name, device
            )
        )
        if function.start_limit_s < inf:
            self._after(function.start_limit_s, lambda: self._start_limit(instance))

    def _run(self, instance: InstanceState) -> None:
        """Tell the driver to run a batch, now that its instance is ready."""
        shape, tasks = instance.shape, instance.tasks
        self.effects.append(
            fx.RunBatch(
                self.now,
                instance.batch,
                instance.id,
                shape.name,
                (tasks[0][0],) if len(tasks) == 1 else tuple([task[0] for task in tasks]),
                shape.configuration,
                instance.node.name,
                -1 if instance.device is None else instance.device.index,
                instance.transfer_mb,
            )
        )
        if shape.run_limit_s is not None:
            batch = instance.batch
            self._after(shape.run_limit_s, lambda: self._run_limit(batch))

    def _reject(self, action: base.Reject) -> str | None:
        state = self.requests.get(action.request)
        if state is None:
            return f"request {action.request} is not open"
        outcome = "rejected" if action.request in self.fresh else "dropped"
        self._close(state, outcome, action.reason, action.retry_after_s)
        self.effects.append(fx.Refuse(self.now, action.request, outcome, action.reason, action.retry_after_s))
        return None

    def _cancel(self, action: base.Cancel) -> str | None:
        for batch, instance in self.running.items():
            if any(task[0].id == action.invocation for task in instance.tasks):
                break
        else:
            return f"invocation {action.invocation} does not run"
        self._abort(batch, "preempted")
        self._end_instance(instance, "preempted")
        for invocation, state, stage in instance.tasks:
            if state.is_open:
                self.waiting.add(state, stage, invocation.item, invocation.attempt, self.now)
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
        self._after(action.at - self.now, self._wake_up)
        return None

    def _wake_up(self) -> None:
        self._wake_due = True

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
            self.waiting.add(state, stage, item, 1, self.now)
        self.waiting.tidy(state.plan)

    def _finished(self, event: ev.Finished) -> None:
        instance = self.running.pop(event.batch, None)
        if instance is None:
            self.stale_events += 1
            return
        now = self.now
        node, shape, books = instance.node, instance.shape, self.books
        self.freed.append(node.name)
        instance.batch = -1
        if instance.is_replica:
            self.replicas.give_back(instance)
        else:
            self.pool.release(instance, now)
            if self.replicas.sets and shape.name in self.replicas.sets:  # it was scaled while this ran
                self.pool.stop(instance, now, "retired")
        if node.is_draining:
            self.replicas.drain_node(node)
        shape.beliefs[node.kind].learn(event.work_s)
        cost = books.cost_usd(instance, now)
        outcomes = event.outcomes
        for i, task in enumerate(instance.tasks):
            state = task[1]
            state.cost_usd += cost
            outcome = ALL_WELL if outcomes is None else outcomes[i]
            if not state.is_open:
                books.invocation(instance, event.batch, task, cost, event.transfer_s, now, "discarded")
            elif outcome.ok:
                books.invocation(instance, event.batch, task, cost, event.transfer_s, now, "done")
                self._advance(task, node, outcome, now)
            else:
                books.invocation(instance, event.batch, task, cost, event.transfer_s, now, "failed")
                self._retry_or_fail(task, outcome.error or "the function failed", task[2].function.retries + 1)

    def _advance(self, task: Task, node: NodeState, outcome: ev.Outcome, now: float) -> None:
        """A stage of a request is done: let the next ones wait, or answer."""
        invocation, state, stage = task
        if state.outputs is not None:
            state.outputs[stage.index, invocation.item] = node.name
        if state.is_chain:
            state.unresolved -= 1
            following = stage.then
        else:
            following = state.advance(stage, invocation.item, outcome.arm, outcome.items)
        for successor, item in following:
            self.waiting.add(state, successor, item, 1, now)
        if state.unresolved == 0:
            self._close(state, "completed", None, None)
            self.effects.append(fx.Answer(now, state.request.id, "completed"))

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
            instance.cold_s = self.now - instance.start
            self._run(instance)
        else:
            instance.flavour.starting[instance.node.index].remove(instance)
            self.pool.release(instance, self.now)

    def _instance_lost(self, event: ev.InstanceLost) -> None:
        instance = self.pool.instances.get(event.instance)
        if instance is None:
            self.stale_events += 1
            return
        batch = instance.batch
        self._end_instance(instance, "lost")
        if batch >= 0:
            self._lose(instance, event.error)

    def _node_lost(self, event: ev.NodeLost) -> None:
        node = self.nodes.get(event.node)
        if node is None or not node.is_up:
            self.stale_events += 1
            return
        node.is_up = False
        for instance in self.pool.forget_node(node):
            self.replicas.forget(instance)
            self._count_busy(instance)
            self._stopped(instance, "lost")
            if instance.batch >= 0:
                self._lose(instance, f"node {event.node} was lost")
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

    def _lose(self, instance: InstanceState, error: str) -> None:
        """Work that was lost with its node or instance is retried or failed, by the run's setting."""
        self._abort(instance.batch, "lost")
        attempts = self.scenario.max_attempts if self.scenario.on_loss == "retry" else 1
        for task in instance.tasks:
            self._retry_or_fail(task, error, attempts, is_loss=True)

    def _retry_or_fail(self, task: Task, error: str, attempts: int, is_loss: bool = False) -> None:
        invocation, state, stage = task
        if not state.is_open:
            return
        if invocation.attempt >= attempts:
            self._close(state, "failed", error, None)
            self.effects.append(fx.Answer(self.now, state.request.id, "failed", error))
        elif self.scenario.retry_delay_s > 0:
            self._retries += 1
            self._after(self.scenario.retry_delay_s, lambda: self._retry(task))
        else:
            again = self.waiting.add(state, stage, invocation.item, invocation.attempt + 1, self.now)
            if is_loss:
                self.lost.append(again)

    def _retry(self, task: Task) -> None:
        invocation, state, stage = task
        self._retries -= 1
        if state.is_open:
            self.waiting.add(state, stage, invocation.item, invocation.attempt + 1, self.now)

    def _close(self, state: RequestState, outcome: str, reason: str | None, retry_after_s: float | None) -> None:
        """End a request: what waits of it goes; what runs will be discarded."""
        state.is_open = False
        if outcome != "completed":
            for invocation in state.invocations:
                task = self.waiting.tasks.get(invocation)
                if task is not None:
                    self.waiting.remove(task)
        del self.requests[state.request.id]
        self.books.request(state, self.now, outcome, reason, retry_after_s)

    def _abort(self, batch: int, outcome: str) -> None:
        """Take a batch back before its end."""
        instance = self.running.pop(batch)
        cost = self.books.cost_usd(instance, self.now)
        for task in instance.tasks:
            task[1].cost_usd += cost
            ending = outcome if task[1].is_open else "discarded"
            self.books.invocation(instance, batch, task, cost, 0.0, self.now, ending)

    def _end_instance(self, instance: InstanceState, cause: str) -> None:
        self.replicas.forget(instance)
        self.pool.stop(instance, self.now, cause)

    def _run_limit(self, batch: int) -> None:
        instance = self.running.get(batch)
        if instance is not None:
            self._give_up(instance, f"it ran longer than {instance.shape.function.run_limit_s:g} s")

    def _start_limit(self, instance: InstanceState) -> None:
        if not instance.is_ready and instance.id in self.pool.instances:
            limit = instance.flavour.function.start_limit_s
            self._give_up(instance, f"its instance did not start within {limit:g} s")

    def _give_up(self, instance: InstanceState, error: str) -> None:
        """An instance broke one of its limits: it ends, and its batch fails or is tried again."""
        tasks = instance.tasks if instance.batch >= 0 else []
        if tasks:
            self._abort(instance.batch, "failed")
        self._end_instance(instance, "limit")
        for task in tasks:
            self._retry_or_fail(task, error, task[2].function.retries + 1)

    def _after(self, delay_s: float, call: Callable[[], None]) -> None:
        self.timers.at(self.now + delay_s, call)

    def _expire(self, instance: InstanceState) -> None:
        self.pool.stop(instance, self.now, "expired")

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

    def _count_busy(self, instance: InstanceState) -> None:
        if instance.batch >= 0 and instance.is_ready:
            instance.busy_s += self.now - instance.since

    def _stopped(self, instance: InstanceState, cause: str) -> None:
        batch = instance.batch if instance.is_ready else -1
        self.effects.append(fx.StopInstance(self.now, instance.id, batch))
        self.books.instance(instance, self.now, cause)


def _batch_refusal(batch: tuple[Invocation, ...], configuration: Configuration) -> str | None:
    """Why these invocations cannot run together."""
    if len(batch) > configuration.batch:
        return f"{len(batch)} invocations in a batch of {configuration.batch}"
    others = {invocation.function for invocation in batch} - {batch[0].function}
    if others:
        return f"a batch of {batch[0].function} cannot hold an invocation of {min(others)}"
    if len(set(batch)) < len(batch):
        return "an invocation is in the batch twice"
    return None


def _rank(event: ev.Event) -> int:
    return ev.RANK[type(event)]
