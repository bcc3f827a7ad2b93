"""Competing copies of a stage: the first answer wins, and what waits or runs of the others is given up.

A copy waits, runs, fails and is retried like any invocation. The one that is done first resolves its stage. Copies that
still wait leave the queue without a trace; those that run go on and are discarded (`abandoned`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.core.progress import Race

if TYPE_CHECKING:
    from fairlead.engine.core.controller import Controller
    from fairlead.engine.core.progress import RequestState, StagePlan
    from fairlead.engine.core.queues import Task


def is_wanted(task: Task) -> bool:
    """Whether anybody still needs the answer: its request is open, and no other copy of it was faster."""
    invocation, state, stage = task
    return state.is_open and (stage.copies == 1 or state.races[stage.index, invocation.item].is_open)


class Races:
    """Starts and ends races."""

    __slots__ = ("_controller",)

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

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
            if instance is not None:
                self._controller.abandoned.give_up(instance)

    def lose(self, task: Task) -> bool:
        """A copy has failed for good; whether others are left."""
        invocation, state, stage = task
        race = state.races[stage.index, invocation.item]
        race.left -= 1
        return race.left > 0
