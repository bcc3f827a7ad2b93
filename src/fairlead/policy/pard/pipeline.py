"""What is ahead of a request at each stage: recent waits and expected run times of the stages that follow."""

from collections import deque
from collections.abc import Callable, Mapping

from fairlead.model import Workflow


class RecentMean:
    """The mean of what was noted within the last `window_s` seconds; 0 if nothing was."""

    __slots__ = ("_noted", "_sum", "_window_s")

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._noted: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def add(self, now: float, value: float) -> None:
        """Note a value."""
        self._noted.append((now, value))
        self._sum += value

    def mean(self, now: float) -> float:
        """The mean now."""
        self._forget(now)
        return self._sum / len(self._noted) if self._noted else 0.0

    def per_s(self, now: float) -> float:
        """The sum of the values per second of the window; of the time so far, where that is shorter."""
        self._forget(now)
        span_s = min(self._window_s, now)
        return self._sum / span_s if span_s > 0 else 0.0

    def _forget(self, now: float) -> None:
        noted, oldest = self._noted, now - self._window_s
        while noted and noted[0][0] < oldest:
            self._sum -= noted.popleft()[1]
        if not noted:
            self._sum = 0.0  # so that rounding errors do not add up


class Downstream:
    """How long a request still takes after each stage of a workflow, on the slowest path.

    A stage that follows counts with its recent wait and its expected run time. The figures are worked out again
    every `refresh_s` seconds, as the paper's modules exchange their states once a period.
    """

    def __init__(self, workflows: Mapping[str, Workflow], refresh_s: float) -> None:
        self._workflows = workflows
        self._refresh_s = refresh_s
        self._due = 0.0
        self._after_s: dict[tuple[str, str], float] = {}

    def refresh(self, now: float, time_s: Callable[[str], float]) -> None:
        """Look again at the stages if the period is over; `time_s` gives a function's wait and run together."""
        if now < self._due:
            return
        self._due = now + self._refresh_s
        for name, workflow in self._workflows.items():
            after_s = {stage.name: 0.0 for stage in workflow.stages}
            for stage in reversed(workflow.stages):
                own_s = time_s(stage.function)
                for predecessor in stage.after:
                    after_s[predecessor] = max(after_s[predecessor], own_s + after_s[stage.name])
            for stage_name, seconds in after_s.items():
                self._after_s[name, stage_name] = seconds

    def after_s(self, workflow: str, stage: str) -> float:
        """The time that the slowest path after a stage takes."""
        return self._after_s[workflow, stage]
