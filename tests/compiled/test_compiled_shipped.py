"""The scenarios that come with Fairlead: what the compiled core covers of them, it does as the Python engine does."""

import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
from agreement import assert_same
from covered_worlds import is_uneven
from world_features import beyond, unsettled

from fairlead.engine import simulate
from fairlead.engine.sim.compiled import coverage
from fairlead.model import Workflow
from fairlead.policy import Policy, make_policy
from fairlead.workload import DecisionTime, Scenario, load_scenario, shipped_names

FEW_RUNS, MANY_RUNS = 120, 20_000  # of stages, about: a tenth of a second, and up to three, in the Python engine
CONTROLS = 25  # control periods while requests arrive, unless they would be shorter than a function takes
LEAST_CONTROL_S = 0.5
SCALED = ("quickstart", "batched-stage", "pipeline-ensemble", "kaas-poisson", "esg-strict-light")


@dataclass(frozen=True)
class Choice:
    """A dispatcher with its parameters, and perhaps a scaler."""

    dispatcher: str
    parameters: dict[str, Any] = field(default_factory=dict)
    scaler: str | None = None

    def __str__(self) -> str:
        given = "".join(f" {name}={value}" for name, value in self.parameters.items())
        return f"{self.dispatcher}{given}" + (f" with {self.scaler}" if self.scaler else "")

    def policies(self, scenario: Scenario) -> tuple[Policy, Policy | None]:
        """New ones; the scaler's windows are a few control periods, as long as the run is short."""
        window_s = 5 * scenario.control_period_s
        short = {
            "knative": {"stable_window_s": window_s, "panic_window_s": window_s / 5, "grace_s": window_s},
            "hpa": {"period_s": 0.0, "stabilisation_s": window_s},
        }
        scaler = None if self.scaler is None else make_policy(self.scaler, short[self.scaler])
        return make_policy(self.dispatcher, self.parameters), scaler


DISPATCHERS = (
    Choice("fifo"),
    Choice("fifo", {"batching": "full", "batch_wait_s": 0.05, "queue_limit": 20}),
    Choice("least-loaded"),
    Choice("least-loaded", {"batching": "full", "batch_wait_s": 0.02}),
    Choice("earliest-deadline"),
)
CHOICES = [replace(choice, scaler=scaler) for scaler in (None, "knative", "hpa") for choice in DISPATCHERS]


@cache
def shipped(name: str) -> Scenario:
    return load_scenario(name)


def within_reach(scenario: Scenario) -> Scenario:
    """The scenario without what only other dispatchers need, decision time, and without workflows beyond the core."""
    flows = {name: flow for name, flow in scenario.workflows.items() if is_plain(flow)} or scenario.workflows
    arrivals = tuple(process for process in scenario.arrivals if process.workflow in flows)
    return replace(scenario, workflows=flows, arrivals=arrivals, decision=DecisionTime())


def is_plain(flow: Workflow) -> bool:
    return not any(s.when is not None or s.map or s.join or s.compete > 1 for s in flow.stages)


def cut(scenario: Scenario, runs: int) -> Scenario:
    """The beginning of a scenario, so long that about so many stages run."""
    duration_s = scenario.duration_s * min(1.0, runs / most_runs(scenario))
    return replace(
        scenario,
        duration_s=duration_s,
        warmup_s=min(scenario.warmup_s, duration_s / 2),
        control_period_s=max(LEAST_CONTROL_S, duration_s / CONTROLS),
    )


def most_runs(scenario: Scenario) -> float:
    """How many runs of stages are to be expected if nothing is refused."""
    stages = {name: len(flow.stages) for name, flow in scenario.workflows.items()}
    return sum(process.expected(scenario.duration_s) * stages[process.workflow] for process in scenario.arrivals)


def is_refused_for_ever(scenario: Scenario, choice: Choice) -> bool:
    """Whether batches are formed in sizes that replicas do not have: starting them is refused again and again."""
    uses_batches = choice.scaler is not None and choice != Choice("fifo", scaler=choice.scaler)
    return uses_batches and any(is_uneven(profile) for profile in scenario.profiles.values())


def compare(scenario: Scenario, choice: Choice) -> int:
    """Compare the engines, if the choice is covered; gives the number of runs of stages."""
    if coverage(scenario, *choice.policies(scenario)) is not None or is_refused_for_ever(scenario, choice):
        return 0
    python, compiled = (
        simulate(scenario, policy, scaler=scaler, seed=1, engine=engine)
        for engine, (policy, scaler) in ((e, choice.policies(scenario)) for e in ("python", "compiled"))
    )
    try:
        assert_same(python, compiled)
    except AssertionError as error:
        error.add_note(f"{scenario.name}, {choice}, {scenario.duration_s:g} s, seed 1")
        raise
    return python.invocations.height


@pytest.mark.parametrize("name", shipped_names())
def test_every_covered_choice_agrees_on_the_beginning(name):
    where = within_reach(shipped(name))
    if beyond(where):
        pytest.skip(f"beyond the compiled core: {', '.join(beyond(where))}")
    where = cut(where, FEW_RUNS)
    refusal = coverage(where, *DISPATCHERS[0].policies(where))
    if unsettled(where) and refusal is not None:
        pytest.skip(f"beyond the compiled core: {refusal}")
    runs = [compare(where, choice) for choice in (CHOICES if name in SCALED else DISPATCHERS)]
    assert min(runs[: len(DISPATCHERS)]) > 0
    assert max(runs) > min(FEW_RUNS, most_runs(where)) / 2


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("name", shipped_names())
def test_every_covered_choice_agrees(name, choice):
    where = within_reach(shipped(name))
    if beyond(where) or compare(cut(where, MANY_RUNS), choice) == 0:
        pytest.skip("not covered, or refused for ever")


def test_coverage_is_as_claimed_and_tells_its_reasons():
    covered, reasons = Counter(), Counter()
    for name in shipped_names():
        scenario = shipped(name)
        for choice in CHOICES:
            reason = coverage(scenario, *choice.policies(scenario))
            is_scaled = choice.scaler is not None
            if not unsettled(scenario, is_scaled=is_scaled):
                assert (reason is None) == (not beyond(scenario)), f"{name}, {choice}: {reason}, {beyond(scenario)}"
            if reason is None:
                covered[name] += 1
            else:
                reasons[name, reason] += 1
    for (name, reason), count in sorted(reasons.items()):
        sys.stdout.write(f"{name}: {count} of {len(CHOICES)} choices not covered: {reason}\n")
    assert sum(covered.values()) >= len(CHOICES) * 9
    assert all(reason and not reason.isspace() for _, reason in reasons)


def test_a_policy_that_is_not_covered_is_named():
    scenario = shipped("quickstart")
    for policy in ("esg", "clockwork", "fifo-types"):
        reason = coverage(scenario, make_policy(policy), None)
        assert reason is not None
        assert policy in reason or type(make_policy(policy)).__name__ in reason
