"""Competing copies of a stage: the first answer wins, and what waits or runs of the others is given up.

A copy waits, runs, fails and is retried like any invocation. The one that is done first resolves its stage. Copies that
still wait leave the queue without a trace; those that run are stopped, if their batch holds nothing that anyone
wants, and their instances stay warm. In a batch with others they run to the end and are discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.progress import Race

if TYPE_CHECKING:
    from fairlead.engine.core.capacity import InstanceState
    from fairlead.engine.core.controller import Controller
    from fairlead.engine.core.progress import RequestState, StagePlan
    from fairlead.engine.core.queues import Task


def is_wanted(task: Task) -> bool:
    """Whether anybody still needs the answer: its request is open, and no other copy of it was faster."""
    invocation, state, stage = task
    return state.is_open and (stage.copies == 1 or state.races[stage.index, invocation.item].is_open)


class Races:
    """Starts and ends races. `ending` has the batches that end at this instant, seen before any of them is applied."""

    __slots__ = ("_are_possible", "_controller", "ending")

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        stages = (stage for workflow in controller.scenario.workflows.values() for stage in workflow.stages)
        self._are_possible = any(stage.compete > 1 for stage in stages)
        self.ending: frozenset[int] = frozenset()

    def note(self, events: Sequence[ev.Event]) -> None:
        """Look ahead at the events of an instant: a loser that ends together with the winner needs no stopping."""
        if self._are_possible:
            self.ending = frozenset(event.batch for event in events if type(event) is ev.Finished)

    def begin(self, state: RequestState, stage: StagePlan, item: int) -> None:
        """Let every copy of a stage wait."""
        state.races[stage.index, item] = Race(stage.copies)
        for copy in range(stage.copies):
            self._controller.waiting.add(state, stage, item, 1, self._controller.now, copy)

    def win(self, task: Task) -> None:
        """A copy is done: give up the others."""
        invocation, state, stage = task
        race = state.races[stage.index, invocation.item]
        race.is_open = False
        waiting, running = self._controller.waiting, self._controller.running
        for other in race.latest.values():
            if other in waiting.tasks:
                waiting.remove(waiting.tasks[other])
        for batch in race.batches:
            instance = running.get(batch)
            if instance is not None and not any(map(is_wanted, instance.tasks)):
                self._stop(instance)

    def lose(self, task: Task) -> bool:
        """A copy has failed for good; whether others are left."""
        invocation, state, stage = task
        race = state.races[stage.index, invocation.item]
        race.left -= 1
        return race.left > 0

    def _stop(self, instance: InstanceState) -> None:
        """Stop a batch and keep its instance: busy no more, or still starting and free for the next run."""
        controller, batch = self._controller, instance.batch
        now = controller.now
        controller.abort(batch, "preempted")
        if instance.started > now:  # even its start still lies ahead, where decisions take time
            controller.end_instance(instance, "preempted")
            return
        instance.batch = -1
        if not instance.is_ready:
            instance.flavour.starting.setdefault(instance.node.index, []).append(instance)
            return
        if batch not in self.ending:
            controller.effects.append(fx.StopBatch(now, batch))
        controller.freed.append(instance.node.name)
        if controller.replicas.in_use:
            controller.replicas.release(instance, now)
        else:
            controller.pool.release(instance, now)
