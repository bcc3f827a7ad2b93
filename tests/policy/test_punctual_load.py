"""Punctual under load: goodput holds past saturation, refusals come at arrival, and what was declared may be wrong.

A batch of n takes 8 + 2n ms, so an instance can do 333 a second in full batches of eight.
"""

import polars as pl
import pytest

from fairlead.engine import simulate
from fairlead.model import SLO, Stage, Workflow
from fairlead.policy import make_policy
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Poisson

FULL_RPS = 1000 / 3
SINGLE = Workflow.chain("main", "f0", slo=SLO(latency_s=0.05))


def stage(factor=1.0, **settings):
    rows = tuple(Row(batch=n, seconds=factor * (0.008 + 0.002 * n)) for n in range(1, 9))
    return declared(Table(rows), **{"cold_start_s": 0.2, "noise": 0.1, "idle_holds": "memory", **settings})


def world(load, *, vcpus=1, per_request=1, workflow=SINGLE, duration_s=7.0, functions=None):
    """Loaded to this share of what its vCPUs can do, at so many stages per request."""
    rate_rps = load * vcpus * FULL_RPS / per_request
    return scenario(
        functions or {name: stage() for name in workflow.functions},
        workflows={"main": workflow},
        arrivals=(Poisson("main", rate_rps),),
        on=cluster(1, vcpus=vcpus),
        duration_s=duration_s,
        warmup_s=2,
    )


def run(where, seed=0, **parameters):
    """Requests after the warm-up."""
    recording = simulate(where, make_policy("punctual", parameters), seed=seed)
    assert recording.refusals == ()
    return recording.requests.filter(pl.col("arrival") >= 2)


def in_time(requests):
    return ((requests["outcome"] == "completed") & (requests["end"] <= requests["deadline"])).sum()


def goodput_rps(requests, duration_s=7.0):
    return in_time(requests) / (duration_s - 2)


def attainment(requests):
    return in_time(requests) / requests.height


@pytest.mark.parametrize(("noise", "least"), [(0.0, 0.995), (0.1, 0.985), (0.3, 0.94)])
def test_nearly_all_are_in_time_at_seventy_percent_load(noise, least):
    assert attainment(run(world(0.7, functions={"f0": stage(noise=noise)}))) >= least


@pytest.mark.parametrize(("noise", "share"), [(0.0, 0.95), (0.1, 0.92), (0.3, 0.82)])
@pytest.mark.parametrize("load", [1.3, 3])
def test_goodput_holds_past_saturation(load, noise, share):
    assert goodput_rps(run(world(load, functions={"f0": stage(noise=noise)}))) >= share * FULL_RPS


def test_goodput_does_not_fall_at_ten_times_the_capacity():
    assert goodput_rps(run(world(10, duration_s=5)), 5) >= 0.92 * FULL_RPS


@pytest.mark.parametrize("load", [1.3, 3])
def test_most_refusals_come_at_arrival_and_all_before_the_deadline(load):
    requests = run(world(load))
    refused = requests.filter(pl.col("outcome").is_in(["rejected", "dropped"]))
    assert (refused["end"] - refused["arrival"]).median() == 0
    assert (refused["end"] < refused["deadline"]).all()
    assert refused["retry_after_s"].min() > 0
    assert refused["retry_after_s"].max() <= 60


def test_a_promise_is_kept_nearly_always():
    requests = run(world(1.3)).filter(pl.col("promised").is_not_null())
    assert requests.height > 1000
    assert attainment(requests) >= 0.97
    assert (requests["promised"] <= requests["deadline"]).all()


@pytest.mark.parametrize("load", [1.3, 3])
def test_two_instances_do_twice_as_much(load):
    assert goodput_rps(run(world(load, vcpus=2))) >= 2 * 0.93 * FULL_RPS


@pytest.mark.parametrize("wrong", [5.0, 0.2], ids=["declared-too-long", "declared-too-short"])
@pytest.mark.parametrize("load", [0.7, 3])
def test_what_was_declared_may_be_wrong_by_a_factor_of_five(wrong, load):
    requests = run(world(load, functions={"f0": stage(wrong, bias=1 / wrong)}))
    if load < 1:
        assert attainment(requests) >= 0.98
    else:
        assert goodput_rps(requests) >= 0.92 * FULL_RPS


CHAIN = Workflow.chain("main", "f0", "f1", "f2", slo=SLO(latency_s=0.2))
FORK = Workflow(
    name="main",
    stages=(
        Stage(name="a", function="f0"),
        Stage(name="b", function="f1", after=("a",)),
        Stage(name="c", function="f2", after=("a",)),
        Stage(name="d", function="f3", after=("b", "c")),
    ),
    slo=SLO(latency_s=0.2),
)
MAP = Workflow(
    name="main",
    stages=(
        Stage(name="a", function="f0"),
        Stage(name="b", function="f1", after=("a",), map=(1, 5)),
        Stage(name="c", function="f2", after=("b",), join=True),
    ),
    slo=SLO(latency_s=0.2),
)
BRANCH = Workflow(
    name="main",
    stages=(
        Stage(name="a", function="f0"),
        Stage(name="b", function="f1", after=("a",), when=0.5),
        Stage(name="c", function="f2", after=("a",), when=0.5),
        Stage(name="d", function="f3", after=("b", "c")),
    ),
    slo=SLO(latency_s=0.2),
)


# The share of what full batches could do. The arms of a branch get half the requests each, and so smaller batches.
@pytest.mark.parametrize(
    ("workflow", "vcpus", "per_request", "share"),
    [(CHAIN, 1, 3, 0.88), (CHAIN, 3, 3, 0.88), (FORK, 2, 4, 0.88), (MAP, 2, 5, 0.7), (BRANCH, 2, 3, 0.68)],
    ids=["chain-on-one", "chain-on-three", "fork-join", "map", "branch"],
)
@pytest.mark.parametrize("load", [0.7, 3])
def test_workflows_keep_their_goodput(workflow, vcpus, per_request, share, load):
    requests = run(world(load, vcpus=vcpus, per_request=per_request, workflow=workflow))
    if load < 1:
        assert attainment(requests) >= 0.97
    else:
        assert goodput_rps(requests) >= share * vcpus * FULL_RPS / per_request


def shared(rates, slos, duration_s=7.0):
    flows = {name: Workflow.chain(name, "f0", slo=SLO(latency_s=slo_s)) for name, slo_s in slos.items()}
    arrivals = tuple(Poisson(name, rate_rps) for name, rate_rps in rates.items())
    on = cluster(1, vcpus=1)
    return scenario({"f0": stage()}, workflows=flows, arrivals=arrivals, on=on, duration_s=duration_s, warmup_s=2)


def test_a_flood_of_one_workflow_does_not_hurt_another():
    requests = run(shared({"flood": 10 * FULL_RPS, "modest": 0.2 * FULL_RPS}, {"flood": 0.05, "modest": 0.05}))
    modest = requests.filter(pl.col("workflow") == "modest")
    assert attainment(modest) >= 0.95
    assert goodput_rps(requests) >= 0.9 * FULL_RPS


def test_two_floods_share_alike():
    requests = run(shared({"one": 2 * FULL_RPS, "other": 6 * FULL_RPS}, {"one": 0.05, "other": 0.05}))
    one, other = (in_time(requests.filter(pl.col("workflow") == name)) for name in ("one", "other"))
    assert one + other >= 0.9 * 5 * FULL_RPS
    assert 0.8 <= one / other <= 1.25


def test_requests_without_a_deadline_fill_what_is_left_and_never_starve():
    where = shared({"batch": 100.0, "online": 0.5 * FULL_RPS}, {"batch": float("inf"), "online": 0.05})
    requests = run(where)
    batch, online = (requests.filter(pl.col("workflow") == name) for name in ("batch", "online"))
    assert (batch["outcome"] == "completed").all()
    assert attainment(online) >= 0.95


def test_requests_without_a_deadline_get_their_share_of_an_overloaded_server():
    where = shared({"batch": 60.0, "online": 5 * FULL_RPS}, {"batch": float("inf"), "online": 0.05}, duration_s=8)
    recording = simulate(where, make_policy("punctual", {"best_effort_share": 0.2}))
    rows = recording.invocations.filter(pl.col("workflow") == "batch")
    served_rps = rows.filter(pl.col("start") < 8).height / 8
    assert served_rps >= 0.1 * FULL_RPS
    assert (recording.requests.filter(pl.col("workflow") == "batch")["outcome"] == "completed").all()
