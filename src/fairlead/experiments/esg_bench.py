"""The bench of ESG and its rivals: many scenarios, policies and seeds, and what is read from each run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import polars as pl

from fairlead.engine import simulate
from fairlead.experiments.cases import Progress, each
from fairlead.model import Record
from fairlead.policy import make_policy
from fairlead.policy.base import Action, Policy, Searched, Site, View
from fairlead.policy.kit.preplanned import planned
from fairlead.report import estimate, summarise
from fairlead.workload import load_scenario

_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Trial:
    """One run: a scenario, a policy with parameters, a seed."""

    scenario: str
    label: str
    policy: str
    parameters: Mapping[str, object]
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What is read from a run. `shares` are quantiles (5, 25, 50, 75, 95 %) of latency over objective, by workflow
    and for all as `all`; `search_steps` the mean per search; `plan_misses` the share of stages whose plan was not kept.
    """

    trial: Trial
    requests: int
    attainment: float
    cost_usd: float  # per 1,000 requests
    cold_starts: int  # waited for by counted requests
    shares: Mapping[str, tuple[float, ...]]
    searches: int
    search_steps: float
    plan_misses: float | None
    decision_ms: float  # measured, mean
    wall_s: float  # measured


def run_trials(trials: Sequence[Trial], progress: Progress) -> list[Outcome]:
    """Every trial, on two processes, in the order given."""
    found: dict[int, Outcome] = {}
    for position, outcome in each(run_trial, trials, in_parallel=len(trials) > 3):
        found[position] = outcome
        trial = trials[position]
        progress(len(found) / len(trials), f"{trial.scenario}, {trial.label}, seed {trial.seed}")
    return [found[position] for position in range(len(trials))]


def run_trial(trial: Trial) -> Outcome:
    """One run, whose actions must all have been carried out."""
    counting = _Counting(make_policy(trial.policy, trial.parameters))
    recording = simulate(load_scenario(trial.scenario), counting, seed=trial.seed)
    assert not recording.refusals, (trial, recording.refusals[0])
    summary = summarise(recording)
    counted = recording.requests.filter(pl.col("arrival") >= recording.warmup_s)
    done = counted.filter(pl.col("outcome") == "completed").with_columns(
        latency=pl.col("end") - pl.col("arrival"),
        share=(pl.col("end") - pl.col("arrival")) / (pl.col("deadline") - pl.col("arrival")),
    )
    shares = {"all": _quantiles(done["share"])}
    for (workflow,), rows in done.group_by("workflow", maintain_order=True):
        shares[str(workflow)] = _quantiles(rows["share"])
    runs = recording.invocations.join(counted.select("request"), on="request", how="semi")
    return Outcome(
        trial=trial,
        requests=summary.requests,
        attainment=summary.slo_attainment or 0.0,
        cost_usd=1000 * summary.cost_usd / max(1, summary.requests),
        cold_starts=runs.filter(pl.col("cold_s") > 0).height,
        shares=shares,
        searches=counting.searches,
        search_steps=counting.steps / max(1, counting.searches),
        plan_misses=_plan_misses(counted, runs),
        decision_ms=1000 * fmean(recording.decision_s or (0.0,)),
        wall_s=recording.run_wall_s,
    )


def _quantiles(values: pl.Series) -> tuple[float, ...]:
    if values.is_empty():
        return tuple(float("nan") for _ in _SHARES)
    return tuple(round(float(value), 4) for value in np.quantile(values.to_numpy(), _SHARES))


def _plan_misses(requests: pl.DataFrame, runs: pl.DataFrame) -> float | None:
    """The share of stages that ran with another batch, vCPUs or vGPUs than was planned at first; None without plans."""
    plans = {
        request: planned(steps)
        for request, steps in requests.filter(pl.col("plan").is_not_null()).select("request", "plan").iter_rows()
        if steps
    }
    if not plans:
        return None
    missed = total = 0
    columns = ("request", "stage", "batch_size", "vcpus", "vgpus")
    for request, stage, batch, vcpus, vgpus in runs.select(columns).iter_rows():
        wanted = plans.get(request, {}).get(stage)
        if wanted is not None:
            total += 1
            missed += (batch, vcpus, vgpus) != (wanted.batch, wanted.vcpus, wanted.vgpus)
    return missed / total if total else None


@dataclass
class _Counting(Policy):
    """Counts the searches of another policy."""

    inner: Policy
    searches: int = 0
    steps: int = 0

    @property
    def clairvoyant(self) -> bool:
        return self.inner.clairvoyant

    @property
    def observes(self) -> bool:
        return self.inner.observes

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        """Let the other prepare."""
        self.inner.prepare(site, rng)

    def decide(self, view: View) -> Iterator[Action]:
        """What the other decides."""
        for action in self.inner.decide(view):
            if type(action) is Searched:
                self.searches += 1
                self.steps += action.steps
            yield action

    def observe(self, record: Record) -> None:
        """Let the other see."""
        self.inner.observe(record)


@dataclass(frozen=True)
class Cell:
    """The outcomes of one scenario under one policy, over all seeds."""

    outcomes: tuple[Outcome, ...]

    def mean(self, name: str) -> float:
        """The mean of a figure over the seeds; what a run does not have counts as 0."""
        return fmean(self.by_seed(name))

    def by_seed(self, name: str) -> list[float]:
        """A figure of every seed; what a run does not have counts as 0."""
        return [float(getattr(outcome, name) or 0.0) for outcome in self.outcomes]

    def half_width(self, name: str) -> float | None:
        """Half of the 95 % interval of its mean; None with one seed."""
        return estimate(self.by_seed(name)).half_width

    def medians(self, workflow: str = "all") -> list[float]:
        """The median of latency over objective of every seed."""
        return [outcome.shares[workflow][2] for outcome in self.outcomes if workflow in outcome.shares]

    def share(self, workflow: str = "all") -> tuple[float, ...]:
        """Quantiles of latency over objective, each the mean over the seeds."""
        rows = [outcome.shares[workflow] for outcome in self.outcomes if workflow in outcome.shares]
        return tuple(float(np.mean(column)) for column in zip(*rows, strict=True))


def cells(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], Cell]:
    """By scenario and label, in the order of first appearance."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault((outcome.trial.scenario, outcome.trial.label), []).append(outcome)
    return {key: Cell(tuple(own)) for key, own in found.items()}


def trials(scenarios: Sequence[str], policies: Mapping[str, Mapping[str, object]], seeds: Sequence[int]) -> list[Trial]:
    """Every scenario under every policy: `policies` gives, by label, `dispatch` and parameters."""
    return [
        Trial(scenario, label, str(given["dispatch"]), {k: v for k, v in given.items() if k != "dispatch"}, seed)
        for scenario in scenarios
        for label, given in policies.items()
        for seed in seeds
    ]
