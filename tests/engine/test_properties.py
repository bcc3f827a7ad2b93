"""What holds in every run, whatever the scenario and whoever decides."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_worlds import MAKERS, Impatient, Restless, made, scenarios

from fairlead.engine import simulate
from fairlead.errors import PolicyError
from fairlead.model import Record
from fairlead.policy import Action, Policy, View
from fairlead.testing import DISPATCHER_CHECKS, check_accounts, check_capacity, check_order

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
FEW = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=SLOW_IS_FINE)
SOME = settings(FEW, max_examples=20)
MANY = settings(FEW, max_examples=1000)


def in_many(test, *strategies):
    """The same property in 200 worlds, among the slow tests."""
    return pytest.mark.slow(settings(FEW, max_examples=200)(given(*strategies)(test.hypothesis.inner_test)))


def check_all(recording, scenario):
    check_capacity(recording, scenario)
    check_order(recording, scenario)
    check_accounts(recording)
    check_critical_path(recording, scenario)


def check_critical_path(recording, scenario):
    """A request takes at least as long as the longest path through its own runs."""
    done = defaultdict(lambda: defaultdict(dict))
    for row in recording.invocations.iter_rows(named=True):
        if row["outcome"] == "done":
            done[row["request"]][row["stage"]][row["item"]] = row["end"] - row["start"]
    for ask in recording.requests.iter_rows(named=True):
        if ask["outcome"] != "completed":
            continue
        workflow = scenario.workflows[ask["workflow"]]
        longest = defaultdict(dict)
        for stage in workflow.stages:
            for item, seconds in done[ask["request"]][stage.name].items():
                before = [
                    path
                    for name in stage.after
                    for i, path in longest[name].items()
                    if i == item or stage.join or workflow.regions[name] != workflow.regions[stage.name]
                ]
                longest[stage.name][item] = seconds + max(before, default=0.0)
        path = max(path for items in longest.values() for path in items.values())
        assert ask["end"] - ask["arrival"] >= path - 1e-6, f"request {ask['request']} was faster than its own runs"


def run_and_check(scenario, name, seed):
    recording = simulate(scenario, made(name), seed=seed)
    check_all(recording, scenario)
    if name != "adversary":
        assert recording.refusals == ()


@FEW
@given(scenarios(), MAKERS, st.integers(0, 3))
def test_accounts_capacity_and_order_hold(scenario, name, seed):
    run_and_check(scenario, name, seed)


@pytest.mark.slow
@MANY
@given(scenarios(), MAKERS, st.integers(0, 3))
def test_accounts_capacity_and_order_hold_in_many(scenario, name, seed):
    run_and_check(scenario, name, seed)


@FEW
@given(scenarios(), st.integers(0, 3))
def test_no_adversary_breaks_the_engine(scenario, seed):
    run_and_check(scenario, "adversary", seed)


@pytest.mark.slow
@MANY
@given(scenarios(), st.integers(0, 3))
def test_no_adversary_breaks_the_engine_in_many(scenario, seed):
    run_and_check(scenario, "adversary", seed)


def scale_and_check(scenario, name, seed):
    recording = simulate(scenario, Impatient(made(name)), scaler=Restless(), seed=seed)
    check_all(recording, scenario)


@FEW
@given(scenarios(), MAKERS, st.integers(0, 3))
def test_no_scaler_breaks_the_engine(scenario, name, seed):
    scale_and_check(scenario, name, seed)


@pytest.mark.slow
@MANY
@given(scenarios(), MAKERS, st.integers(0, 3))
def test_no_scaler_breaks_the_engine_in_many(scenario, name, seed):
    scale_and_check(scenario, name, seed)


@SOME
@given(scenarios(), MAKERS)
def test_same_seed_gives_equal_frames(scenario, name):
    one, other = (simulate(scenario, made(name), seed=5) for _ in range(2))
    for table in ("requests", "invocations", "instances"):
        assert getattr(one, table).equals(getattr(other, table))
    assert one.refusals == other.refusals


test_same_seed_gives_equal_frames_in_many = in_many(test_same_seed_gives_equal_frames, scenarios(), MAKERS)


@SOME
@given(scenarios(), MAKERS)
def test_no_policy_can_change_what_it_is_shown(scenario, name):
    (check,) = (check for check in DISPATCHER_CHECKS if check.__name__ == "the_view_stays_as_it_is")
    check(lambda: made(name), scenario)


test_no_policy_can_change_what_it_is_shown_in_many = in_many(
    test_no_policy_can_change_what_it_is_shown, scenarios(), MAKERS
)


class OwnError(Exception):
    """The policy's own."""


@dataclass
class Exploding(Policy):
    """Another policy, until its n-th call, or its n-th record."""

    inner: Policy
    calls: int = 1
    records: int = 10**9

    @property
    def clairvoyant(self) -> bool:
        return self.inner.clairvoyant

    def prepare(self, site, rng) -> None:
        self.inner.prepare(site, rng)

    def decide(self, view: View) -> Iterator[Action]:
        self.calls -= 1
        if self.calls < 0:
            raise OwnError
        yield from self.inner.decide(view)

    def observe(self, record: Record) -> None:
        self.records -= 1
        if self.records < 0:
            raise OwnError
        self.inner.observe(record)


@SOME
@given(scenarios(), MAKERS, st.integers(0, 30), st.booleans())
def test_policy_that_raises_ends_the_run_and_keeps_the_records(scenario, name, count, in_observe):
    whole = simulate(scenario, made(name))
    counts = {"calls": 10**9, "records": count} if in_observe else {"calls": count}
    try:
        simulate(scenario, Exploding(made(name), **counts))
    except PolicyError as error:
        failure = error
    else:
        assert count > 0  # the run was over before
        return
    assert isinstance(failure.__cause__, OwnError)
    check_all(failure.recording, scenario)
    part = failure.recording.invocations
    assert part.height <= whole.invocations.height
    assert part.equals(whole.invocations.head(part.height))


test_policy_that_raises_ends_the_run_and_keeps_the_records_in_many = in_many(
    test_policy_that_raises_ends_the_run_and_keeps_the_records, scenarios(), MAKERS, st.integers(0, 30), st.booleans()
)
