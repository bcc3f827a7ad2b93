"""Exact replay: the logged events, given to a fresh controller, give the same rows to the last digit."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logged_runs import log_run
from random_worlds import DISPATCHERS, scenarios

from fairlead.engine import simulate
from fairlead.engine.core import events as ev
from fairlead.errors import ConfigError
from fairlead.policy import make_policy
from fairlead.replay import check_exactly, read_logged_run
from fairlead.report.live import read_live_run
from fairlead.testing import SCENARIOS, cluster, declared, scenario
from fairlead.workload import PolicyChoice

KNOWN_NOTHING = [name for name in DISPATCHERS if not make_policy(name).clairvoyant]


ANY_RUN = given(world=scenarios(), policy=st.sampled_from(KNOWN_NOTHING), seed=st.integers(0, 3))


def check_any_run(tmp_path_factory, world, policy, seed):
    folder = log_run(world, tmp_path_factory.mktemp("run"), policy, seed)
    assert check_exactly(read_logged_run(folder)) is None


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@ANY_RUN
def test_any_run_is_replayed_exactly(tmp_path_factory, world, policy, seed):
    check_any_run(tmp_path_factory, world, policy, seed)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@ANY_RUN
def test_many_runs_are_replayed_exactly(tmp_path_factory, world, policy, seed):
    check_any_run(tmp_path_factory, world, policy, seed)


@pytest.mark.parametrize("world", ["chain", "map-join", "node-loss", "retries", "kernels"])
def test_a_logged_run_has_the_tables_of_the_simulated_one(tmp_path, world):
    there = SCENARIOS[world]()
    recording = read_live_run(log_run(there, tmp_path / "run", "earliest-deadline"))
    simulated = simulate(there, "earliest-deadline")
    for table in ("requests", "invocations", "instances"):
        assert getattr(recording, table).equals(getattr(simulated, table)), table
    assert dict(recording.parameters) == dict(simulated.parameters)


ONE = scenario({"f": declared(1.0)}, arrivals=(0.0, 0.0, 0.5), on=cluster(1, vcpus=1))


def test_the_first_difference_is_named(tmp_path):
    run = read_logged_run(log_run(ONE, tmp_path / "run"))
    (at, events), *others = run.instants[-1:]
    assert isinstance(events[0], ev.Finished)
    later = replace(run, instants=(*run.instants[:-1], (at + 1, events), *others))
    difference = check_exactly(later)
    assert (difference.table, difference.place, difference.column) == ("requests", 2, "end")
    assert (difference.recorded, difference.replayed) == (3.0, 4.0)
    assert str(difference) == "requests, row 2, end: recorded 3.0, replayed 4.0"


def test_a_row_that_the_replay_lacks_is_named(tmp_path):
    run = read_logged_run(log_run(ONE, tmp_path / "run"))
    shorter = replace(run, instants=run.instants[:-1])
    difference = check_exactly(shorter)
    assert (difference.table, difference.place, difference.column) == ("requests", 2, "end")
    assert (difference.recorded, difference.replayed) == (3.0, None)


def test_of_a_killed_run_what_is_there_is_compared(tmp_path):
    run = read_logged_run(log_run(ONE, tmp_path / "run"))
    killed = replace(run, instants=run.instants[:-1], has_ended=False)
    assert check_exactly(killed) is None


def test_another_policy_is_a_difference(tmp_path):
    there = scenario(
        {"f": declared(1.0)}, arrivals=(0.0, 0.0, 0.0), slo_s=1.5, on=cluster(1, vcpus=1)
    )  # the last two are too late for one that looks at the deadline
    run = read_logged_run(log_run(there, tmp_path / "run", "dag-admission"))
    other = replace(run.head.scenario, policy=PolicyChoice(name="fifo"))
    difference = check_exactly(replace(run, head=type(run.head)(app="x", scenario=other)))
    assert difference is not None


def test_a_run_without_its_beginning_is_refused(tmp_path):
    run = read_logged_run(log_run(ONE, tmp_path / "run"))
    with pytest.raises(ConfigError, match="oldest segments are gone"):
        check_exactly(replace(run, is_whole=False))
