"""Traces cut to size: windows, samples, scaled counts, files, and scenarios of them."""

from math import exp, inf

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.profile import Constant, LogNormal
from fairlead.workload import MinuteCounts
from fairlead.workload.traces import Trace, chunks, generate, read, sample, scale, summarise, write
from fairlead.workload.traces.trace import by_minute


def trace_of(table, **columns):
    """A trace from a table of counts, a row per function; columns replace those of its functions."""
    counts = np.array(table, dtype=np.int32)
    rows, minutes = np.nonzero(counts)
    starts, called, left = by_minute(
        rows.astype(np.int32), minutes.astype(np.int32), counts[rows, minutes], counts.shape[1]
    )
    functions = len(counts)
    frame = {name: [f"{name}{i}" for i in range(functions)] for name in ("owner", "app", "name", "trigger")}
    frame |= {"mean_s": [0.5] * functions, "median_s": [0.5] * functions, "sigma": [0.0] * functions}
    frame |= {"memory_mb": [256.0] * functions} | columns
    return Trace(source="table", functions=pl.DataFrame(frame), starts=starts, called=called, counts=left)


def table_of(trace):
    return trace.rows(0, len(trace)).tolist()


SMALL = [[1, 2, 3], [0, 0, 9], [4, 0, 0]]


def test_a_window_keeps_the_numbers_of_the_minutes():
    window = trace_of(SMALL).window(1, 2)
    assert table_of(window) == [[2, 3], [0, 9], [0, 0]]
    assert (window.first_minute, window.invocations) == (2, 14)
    assert window.window(1).first_minute == 3


def test_functions_that_are_kept_keep_their_order_and_counts():
    kept = trace_of(SMALL).keep(np.array([2, 0]))
    assert kept.functions["name"].to_list() == ["name0", "name2"]
    assert table_of(kept) == [[1, 2, 3], [4, 0, 0]]


TABLES = st.integers(1, 4).flatmap(
    lambda minutes: st.lists(st.lists(st.integers(0, 30), min_size=minutes, max_size=minutes), min_size=1, max_size=8)
)


@settings(max_examples=60, deadline=None)
@given(table=TABLES, factor=st.floats(0.01, 20))
def test_scaled_counts_do_not_drift(table, factor):
    trace = trace_of(table)
    scaled = scale(trace, factor)
    assert abs(scaled.invocations - trace.invocations * factor) <= 0.5 + 1e-6
    assert (np.abs(scaled.calls - trace.calls * factor) <= 1 + 1e-6).all()
    assert not (scaled.rows(0, len(trace))[trace.rows(0, len(trace)) == 0]).any()


def test_rare_functions_are_not_lost_by_scaling():
    scaled = scale(trace_of([[1]] * 100), 0.1)
    assert scaled.calls.sum() == 10


@pytest.mark.parametrize(("factor", "message"), [(0, "positive and finite"), (inf, "positive"), (1e30, "be counted")])
def test_a_factor_must_leave_counts(factor, message):
    with pytest.raises(ValueError, match=message):
        scale(trace_of(SMALL), factor)


def test_a_sample_has_one_function_of_each_stratum():
    trace = trace_of([[number] for number in (7, 1, 3, 0, 6, 2, 5, 4)])
    for seed in range(20):
        counts = sorted(sample(trace, 4, seed).calls.tolist())
        assert [count // 2 for count in counts] == [0, 1, 2, 3]
    assert len({tuple(sample(trace, 4, seed).calls.tolist()) for seed in range(20)}) > 1


def test_at_the_top_the_function_nearest_to_the_mean_stands_for_its_stratum():
    # Ten strata of three; the top one holds 10, 500 and 1000 calls, with a mean of 503.
    trace = trace_of([[1]] * 27 + [[10], [1000], [500]])
    assert sample(trace, 10).calls.max() == 500


def test_a_sample_keeps_the_mix():
    trace = generate(4000, minutes=240, seed=2)
    whole, part = summarise(trace), summarise(sample(trace, 200, seed=1))
    assert part.below_one_a_minute == pytest.approx(whole.below_one_a_minute, abs=0.01)
    assert part.invocations / 200 == pytest.approx(whole.invocations / 4000, rel=0.1)
    assert part.functions_by_trigger["http"] / 200 == pytest.approx(0.55, abs=0.1)


@pytest.mark.parametrize("functions", [0, 4])
def test_a_sample_is_not_larger_than_the_trace(functions):
    with pytest.raises(ValueError, match="functions must be from 1 to 3"):
        sample(trace_of(SMALL), functions)


def test_what_is_written_reads_back_as_it_was(tmp_path):
    made = generate(50, minutes=30, seed=3)
    files = write(made, tmp_path)
    assert [file.name for file in files] == ["invocations.csv", "durations.csv", "memory.csv"]
    again = read(tmp_path)
    assert (again.starts == made.starts).all()
    assert (again.called == made.called).all()
    assert (again.counts == made.counts).all()
    for name in ("owner", "app", "name", "trigger", "Count"):
        assert again.functions[name].to_list() == made.functions[name].to_list()
    for name in ("mean_s", "median_s", "sigma", "memory_mb"):
        assert again.column(name) == pytest.approx(made.column(name), rel=1e-12)


def test_a_scenario_has_a_workflow_per_function():
    trace = trace_of(SMALL, median_s=[0.5, 1.0, 2.0], sigma=[0.0, 0.5, 0.0])
    scenario = trace.scenario(nodes=2, vcpus=4, memory_gb=8, keep_alive_s=60, slo_s=3)
    assert list(scenario.workflows) == ["name0", "name1", "name2"]
    assert [profile.law for profile in scenario.profiles.values()] == [
        Constant(0.5),
        LogNormal(1.0, 0.5),
        Constant(2.0),
    ]
    one = scenario.functions["name1"]
    assert (one.memory_gb, one.keep_alive_s, one.idle_holds) == (0.25, 60, "memory")
    assert scenario.profiles["name1"].cold_start_s == 1.0
    assert scenario.workflows["name1"].slo.latency_s == 3
    assert [(node.vcpus, node.memory_gb) for node in scenario.cluster.nodes] == [(4, 8), (4, 8)]
    assert scenario.arrivals[0] == MinuteCounts("name0", (1, 2, 3))
    assert scenario.duration_s == 180


def test_a_streamed_scenario_has_the_order_of_the_stream_and_no_arrivals():
    trace = trace_of(SMALL)
    scenario = trace.scenario(nodes=1, vcpus=4, memory_gb=8, is_streamed=True)
    assert scenario.arrivals == ()
    (piece,) = chunks(trace)
    names = list(scenario.workflows)
    assert sorted(names[i] for i in piece.workflows) == ["name0"] * 6 + ["name1"] * 9 + ["name2"] * 4


def test_a_small_scenario_runs():
    trace = trace_of(SMALL)
    recording = simulate(trace.scenario(nodes=1, vcpus=4, memory_gb=8, cold_start_s=0.25), "fifo", seed=1)
    assert recording.requests["outcome"].to_list() == ["completed"] * trace.invocations
    run_s = recording.invocations["end"] - recording.invocations["start"] - recording.invocations["cold_s"]
    assert run_s.to_list() == pytest.approx([0.5] * trace.invocations)


@pytest.mark.parametrize(
    ("asked", "message"),
    [({"nodes": 0}, "nodes must be at least 1"), ({"memory_gb": 0.1}, "the largest function, which takes 0.25 GB")],
)
def test_a_cluster_that_cannot_run_the_trace_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        trace_of(SMALL).scenario(**({"nodes": 1, "vcpus": 4, "memory_gb": 8} | asked))


def test_functions_of_one_name_are_told_apart():
    assert trace_of(SMALL, name=["f", "f", "g"]).names == ["owner0/app0/f", "owner1/app1/f", "owner2/app2/g"]


def test_the_summary_counts_by_hand():
    # 19 calls in three minutes; one function in three makes 9 of them.
    found = summarise(trace_of(SMALL, trigger=["http", "timer", "http"], mean_s=[1.0, 2.0, 3.0]))
    assert found.mean_rps == pytest.approx(19 / 180)
    assert found.peak_minute_rps == 12 / 60
    assert found.busy_vcpus == pytest.approx((6 * 1 + 9 * 2 + 4 * 3) / 180)
    assert found.top_1 == pytest.approx(9 / 19)
    assert found.below_one_a_minute == 0
    assert found.functions_by_trigger == {"http": 2, "timer": 1}
    assert found.invocations_by_trigger == {"http": 10, "timer": 9}
    assert found.calls_per_minute["p50"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": np.array([0])}, "at least one minute"),
        ({"starts": np.array([0, 9])}, "end with the number of counts"),
        ({"counts": np.array([1], dtype=np.int32)}, "must be as many; got 5 and 1"),
        ({"functions": pl.DataFrame({"name": ["f"]})}, "must have the columns owner, app, trigger"),
    ],
)
def test_a_trace_that_does_not_fit_together_is_refused(change, message):
    good = trace_of(SMALL)
    parts = {"functions": good.functions, "starts": good.starts, "called": good.called, "counts": good.counts}
    with pytest.raises(ValueError, match=message):
        Trace(source="", **(parts | change))


def test_the_mean_of_a_streamed_law_is_that_of_its_scenario():
    trace = trace_of([[200_000]], median_s=[2.0], sigma=[0.5])
    (piece,) = chunks(trace, 1)
    scenario = trace.scenario(nodes=1, vcpus=4, memory_gb=8, is_streamed=True)
    (configuration,) = scenario.profiles["name0"].configurations
    mean_s = scenario.profiles["name0"].law.mean_s(configuration, "node")
    assert mean_s == pytest.approx(2 * exp(0.125))
    assert piece.draws.mean() * mean_s == pytest.approx(mean_s, rel=0.005)
