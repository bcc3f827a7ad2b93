"""Replay: a recorded run in the simulator, with the times that it showed."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logged_runs import log_run

from fairlead.engine.core import events as ev
from fairlead.errors import ConfigError
from fairlead.model import Request, Stage, Workflow
from fairlead.policy.base import Retire, Warm
from fairlead.profile import Row, Table
from fairlead.replay import Observations, deviation, read_logged_run, replay
from fairlead.replay.again import left_out
from fairlead.replay.observed import Batch, ShareSpans, Spans
from fairlead.report import summarise
from fairlead.testing import SCENARIOS, cluster, declared, scenario
from fairlead.workload import Poisson, PolicyChoice

BUSY = scenario(
    {"f": declared(0.1, noise=0.3, cold_start_s=0.5)},
    arrivals=[Poisson("main", 17)],
    on=cluster(1, vcpus=2),
    slo_s=0.6,
    duration_s=60,
)


@pytest.mark.parametrize("world", ["branch", "gpu-mig", "cpu-only", "node-loss", "thinking"])
@pytest.mark.parametrize("policy", ["fifo", "dag-admission", "clockwork"])
def test_a_run_without_chance_is_replayed_as_it_was(tmp_path, world, policy):
    run = read_logged_run(log_run(SCENARIOS[world](), tmp_path / "run", policy))
    recorded, replayed = summarise(run.recording), summarise(replay(run))
    assert replayed.latency_s.p50 == pytest.approx(recorded.latency_s.p50)
    assert replayed.latency_s.p99 == pytest.approx(recorded.latency_s.p99)
    assert replayed.cost_usd == pytest.approx(recorded.cost_usd)
    assert (replayed.slo_attainment, replayed.completed) == (recorded.slo_attainment, recorded.completed)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("policy", ["fifo", "earliest-deadline"])
def test_a_noisy_run_is_predicted_within_the_bounds(tmp_path, policy, seed):
    run = read_logged_run(log_run(BUSY, tmp_path / "run", policy, seed))
    off = deviation(summarise(run.recording), summarise(replay(run, seed=seed + 10)))
    assert abs(off.p50) < 0.10
    assert abs(off.p99) < 0.25
    assert abs(off.attainment) < 0.03


def test_another_policy_meets_the_same_requests(tmp_path):
    run = read_logged_run(log_run(BUSY, tmp_path / "run", "fifo"))
    other = replay(run, PolicyChoice(name="dag-admission"))
    assert other.policy == "dag-admission"
    same = ["request", "workflow", "arrival", "deadline"]
    assert other.requests.sort("request").select(same).equals(run.recording.requests.sort("request").select(same))


def test_the_same_seed_gives_the_same_replay(tmp_path):
    run = read_logged_run(log_run(BUSY, tmp_path / "run", "fifo"))
    first, second, third = (replay(run, seed=seed) for seed in (1, 1, 2))
    assert first.requests.equals(second.requests)
    assert not first.requests.equals(third.requests)


def test_deadlines_and_budgets_are_those_of_each_request(tmp_path):
    run = read_logged_run(log_run(scenario(1.0, arrivals=(0.0, 2.0)), tmp_path / "run"))
    given = (
        (0.0, (ev.Arrived(Request(5, "main", 0.0, 0.75, 2.0)),)),
        (2.0, (ev.Arrived(Request(9, "main", 1.5, 30.0)),)),
    )
    again = replay(replace(run, instants=(*given, *run.instants[1:2])))
    assert again.requests.select("request", "arrival", "deadline", "budget_usd", "end").rows() == [
        (5, 0.0, 0.75, 2.0, 1.0),
        (9, 1.5, 30.0, float("inf"), 3.0),
    ]


def test_requests_from_before_an_instant_are_left_out(tmp_path):
    run = read_logged_run(log_run(BUSY, tmp_path / "run", "fifo"))
    again = replay(run, since=40.0)
    recorded = run.recording.requests.filter(pl.col("arrival") >= 40.0)
    assert again.requests["request"].sort().to_list() == recorded["request"].sort().to_list()
    assert 0 < again.requests.height < run.recording.requests.height / 2


def test_what_concerns_a_request_that_is_left_out_is_left_out_too(tmp_path):
    run = read_logged_run(log_run(SCENARIOS["chain"](), tmp_path / "run", "fifo"))
    first = run.recording.requests["arrival"].min()
    given_up = (run.instants[-1][0], (ev.Cancelled(0),))
    again = replay(replace(run, instants=(*run.instants, given_up)), since=first + 1e-6)
    assert 0 not in again.requests["request"]
    assert again.stale_events == 0


def test_cancellations_and_orders_are_replayed_and_what_names_instances_is_not(tmp_path):
    there = scenario({"f": declared(1.0, cold_start_s=0.5)}, arrivals=(2.0, 2.0), on=cluster(1, vcpus=1))
    run = read_logged_run(log_run(there, tmp_path / "run"))
    size = there.profiles["f"].configurations[0]
    orders = (
        (0.0, (ev.Ordered(Warm("f", size, "n0")),)),
        *run.instants,
        (2.25, (ev.Cancelled(1), ev.Ordered(Retire(7)), ev.InstanceLost(7))),
    )
    changed = replace(run, instants=tuple(sorted(orders, key=lambda pair: pair[0])))
    again = replay(changed)
    assert again.requests.sort("request").select("outcome", "end").rows() == [("completed", 3.0), ("cancelled", 2.25)]
    assert again.instances["on_demand"].to_list() == [False]
    assert left_out(changed) == {"orders to retire an instance": 1, "instances that were lost": 1}


def test_items_and_arms_are_those_of_the_run(tmp_path):
    stages = (
        Stage(name="look", function="f"),
        Stage(name="easy", function="f", after=("look",), when=0.5),
        Stage(name="hard", function="g", after=("look",), when=0.5),
    )
    there = scenario(
        {"f": declared(0.1), "g": declared(1.0)},
        workflows={"main": Workflow(name="main", stages=stages)},
        arrivals=tuple(float(i) for i in range(30)),
    )
    run = read_logged_run(log_run(there, tmp_path / "run", seed=1))
    taken = run.recording.invocations.select("request", "stage").sort("request", "stage")
    again = replay(run, seed=5).invocations.select("request", "stage").sort("request", "stage")
    assert again.equals(taken)
    assert {"easy", "hard"} <= set(taken["stage"])


def test_a_run_without_requests_cannot_be_replayed(tmp_path):
    run = read_logged_run(log_run(scenario(1.0), tmp_path / "run"))
    with pytest.raises(ConfigError, match="nothing to replay"):
        replay(replace(run, instants=()))


def test_a_share_that_never_ran_takes_the_profile_times_how_far_it_was_off(tmp_path):
    law = Table((Row(seconds=1.0, vcpus=1), Row(seconds=0.4, vcpus=4)))
    slow = scenario({"f": declared(law, bias=1.5)}, arrivals=(0.0, 10.0), on=cluster(1, vcpus=4))
    run = read_logged_run(log_run(slow, tmp_path / "run", "fifo"))
    observed = Observations(run)
    ((share, spans),) = observed.shares.items()
    assert share == ("f", 1.0, 0.0, "n0")
    assert spans.mean_s(1) == pytest.approx(1.5)
    assert observed.factors == {"f": pytest.approx(1.5)}
    again = replay(run, PolicyChoice(name="dag-admission"))  # takes the quicker share where it can
    assert set(again.invocations["vcpus"]) <= {1.0, 4.0}
    for vcpus, start, end in again.invocations.select("vcpus", "start", "end").rows():
        assert end - start == pytest.approx(1.5 if vcpus == 1 else 0.6)


def test_a_size_seen_rarely_lies_on_the_line_through_the_others():
    often = [Batch(float(i), size, 0.010 + 0.002 * size, 0.0) for i, size in enumerate([1, 2, 4] * 10)]
    spans = ShareSpans([*often, Batch(99.0, 3, 0.9, 0.0)], {})
    assert spans.mean_s(1) == pytest.approx(0.012)
    assert spans.mean_s(3) < 0.2  # not what the one odd run took
    assert ShareSpans(often, {}).mean_s(8) == pytest.approx(0.026)


def test_one_size_alone_is_scaled_by_the_profile():
    spans = ShareSpans([Batch(0.0, 2, 0.5, 0.0)], {1: 1.0, 2: 2.0, 4: 3.0})
    assert spans.mean_s(4) == pytest.approx(0.75)


@settings(max_examples=60, deadline=None)
@given(at=st.lists(st.floats(0, 100), min_size=1, max_size=30), instant=st.floats(-10, 110), count=st.integers(1, 40))
def test_the_nearest_in_time_are_found(at, instant, count):
    near = Spans(Batch(one, 1, 1.0, 0.0) for one in at).near(instant, count)
    assert len(near) == min(count, len(at))
    assert [batch.at for batch in near] == sorted(batch.at for batch in near)
    if count == len(at):
        assert sorted(at) == [batch.at for batch in near]


def test_a_slow_minute_stays_slow_under_another_policy(tmp_path):
    """Of two runs of one length, one was slow in its second half: a replay is slow then, and only then."""
    spans = Spans([Batch(float(i), 1, 1.0 if i < 50 else 3.0, 0.0) for i in range(100)])
    assert {batch.work_s for batch in spans.near(10.0, 16)} == {1.0}
    assert {batch.work_s for batch in spans.near(90.0, 16)} == {3.0}
