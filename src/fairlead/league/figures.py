"""One run of a league: the simulation, and the few figures of it that are kept."""

from math import inf
from time import perf_counter, process_time
from typing import Literal

import msgspec

from fairlead.engine.sim.driver import Progress, Simulation
from fairlead.policy import make_policy
from fairlead.report import Summary, summarise
from fairlead.workload import Scenario

Status = Literal["done", "too slow", "error"]

_ROUNDING = 1e-6  # relative: an answer at the very deadline still counts


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a run. Requests that arrive in the warm-up are not counted.

    `worst_attainment` is that of the workflow whose requests fared worst, `worst_workflow`. `cost_usd` is what the
    counted requests had cost when the last of them was answered or late. `decision_s`, the mean time per decision,
    `wall_s` and `cpu_s` are measured on the machine; everything else is a function of scenario, policy and seed.
    """

    requests: int
    completed: int
    rejected: int
    attainment: float
    goodput_rps: float
    cost_usd: float
    worst_attainment: float
    worst_workflow: str
    cold_starts: int
    decision_s: float | None
    wall_s: float
    cpu_s: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run: figures, an error with its reason, or none within the time limit, `limit_s`."""

    status: Status
    figures: Figures | None = None
    reason: str = ""
    limit_s: float | None = None
    wall_s: float = 0.0


class DecidedRun(Simulation):
    """A simulation that ends as soon as every counted request is answered or past its deadline.

    What happens afterwards cannot change any attainment; working off what an overload has piled up takes longer than
    all the rest. Without deadlines it runs to the end.
    """

    __slots__ = ()

    def loop(self, progress: Progress | None, until: float = inf) -> None:
        """Bring the controller from instant to instant, to the last deadline at most."""
        last = self.scenario.duration_s + max(one.slo.latency_s for one in self.scenario.workflows.values())
        super().loop(progress, min(until, last * (1 + _ROUNDING)))


def run(scenario: Scenario, seed: int) -> Outcome:
    """One run of a scenario under its own policy; whatever is raised or refused becomes an error with its reason."""
    began, used_s = perf_counter(), process_time()
    try:
        choice, scaler = scenario.policy, scenario.scaler
        policy = make_policy(choice.name, choice.parameters)
        scaling = (None, None) if scaler is None else (scaler.name, make_policy(scaler.name, scaler.parameters))
        recording = DecidedRun(scenario, (choice.name, policy), scaling, seed, None, ()).run(None, {})
        if recording.refusals:
            first = recording.refusals[0]
            count = f"{len(recording.refusals):,} actions were" if len(recording.refusals) > 1 else "1 action was"
            raise RuntimeError(f"{count} refused; the first at {first.now:g} s: {first.action}: {first.reason}")
        figures = _figures(summarise(recording), perf_counter() - began, process_time() - used_s)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
        return Outcome(status="error", reason=f"{kind}{lines[0]}", wall_s=perf_counter() - began)
    return Outcome(status="done", figures=figures, wall_s=figures.wall_s)


def _figures(summary: Summary, wall_s: float, cpu_s: float) -> Figures:
    if summary.slo_attainment is None:
        raise RuntimeError("no request arrived after the warm-up")
    shares = {name: part.slo_attainment or 0.0 for name, part in summary.by_workflow.items()}
    worst = min(shares, key=lambda name: (shares[name], name))
    return Figures(
        requests=summary.requests,
        completed=summary.completed,
        rejected=summary.rejected,
        attainment=summary.slo_attainment,
        goodput_rps=summary.goodput_rps or 0.0,
        cost_usd=summary.cost_usd,
        worst_attainment=shares[worst],
        worst_workflow=worst,
        cold_starts=summary.cold_starts,
        decision_s=summary.decision_s.mean,
        wall_s=wall_s,
        cpu_s=cpu_s,
    )
