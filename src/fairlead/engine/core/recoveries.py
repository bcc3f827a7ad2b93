"""Outputs that were lost with the node that held them are made again, for the invocations that still need them.

An invocation that could not read an input waits until the stage that made it has run once more. That counts as a loss,
like that of the node itself: `on_loss` and `max_attempts` of the run say whether and how often it is done.
"""

from typing import TYPE_CHECKING

from fairlead.engine.core.progress import RequestState, StagePlan
from fairlead.engine.core.queues import Task
from fairlead.engine.core.transfers import Source, sources

if TYPE_CHECKING:
    from fairlead.engine.core.controller import Controller


class Recoveries:
    """The outputs that are being made again, by request, and what waits for them. `open` is empty if there are none."""

    __slots__ = ("_controller", "open")

    def __init__(self, controller: "Controller") -> None:
        self._controller = controller
        self.open: dict[int, dict[Source, list[_Waiter]]] = {}  # by request

    def begin(self, task: Task, node: str) -> bool:
        """Have made again what an invocation could not read from a node; False where that is not possible."""
        invocation, state, stage = task
        scenario = self._controller.scenario
        attempts = scenario.max_attempts if scenario.on_loss == "retry" else 1
        if invocation.attempt >= attempts or stage.copies > 1 or state.outputs is None:
            return False
        awaited = self.open.get(state.request.id, {})
        lost = [(key, plan) for key, plan in sources(task) if state.outputs[key][0] == node or key in awaited]
        if any(plan.copies > 1 for _, plan in lost):
            return False
        if not lost:  # it was made again meanwhile
            self._controller.waiting.add(state, stage, invocation.item, invocation.attempt + 1, self._controller.now)
            return True
        awaited = self.open.setdefault(state.request.id, awaited)
        waiter = _Waiter(task, len(lost))
        for key, plan in lost:
            if key in awaited:
                awaited[key].append(waiter)
            else:
                awaited[key] = [waiter]
                again = (key[1], invocation.attempt + 1, self._controller.now)
                self._controller.lost.append(self._controller.waiting.add(state, plan, *again))
        return True

    def end(self, state: RequestState, stage: StagePlan, item: int) -> bool:
        """An output is there; whether it had been lost. What waited for it may go on."""
        awaited = self.open.get(state.request.id)
        waiters = None if awaited is None else awaited.pop((stage.index, item), None)
        if awaited is None or waiters is None:
            return False
        if not awaited:
            del self.open[state.request.id]
        for waiter in waiters:
            waiter.lacks -= 1
            if waiter.lacks == 0:
                invocation, _, own = waiter.task
                now = self._controller.now
                self._controller.waiting.add(state, own, invocation.item, invocation.attempt + 1, now)
        return True

    def forget(self, request: int) -> None:
        """A request is closed."""
        self.open.pop(request, None)


class _Waiter:
    """An invocation that waits for outputs, and how many of them."""

    __slots__ = ("lacks", "task")

    def __init__(self, task: Task, lacks: int) -> None:
        self.task = task
        self.lacks = lacks
