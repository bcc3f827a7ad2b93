"""Clockwork past saturation: goodput stays, and nothing that was started is late."""

import pytest
from clockwork_runs import model, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.model import SLO, Workflow
from fairlead.report import summarise
from fairlead.testing import cluster, scenario
from fairlead.workload import Poisson, load_scenario

RESNET50 = (3, 4, 6, 9, 16)


def one_gpu(rate_rps, duration_s=1.5):
    flows = {"a": Workflow.chain("a", "a", slo=SLO(latency_s=0.1))}
    return scenario(
        {"a": model(*RESNET50, load_ms=8)},
        workflows=flows,
        arrivals=[Poisson("a", rate_rps)],
        on=cluster(1, vcpus=0, vgpus=1, device_memory_gb=16),
        duration_s=duration_s,
        warmup_s=0.3,
    )


def is_late(recording):
    done = recording.requests.filter(recording.requests["outcome"] == "completed")
    return (done["end"] > done["deadline"]).any()


def test_goodput_stays_within_a_tenth_of_its_best_under_overload():
    # One GPU can do 16 in 16 ms: 1000/s.
    goodput = {}
    for overload in (1.0, 1.3, 3.0, 10.0):
        recording = run(one_gpu(1000 * overload))
        assert not is_late(recording)
        goodput[overload] = summarise(recording).goodput_rps
    assert min(goodput.values()) >= 0.9 * max(goodput.values())
    assert max(goodput.values()) > 850


def test_fifo_collapses_where_clockwork_does_not():
    where = one_gpu(1300)
    assert summarise(simulate(where, "fifo")).goodput_rps < 0.1 * summarise(run(where)).goodput_rps


@pytest.mark.parametrize("rate_scale", [0.5, 3.0])
def test_the_zoo_is_served_without_a_late_answer(rate_scale):
    where = load_scenario("clockwork-zoo", overrides={"rate_scale": rate_scale, "duration_s": 0.6, "warmup_s": 0.3})
    recording = run(where)
    assert not is_late(recording)
    assert summarise(recording).slo_attainment == 1.0 if rate_scale < 1 else recording.requests.height > 1000


@st.composite
def zoos(draw):
    """A few models with exact times and too little memory, on a few GPUs, from idle to far too busy."""
    names = "abcde"[: draw(st.integers(1, 5))]
    times = st.lists(st.integers(1, 30), min_size=1, max_size=4)
    models = {
        name: model(*sorted(draw(times)), load_ms=draw(st.integers(0, 25)), memory_gb=draw(st.integers(1, 3)))
        for name in names
    }
    flows = {
        name: Workflow.chain(name, *draw(st.permutations(names))[: draw(st.integers(1, 2))], slo=slo)
        for name in names
        for slo in [SLO(latency_s=draw(st.sampled_from([0.03, 0.1, 0.3])))]
    }
    arrivals = [Poisson(name, draw(st.sampled_from([5.0, 50.0, 500.0]))) for name in names]
    on = cluster(
        draw(st.integers(1, 3)),
        vcpus=0,
        vgpus=draw(st.sampled_from([1, 2])),
        device_memory_gb=draw(st.integers(3, 8)),
    )
    return scenario(models, workflows=flows, arrivals=arrivals, on=on, duration_s=0.4)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(zoos())
def test_with_exact_times_no_answer_is_late(where):
    recording = run(where)
    assert not is_late(recording)
    assert "unfinished" not in set(recording.requests["outcome"])
    # Every run was of use, except those of workflows that were dropped in a later stage.
    if all(len(workflow.stages) == 1 for workflow in where.workflows.values()):
        assert set(recording.invocations["outcome"]) <= {"done"}
        done = recording.requests.filter(recording.requests["outcome"] == "completed")
        assert done["promised"].to_list() == pytest.approx(done["end"].to_list())
