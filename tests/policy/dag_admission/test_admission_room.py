"""DagAdmission: room that is kept for expected requests, and the published defect."""

from dataclasses import replace
from math import inf

import pytest
from admission_runs import chain, column, run

from fairlead.report import summarise
from fairlead.testing import check_capacity, cluster, declared, scenario
from fairlead.workload import Deterministic, Listed, Poisson, load_scenario, scenario_points


def tight_beside_loose(duration_s=60.0):
    """A tenth of a second, once per second, with little to spare, beside more loose work than one vCPU can do."""
    functions = {"short": declared(0.1, keep_alive_s=0.0), "long": declared(0.3, keep_alive_s=0.0)}
    flows = {
        "tight": chain("short", latency_s=0.15, name="tight"),
        "loose": chain("long", latency_s=4, name="loose"),
    }
    arrivals = (Deterministic("tight", 1.0), Poisson("loose", 6.0))
    return scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=1), duration_s=duration_s)


def served(recording, workflow):
    rows = recording.requests.filter(recording.requests["workflow"] == workflow)
    met = rows.filter((rows["outcome"] == "completed") & (rows["end"] <= rows["deadline"]))
    return met.height / rows.height


def test_regular_tight_requests_are_served_beside_a_flood_only_if_room_is_kept():
    world = tight_beside_loose()
    without, with_room = run(world), run(world, keep_room=True)
    assert served(without, "tight") < 0.1
    assert served(with_room, "tight") > 0.9
    # The tight ones take a tenth of the vCPU, in pieces: the loose ones lose no more than a third.
    assert served(with_room, "loose") > served(without, "loose") * 2 / 3


def test_room_that_is_not_used_is_given_up_after_some_time():
    # The tight ones come at 0, 1, 2 and then no more. A loose request of 0.95 s does not fit between two of them. From
    # 5 on, three gaps later, nobody waits for them any more.
    functions = {"short": declared(0.1, keep_alive_s=0.0), "long": declared(0.95, keep_alive_s=0.0)}
    flows = {"tight": chain("short", latency_s=0.1, name="tight"), "loose": chain("long", latency_s=9.0, name="loose")}

    def promised(loose_at):
        arrivals = (Listed("tight", (0.0, 1.0, 2.0)), Listed("loose", (loose_at,)))
        world = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=1))
        return column(run(world, keep_room=True, slack=0), "promised")[-1]

    assert promised(2.2) is None
    assert promised(5.5) == pytest.approx(6.45)


def test_nothing_is_kept_for_a_workflow_that_is_alone():
    world = scenario(1.0, arrivals=(0, 1, 2, 2), on=cluster(vcpus=1), slo_s=2)
    assert column(run(world, keep_room=True, slack=0), "promised") == column(run(world, slack=0), "promised")


def test_a_looser_request_never_keeps_room_from_a_tighter_one():
    # The loose workflow comes every second as well, but only the tight one has its room kept.
    functions = {"short": declared(0.5, keep_alive_s=0.0)}
    flows = {"tight": chain("short", latency_s=0.6, name="tight"), "loose": chain("short", latency_s=9.0, name="loose")}
    arrivals = (Listed("loose", (0.0, 1.0, 2.0)), Listed("tight", (3.0,)))
    world = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=1))
    assert column(run(world, keep_room=True, slack=0), "promised")[-1] == 3.5


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
