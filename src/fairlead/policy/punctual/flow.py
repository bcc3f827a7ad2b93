"""A workflow as this policy sees it: its stages, how often each runs, and how long the rest takes."""

from collections.abc import Mapping
from math import ceil, inf

from fairlead.model import Workflow
from fairlead.policy.punctual.room import Room
from fairlead.policy.punctual.work import Work
from fairlead.profile.spread import widened

_KEPT = 0.9  # share of promises that are to be kept
_MOST_STRETCH = 4.0
_RATE_MEMORY = 0.02  # weight of the newest gap between requests


class Step:
    """One stage. `visits` is how often it is expected to run in one request, `items` how often at once."""

    __slots__ = ("after", "arms", "index", "items", "name", "rest_s", "then", "visits", "work")

    def __init__(self, index: int, name: str, work: Work, after: tuple[int, ...], visits: float, items: float) -> None:
        self.index = index
        self.name = name
        self.work = work
        self.after = after  # places of its predecessors
        self.visits = visits
        self.items = items
        self.then: list[int] = []  # places of the stages that surely follow
        self.arms: list[int] = []  # and of those of which one does
        self.rest_s = 0.0  # what must follow, at the fastest, on the longest path

    def rounds(self) -> int:
        """How many batches its items need, one after the other."""
        main = self.work.main
        if self.items <= 1:
            return 1
        return max(1, ceil(self.items / (main.sizes[main.top] * max(1, main.capacity))))


class Flow:
    """A workflow."""

    def __init__(self, workflow: Workflow, works: Mapping[str, Work]) -> None:
        self.name = workflow.name
        places = {stage.name: index for index, stage in enumerate(workflow.stages)}
        maps = {stage.name: stage.map for stage in workflow.stages}
        chance: dict[str, float] = {}
        self.steps: list[Step] = []
        for index, stage in enumerate(workflow.stages):  # in topological order
            reached = max((chance[name] for name in stage.after), default=1.0)
            chance[stage.name] = reached if stage.when is None else reached * stage.when
            region = workflow.regions[stage.name]
            span = maps[region] if region is not None else None
            items = (sum(span) / 2 if span else 1.0) * stage.compete
            after = tuple(places[name] for name in stage.after)
            visits = chance[stage.name] * items
            self.steps.append(Step(index, stage.name, works[stage.function], after, visits, items))
        for stage, step in zip(workflow.stages, self.steps, strict=True):
            for place in step.after:
                before = self.steps[place]
                (before.then if stage.when is None else before.arms).append(step.index)
        for step in self.steps:
            if sum(workflow.stages[place].when or 0.0 for place in step.arms) < 1 - 1e-9:
                step.arms = []  # it may be that none is taken
        self.by_name = {step.name: step for step in self.steps}
        self.visits = [step.visits for step in self.steps]
        self.names = tuple(step.name for step in self.steps)
        only = workflow.stages[0]
        self.is_single = len(self.steps) == 1 and only.map is None and only.compete == 1
        self.rooms: dict[Room, float] = {}  # by room, how long one request takes of it
        self.has_choice = any(len(step.work.ladders) > 1 for step in self.steps)
        self.stretch = 1.0  # by how much forecasts are lengthened, so that promises are kept
        self.gap_s = inf  # smoothed time between two requests
        self.newest = -inf  # when the last arrived
        self.open = 0  # requests
        self.alone_s = 0.0  # how long a request takes when there is nothing else, at the fastest
        self.review()

    def called(self, now: float) -> None:
        """Note that a request with a deadline has arrived."""
        gap_s = min(now - self.newest, 1.0)
        self.newest = now
        self.gap_s = gap_s if self.gap_s == inf else self.gap_s + _RATE_MEMORY * (gap_s - self.gap_s)

    def answered(self, is_kept: bool) -> None:
        """Take in whether a request that was promised an answer in time got one."""
        self.stretch = min(_MOST_STRETCH, widened(self.stretch, 0.0 if is_kept else inf, _KEPT))

    def is_modest(self, room: Room) -> bool:
        """Whether it asks for less than its fair share of a room for which others compete."""
        return room.callers > 1 and self.rooms.get(room, 0.0) * room.callers < 0.9 * self.gap_s

    def review(self) -> None:
        """Work out again what depends on how long functions take."""
        steps = self.steps
        fastest_s = [step.work.fastest_s for step in steps]
        rest_s = [0.0] * len(steps)
        for step in reversed(steps):
            need_s = [rest_s[place] + fastest_s[place] for place in step.then]
            if step.arms:  # only one of them is taken
                need_s.append(min(rest_s[place] + fastest_s[place] for place in step.arms))
            rest_s[step.index] = max(need_s, default=0.0)
        self.alone_s = max(rest_s[step.index] + fastest_s[step.index] for step in steps if not step.after)
        self.rooms = {}
        for step in steps:
            step.rest_s = rest_s[step.index]
            room = step.work.room
            self.rooms[room] = self.rooms.get(room, 0.0) + step.visits * step.work.unit_s


class Open:
    """One open request: what of it has not started, in expected invocations by stage."""

    __slots__ = ("deadline", "flow", "is_modest", "is_probe", "left")

    def __init__(self, flow: Flow, deadline: float = inf) -> None:
        self.flow = flow
        flow.open += 1
        self.deadline = deadline  # that was promised to be kept; infinity if nothing was
        self.left = [0.0] * len(flow.steps)  # nothing, unless it is booked: others need not wait for it then
        self.is_probe = False  # it runs in any case, to see how long it takes
        self.is_modest = False  # its workflow asks for less than its share, so that batches are kept small for it

    def book(self) -> None:
        """Book all of it."""
        self.left = self.flow.visits.copy()
        for step in self.flow.steps:
            step.work.room.book(self.flow.name, step.work, step.visits)

    def started(self, step: Step) -> None:
        """One invocation of a stage starts."""
        least = min(1.0, self.left[step.index])
        if least > 0:
            self.left[step.index] -= least
            step.work.room.book(self.flow.name, step.work, -least)

    def close(self) -> None:
        """Give back what is booked of it."""
        self.flow.open -= 1
        for step in self.flow.steps:
            left = self.left[step.index]
            if left > 0:
                step.work.room.book(self.flow.name, step.work, -left)
                self.left[step.index] = 0.0
