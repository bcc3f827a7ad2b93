"""Invocations that are answered without a run: a prediction cache of the driver knows what they would give.

The driver is asked at every instant after its events were applied, so that an invocation that it can answer leaves the
queue before a policy sees it. What it answers are events (`Recalled`) of the same instant: a log that has them among
the others replays to the same rows, without the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev

if TYPE_CHECKING:
    from fairlead.engine.core.controller import Controller
    from fairlead.engine.core.queues import Task
    from fairlead.model import Invocation

Recall = Callable[[Sequence["Invocation"]], Sequence[ev.Recalled]]
"""Takes the invocations that became ready since it was last asked, and gives an event for each one that it answers.

It may also answer invocations that have waited for longer. Some of those given may not wait any more.
"""


class Recalling:
    """Asks the driver, and lets requests go on with what it answers.

    `is_due` is whether `ask` must be called at this instant, once its events are applied.
    """

    __slots__ = ("_asked", "_controller", "_next", "_recall", "_recalled", "is_due")

    def __init__(self, controller: Controller, recall: Recall | None) -> None:
        self._controller = controller
        self._recall = recall
        self._asked = -1  # the number of the last invocation that was asked for
        self._recalled: set[Invocation] = set()  # at this instant
        self._next = (-1, 0)  # a request, and the place among its invocations where the next search begins
        self.is_due = recall is not None

    def ask(self) -> None:
        """Apply all that the driver can answer, with what becomes ready by that."""
        recall = self._recall
        if recall is not None:
            ready = self._ready()
            while True:
                for event in recall(ready):
                    self.apply(event)
                ready = self._ready()
                if not ready:
                    break
        recalled = self._recalled
        if recalled:  # for a dispatcher that has not been asked since they became ready, they never waited
            ready = self._controller.changes.ready
            ready[:] = [invocation for invocation in ready if invocation not in recalled]
            recalled.clear()
        self.is_due = recall is not None

    def apply(self, event: ev.Recalled) -> None:
        """An invocation is done: let the next stages wait, or answer the request."""
        controller = self._controller
        task = self._find(event)
        if task is None:
            controller.stale_events += 1
            return
        invocation, state, stage = task
        controller.waiting.remove(task)
        self._recalled.add(invocation)
        self.is_due = True
        controller.books.recalled(invocation, controller.now)
        if stage.copies > 1:
            controller.races.win(task)
        if state.is_chain:
            state.unresolved -= 1
            following = stage.then
        else:
            following = state.advance(stage, invocation.item, event.outcome.arm, event.outcome.items)
        for successor, item in following:
            if successor.copies == 1:
                controller.waiting.add(state, successor, item, 1, controller.now)
            else:
                controller.races.begin(state, successor, item)
        if state.unresolved == 0:
            if state.request.id in controller.fresh:  # nothing is left to be admitted
                controller.fresh.remove(state.request.id)
            controller.close(state, "completed", None, None)
            controller.effects.append(fx.Answer(controller.now, state.request.id, "completed"))

    def _ready(self) -> list[Invocation]:
        """What became ready since the driver was last asked."""
        ready = [invocation for invocation in self._controller.changes.ready if invocation.id > self._asked]
        if ready:
            self._asked = ready[-1].id
        return ready

    def _find(self, event: ev.Recalled) -> Task | None:
        """The waiting invocation that an event is about. The items of a map come in order: each is found at once."""
        state = self._controller.requests.get(event.request)
        if state is None:
            return None
        tasks, made = self._controller.waiting.tasks, state.invocations
        request, first = self._next
        first = first if request == event.request else 0
        for place in chain(range(first, len(made)), range(first)):
            invocation = made[place]
            if invocation.stage == event.stage and invocation.item == event.item and invocation in tasks:
                self._next = event.request, place + 1
                return tasks[invocation]
        return None
