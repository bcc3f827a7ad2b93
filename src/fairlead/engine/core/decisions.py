"""Asking the policies, and carrying out what they decide.

Every action is checked against the state as it is when the action is yielded. One that cannot be carried out is kept
among the refusals with the reason, and ends the call. Two kinds of refusal do not end it, since nothing that a policy
yields next can rest on them: an action on a function that an operator holds, and a change of the cluster that the
driver cannot make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING

import msgspec

from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.holds import HELD
from fairlead.engine.core.races import is_wanted
from fairlead.engine.core.site import prepare
from fairlead.engine.core.transfers import missing_mb
from fairlead.engine.core.view import ControllerView
from fairlead.errors import PolicyError
from fairlead.model import Configuration, Invocation, Refusal
from fairlead.policy import base
from fairlead.workload import DecisionTime

if TYPE_CHECKING:
    from fairlead.engine.core.controller import Controller


class Decisions:
    """The dispatcher and the scaler of a run, and the actions they may yield."""

    __slots__ = (
        "_beliefs",
        "_busy_until",
        "_carry",
        "_controller",
        "_decide",
        "_decision_time",
        "_dispatcher",
        "_dispatcher_name",
        "_holds",
        "_missed",
        "_next_batch",
        "_nodes",
        "_order",
        "_pool",
        "_replicas",
        "_requests",
        "_running",
        "_scaler",
        "_scaler_name",
        "_steps",
        "_stopwatch",
        "_waiting",
        "adjustments",
        "control_due",
        "refusals",
        "times_s",
        "view",
        "wake_due",
    )

    def __init__(
        self,
        controller: Controller,
        dispatcher: base.Policy,
        scaler: base.Policy | None,
        stopwatch: Callable[[], float] | None,
        names: tuple[str, str],
    ) -> None:
        self._controller = controller
        self._beliefs = controller.beliefs
        self._holds = controller.holds
        self._nodes = controller.nodes
        self._pool = controller.pool
        self._replicas = controller.replicas
        self._requests = controller.requests
        self._running = controller.running
        self._waiting = controller.waiting
        self.view = ControllerView(controller)
        self._dispatcher = dispatcher
        self._decide = dispatcher.decide
        self._scaler = scaler
        self._dispatcher_name, self._scaler_name = names
        self._stopwatch = stopwatch
        decision = controller.scenario.decision
        self._decision_time = decision if decision.fixed_s or decision.per_step_s else None
        self._busy_until = 0.0  # the dispatcher thinks until then, where decision time is modelled
        self._steps = 0
        self._next_batch = -1
        self._missed = False  # something came up while the dispatcher was thinking
        self.wake_due = False
        self.control_due = False
        self.adjustments = 0  # how often the scaler was asked
        self.refusals: list[Refusal] = []
        self.times_s: list[float] = []  # how long each call of the dispatcher really took
        self._order: dict[type, Callable[..., str | None]] = {
            base.Warm: self._warm,
            base.Retire: self._retire,
            base.Scale: self._replicas.scale,
            base.Resize: self._replicas.resize,
            base.Move: self._replicas.move,
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
            base.Scale: self._scaling,
            base.Resize: self._scaling,
            base.Move: self._scaling,
            base.Grow: self._change_cluster,
            base.Shrink: self._change_cluster,
        }
        if scaler is not None:
            self._await_control()

    def ask_dispatcher(self, now: float) -> None:
        """Let the dispatcher decide, unless it still thinks about its last decision."""
        if self._decision_time is not None:
            self._ask_and_delay(now, self._decision_time)
        else:
            self.wake_due = False
            self._ask_timed(now)

    def _ask_timed(self, now: float) -> None:
        self._controller.changes.turn()
        watch = self._stopwatch
        if watch is None:
            self._ask(self._dispatcher_name, self._decide, now)
        else:
            before = watch()
            self._ask(self._dispatcher_name, self._decide, now)
            self.times_s.append(watch() - before)
        controller = self._controller  # what was fresh, freed or lost has been shown
        controller.freed = []
        if controller.fresh or controller.lost:
            controller.fresh, controller.lost = [], []

    def _ask_and_delay(self, now: float, decision: DecisionTime) -> None:
        """As above where decisions take time: what one does begins when it is made, and there is no other before."""
        controller = self._controller
        if now < self._busy_until:
            if not self._missed:
                self._missed = True
                controller.timers.at(self._busy_until, self._wake_up)
            return
        self.wake_due = self._missed = False
        effects, first, first_batch = controller.effects, len(controller.effects), self._next_batch + 1
        self._ask_timed(now)
        steps, self._steps = self._steps, 0
        if len(effects) == first and first_batch > self._next_batch and not steps:
            return  # nothing was decided
        self._busy_until = at = now + decision.fixed_s + decision.per_step_s * steps
        for i in range(first, len(effects)):
            effect = effects[i] = msgspec.structs.replace(effects[i], at=at)
            if isinstance(effect, fx.StartInstance) and effect.instance in self._pool.instances:
                self._pool.instances[effect.instance].started = at
        for batch in range(first_batch, self._next_batch + 1):
            if batch in self._running:  # it may have been cancelled in the same breath
                self._running[batch].start = at

    def prepare_again(self, seed: int) -> None:
        """Tell the dispatcher the site anew, before its first decision, because other times are declared now."""
        prepare((self._dispatcher,), (self._dispatcher_name,), self._controller.scenario, seed)

    def replace(self, dispatcher: base.Policy, name: str) -> None:
        """Let another dispatcher decide from now on; the caller has prepared it."""
        self._dispatcher, self._decide, self._dispatcher_name = dispatcher, dispatcher.decide, name
        self._controller.books.watch([(name, dispatcher)], beside=self._scaler)

    def replace_scaler(self, scaler: base.Policy, name: str) -> None:
        """Let another scaler adjust from the next control period on; the caller has prepared it."""
        self._scaler, self._scaler_name = scaler, name
        self._controller.books.watch([(name, scaler)], beside=self._dispatcher)

    def is_scaler(self, name: str) -> bool:
        """Whether the scaler goes by this name in messages."""
        return self._scaler is not None and name == self._scaler_name

    def order(self, event: ev.Ordered) -> None:
        """Carry out what an operator or the driver asks for, or note why it cannot be."""
        action = event.action
        if event.holds and isinstance(action, base.Scale | base.Resize | base.Move):
            refusal = self._holds.order(action)
        else:
            refusal = self._order[type(action)](action)
        if refusal is not None:
            self._note_refusal(action, refusal)

    def _note_refusal(self, action: base.Action, reason: str) -> None:
        self.refusals.append(Refusal(now=self._controller.now, action=repr(action), reason=reason))

    def ask_scaler(self, now: float) -> None:
        """Let the scaler adjust, once per control period."""
        self.control_due = False
        self.adjustments += 1
        self._await_control()
        assert self._scaler is not None
        self._ask(self._scaler_name, self._scaler.adjust, now)

    def _await_control(self) -> None:
        self._controller.timers.at(self._controller.now + self._controller.scenario.control_period_s, self._control)

    def _control(self) -> None:
        self.control_due = True

    def _ask(self, name: str, call: Callable[[base.View], Iterator[base.Action]], now: float) -> None:
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
                    self.refusals.append(Refusal(now=now, action=repr(action), reason=refusal))
                    close = getattr(actions, "close", None)
                    if close is not None:
                        close()
                    return
        except Exception as error:
            if is_ours:
                raise
            raise PolicyError(name, now, error) from error

    # --- actions: each gives the reason why it was refused, or None --------------------------------------------

    def _start(self, action: base.Start) -> str | None:
        batch = action.batch
        if not batch:
            return "the batch is empty"
        function = batch[0].function
        configuration = action.configuration
        shape = self._beliefs.shapes.get((function, configuration)) or self._beliefs.shape(function, configuration)
        if shape is None:
            return f"{function} has no configuration {configuration}"
        node = self._nodes.get(action.node)
        if node is None:
            return f"there is no node {action.node!r}"
        waiting = self._waiting.tasks
        tasks = []
        for invocation in batch:
            task = waiting.get(invocation)
            if task is None:
                return f"invocation {invocation.id} does not wait"
            tasks.append(task)
        if len(batch) > 1:
            refusal = _batch_refusal(batch, configuration)
            if refusal is not None:
                return refusal
        now = self._controller.now
        is_new = False
        if function in self._replicas.sets:
            instance = self._replicas.find(function, node.name, action.device, configuration.batch)
            shape = None if instance is None else self._replicas.shape_of(instance, configuration.batch)
            if instance is None or shape is None:
                what = "" if configuration.batch == 1 else f" that takes batches of {configuration.batch}"
                return f"{function} is scaled and has no free replica on {action.node}{what}"
            self._replicas.take(instance)
        else:
            fits = shape.fits(node, action.device)
            instance = None
            if not action.is_fresh:
                instance = self._pool.warm(shape, node, action.device, now) if fits else None
            if instance is None and not action.is_fresh:
                instance = self._pool.starting(shape, node, action.device)
            if instance is None:
                if not fits:
                    return f"{function} at {configuration} does not fit on {action.node}"
                is_new = True
                device = shape.device_for(node, action.device) if shape.vgpus else None
                instance = self._pool.create(shape, node, device, now, on_demand=True)
        self._next_batch = instance.batch = id = self._next_batch + 1
        instance.shape = shape
        self._running.begin(id, instance)
        instance.tasks = tasks
        instance.start = now
        instance.is_cold = is_new and instance.on_demand
        instance.cold_s = instance.transfer_mb = 0.0
        for task in tasks:
            self._waiting.remove(task)
            if task[1].outputs is not None:
                instance.transfer_mb += missing_mb(task, node.name)
            if task[2].copies > 1:
                task[1].races[task[2].index, task[0].item].batches.append(id)
        if instance.is_ready:
            self._controller.run(instance, now)
        elif is_new:
            self._controller.start_instance(instance)
        return None

    def _reject(self, action: base.Reject) -> str | None:
        state = self._requests.get(action.request)
        if state is None:
            return f"request {action.request} is not open"
        outcome = "rejected" if action.request in self._controller.fresh else "dropped"
        if action.offer_latency_s is not None or action.offer_cost_usd is not None:
            state.offer = (action.offer_latency_s, action.offer_cost_usd)
        self._controller.close(state, outcome, action.reason, action.retry_after_s)
        self._controller.effects.append(
            fx.Refuse(self._controller.now, action.request, outcome, action.reason, action.retry_after_s)
        )
        return None

    def _cancel(self, action: base.Cancel) -> str | None:
        for instance in self._running.values():
            if any(task[0].id == action.invocation for task in instance.tasks):
                break
        else:
            return f"invocation {action.invocation} does not run"
        self._controller.abort(instance.batch, "preempted")
        self._controller.end_instance(instance, "preempted")
        for task in instance.tasks:
            if is_wanted(task):
                invocation, state, stage = task
                again = (invocation.item, invocation.attempt, self._controller.now, invocation.copy)
                self._waiting.add(state, stage, *again)
        return None

    def _warm(self, action: base.Warm) -> str | None:
        if action.function in self._replicas.sets:
            return f"{action.function} is scaled: its scaler decides how many instances it has"
        shape = self._beliefs.shape(action.function, action.configuration)
        if shape is None:
            return f"{action.function} has no configuration {action.configuration}"
        node = self._nodes.get(action.node)
        if node is None:
            return f"there is no node {action.node!r}"
        if not shape.fits(node, action.device):
            return f"{action.function} at {action.configuration} does not fit on {action.node}"
        device = shape.device_for(node, action.device) if shape.vgpus else None
        instance = self._pool.create(shape, node, device, self._controller.now, on_demand=False)
        shape.flavour.starting.setdefault(node.index, []).append(instance)
        self._controller.start_instance(instance)
        return None

    def _retire(self, action: base.Retire) -> str | None:
        instance = self._pool.instances.get(action.instance)
        if instance is None or not instance.is_idle:
            return f"instance {action.instance} is not idle"
        if instance.is_replica:
            return f"instance {action.instance} is a replica: its scaler decides how many there are"
        self._pool.stop(instance, self._controller.now, "retired")
        return None

    def _wake(self, action: base.Wake) -> str | None:
        if not self._controller.now < action.at < inf:
            return f"a wake must lie in the future; got {action.at} at {self._controller.now}"
        self._controller.timers.at(action.at, self._wake_up)
        return None

    def _wake_up(self) -> None:
        self.wake_due = True

    def _scaling(self, action: base.Scale | base.Resize | base.Move) -> str | None:
        """What a policy wants of a function's replicas; an operator's order goes before it."""
        if action.function in self._holds:
            self._holds.remember(action)
            self._note_refusal(action, HELD)
            return None
        return self._order[type(action)](action)

    def _change_cluster(self, action: base.Grow | base.Shrink) -> str | None:
        growable = self._controller.growable
        if growable is not None and action.kind not in growable:
            self._note_refusal(action, f"nodes of kind {action.kind!r} cannot be added or removed here")
            return None
        return self._replicas.grow(action) if isinstance(action, base.Grow) else self._replicas.shrink(action)

    def _plan(self, action: base.Plan) -> str | None:
        state = self._requests.get(action.request)
        if state is None:
            return f"request {action.request} is not open"
        state.promised, state.plan_steps, state.notes = action.finish, " -> ".join(action.steps), action.notes
        return None

    def _searched(self, action: base.Searched) -> str | None:
        if action.steps < 0:
            return f"steps must not be negative; got {action.steps}"
        self._steps += action.steps
        return None


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
