"""A workflow as this policy sees it: how often its stages run, how long the rest takes, and its open requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, inf

from fairlead.model import Invocation, Workflow
from fairlead.policy.punctual.work import Gap, Queue, Room, Work
from fairlead.profile.spread import widened

_KEPT = 0.9  # share of promises that are to be kept
_MOST_STRETCH = 4.0
_GAP_MEMORY = 0.02  # weight of the newest gap between two requests


@dataclass(eq=False)
class Step:
    """One stage. Other stages are given by their indices."""

    index: int
    work: Work
    visits: float  # how often it is expected to run in one request
    items: float  # and how often at the same time
    after: list[int] = field(default_factory=list)  # the stages before it
    then: list[int] = field(default_factory=list)  # the stages that certainly follow
    arms: list[int] = field(default_factory=list)  # the stages of which exactly one follows
    rest_s: float = 0.0  # the shortest time that the stages after it take, on the longest path

    def rounds(self) -> int:
        """How many batches in sequence its items need."""
        main = self.work.main
        return 1 if self.items <= 1 else max(1, ceil(self.items / (main.seats * max(1, main.capacity))))


class Flow:
    """A workflow."""

    def __init__(self, workflow: Workflow, works: Mapping[str, Work]) -> None:
        self.name = workflow.name
        self.steps: list[Step] = []
        self.by_name: dict[str, Step] = {}
        maps = {stage.name: stage.map for stage in workflow.stages}
        chance: dict[str, float] = {}
        for index, stage in enumerate(workflow.stages):  # in topological order
            chance[stage.name] = max((chance[name] for name in stage.after), default=1.0)
            if stage.when is not None:
                chance[stage.name] *= stage.when
            region = workflow.regions[stage.name]
            span = None if region is None else maps[region]
            items = (sum(span) / 2 if span else 1.0) * stage.compete
            step = Step(index, works[stage.function], chance[stage.name] * items, items)
            for before in [self.by_name[name] for name in stage.after]:
                step.after.append(before.index)
                (before.then if stage.when is None else before.arms).append(index)
            self.steps.append(step)
            self.by_name[stage.name] = step
        for step in self.steps:
            if sum(workflow.stages[place].when or 0.0 for place in step.arms) < 1 - 1e-9:
                step.arms = []  # it may be that none is taken
        only = workflow.stages[0]
        self.is_single = len(self.steps) == 1 and only.map is None and only.compete == 1
        self.has_choice = any(len(step.work.ladders) > 1 for step in self.steps)
        self.rooms: dict[Room, float] = {}  # by room, how long one request keeps it busy
        self.stretch = 1.0  # factor by which forecasts are lengthened, so that promises are kept
        self.gap = Gap(_GAP_MEMORY)  # between requests with a deadline
        self.open = 0  # requests
        self.alone_s = 0.0  # the shortest time of a request when there is no other
        self.review()

    def answered(self, is_kept: bool) -> None:
        """Take in whether a request that was promised an answer in time got one."""
        self.stretch = min(_MOST_STRETCH, widened(self.stretch, 0.0 if is_kept else inf, _KEPT))

    def is_modest(self, room: Room) -> bool:
        """Whether it asks for less than its fair share of a room for which other workflows compete."""
        return room.callers > 1 and self.rooms.get(room, 0.0) * room.callers < 0.9 * self.gap.seconds

    def review(self) -> None:
        """Work out again what depends on run times."""
        steps = self.steps
        for step in reversed(steps):
            need_s = [steps[place].rest_s + steps[place].work.fastest_s for place in step.then]
            if step.arms:  # only one of them is taken
                need_s.append(min(steps[place].rest_s + steps[place].work.fastest_s for place in step.arms))
            step.rest_s = max(need_s, default=0.0)
        self.alone_s = max(step.rest_s + step.work.fastest_s for step in steps if not step.after)
        self.rooms = {}
        for step in steps:
            room = step.work.room
            self.rooms[room] = self.rooms.get(room, 0.0) + step.visits * step.work.unit_s


class Open:
    """An open request: what of it waits, and what of it is booked, in expected invocations by stage.

    Args:
        flow: Its workflow.
        deadline: The deadline that was promised to be kept; infinity if none was.
    """

    __slots__ = ("deadline", "flow", "is_modest", "is_probe", "left", "waits")

    def __init__(self, flow: Flow, deadline: float = inf) -> None:
        self.flow = flow
        flow.open += 1
        self.deadline = deadline
        self.left = [0.0] * len(flow.steps)  # nothing, unless it is booked: other requests need not wait for it then
        self.waits: list[tuple[Queue, Invocation]] = []  # each invocation and its queue, also of those that started
        self.is_probe = False  # it runs in any case, to see how long it takes
        self.is_modest = False  # its workflow asks for less than its share, so its batches are kept small

    def book(self) -> None:
        """Book all of its stages."""
        for step in self.flow.steps:
            self.left[step.index] = step.visits
            step.work.room.book(self.flow.name, step.work, step.visits)

    def started(self, stage: str) -> None:
        """Take one invocation of a stage off the books."""
        step = self.flow.by_name[stage]
        least = min(1.0, self.left[step.index])
        if least > 0:
            self.left[step.index] -= least
            step.work.room.book(self.flow.name, step.work, -least)

    def close(self) -> None:
        """Take all that is left of it off the books and out of the queues."""
        self.flow.open -= 1
        for step in self.flow.steps:
            left = self.left[step.index]
            if left > 0:
                step.work.room.book(self.flow.name, step.work, -left)
        for queue, invocation in self.waits:
            queue.remove(invocation)
