"""How much of a request's time must be left when a stage is done: for what must follow, its waits, and a margin."""

from collections.abc import Mapping

from fairlead.model import Invocation, Workflow
from fairlead.policy.clockwork.ladder import Window
from fairlead.policy.kit.remaining import least_after


class Reserve:
    """The reserve of each stage of one workflow.

    The time that the objective spares is divided evenly: the margin and the wait of each stage have at most one share.
    A later stage is expected to wait as long as the workflow's later stages did, but at most `most_s`. One that had to
    be dropped waited that long.
    """

    def __init__(
        self, workflow: Workflow, fastest_s: Mapping[str, float], margin_s: float, most_s: float, remember: int
    ) -> None:
        self.rest_s = least_after(workflow, fastest_s)  # by stage, the least time of what must follow
        self._after = least_after(workflow, dict.fromkeys(workflow.functions, 1.0))  # how many stages that are
        self._later = {stage.name for stage in workflow.stages if stage.after}
        longest_s = max(self.rest_s[stage.name] + fastest_s[stage.function] for stage in workflow.stages)
        in_a_row = 1 + max(self._after.values())
        self._margin_s = min(margin_s, max(0.0, workflow.slo.latency_s - longest_s) / (1 + in_a_row))
        spare_s = max(0.0, workflow.slo.latency_s - self._margin_s - longest_s)
        self._most_s = min(most_s, spare_s / in_a_row)
        self.wait = Window(0.0, remember)

    def seconds(self, stage: str) -> float:
        """The time to leave between the end of a stage and the deadline."""
        wait_s = min(self.wait.seconds, self._most_s)
        return self.rest_s[stage] + (self._after[stage] * wait_s if wait_s else 0.0) + self._margin_s

    def waited(self, stage: str, wait_s: float, now: float) -> None:
        """Note for how long an invocation waited before it ran."""
        if stage in self._later:
            self.wait.learn(wait_s, now)

    def dropped(self, invocation: Invocation, now: float) -> None:
        """Note that an invocation had to be dropped."""
        self.waited(invocation.stage, self._most_s, now)
