"""DagAdmission: the published defect."""

from dataclasses import replace
from math import inf

import pytest
from admission_runs import chain, column, run

from fairlead.report import summarise
from fairlead.testing import check_capacity
from fairlead.workload import Listed, load_scenario, scenario_points


@pytest.mark.parametrize("slo_ms", [20, 40, 60, 80])
def test_with_the_shared_map_nobody_is_refused_and_the_makespan_is_in_one_of_two_bands(slo_ms):
    worlds = {point["workflows.linear.slo.latency_s"]: world for point, world in scenario_points("table-4.1")}
    recording = run(worlds[slo_ms / 1000], shared_map=True)
    assert set(column(recording, "outcome")) == {"completed"}
    makespan_s = summarise(recording).makespan_s
    assert 5.80 <= makespan_s <= 5.87 or 6.70 <= makespan_s <= 6.80


def test_with_the_shared_map_a_stage_runs_where_the_last_arrival_says():
    # Two requests far apart draw for themselves; all others share the last draw.
    table = load_scenario("table-4.1")
    recording = run(replace(table, arrivals=(Listed("linear", (0.0, 0.001)),)), shared_map=True)
    assert recording.invocations.filter(recording.invocations["stage"] == "third")["node"].unique().to_list() == ["cpu"]
    assert recording.requests["promised"].to_list() == [None, None]
    check_capacity(recording, table)


def test_the_shared_map_serves_even_what_cannot_be_in_time():
    table = load_scenario("table-4.1")
    flow = chain("first", "second", "third", latency_s=0.001, cost_usd=inf, name="linear")
    hopeless = replace(table, workflows={"linear": flow}, arrivals=(Listed("linear", (0.0,)),))
    assert column(run(hopeless, shared_map=True), "outcome") == ["completed"]
