"""Esg: what is planned, what is started, and where."""

import pytest

from fairlead import simulate
from fairlead.engine.core.site import make_site
from fairlead.policy import make_policy
from fairlead.policy.esg.planner import Planner
from fairlead.workload import parse_scenario

CHAIN = """
duration_s: 10
cluster: {nodes: [{name: a, vcpus: 8, vgpus: 7}]}
functions:
  first: {idle_holds: memory, latency: {table: [{vgpus: 1, seconds: 0.4}, {vgpus: 2, seconds: 0.25}]}}
  second: {idle_holds: memory, latency: {table: [{vgpus: 1, seconds: 0.4}, {vgpus: 2, seconds: 0.25}]}}
workflows: {main: {stages: {first: [], second: [first]}, slo: {latency_s: 2}}}
arrivals: [{workflow: main, process: list, at: [1]}]
"""


def sizes(slo_s=2.0, policy=None, **overrides):
    """The vGPUs that each stage of the only request got, in order."""
    overrides = {"workflows.main.slo.latency_s": slo_s} | overrides
    recording = simulate(
        parse_scenario(CHAIN, "chain", overrides=overrides), make_policy("esg", {"headroom": 0.0} | dict(policy or {}))
    )
    assert not recording.refusals
    return recording.invocations.sort("start")["vgpus"].to_list()


# Before anything was observed, a run is planned with 1.2 times its declared time: 0.48 s and 0.3 s. It takes 0.4 s or
# 0.25 s, and what it did not need the second stage has.
@pytest.mark.parametrize(
    ("slo_s", "expected"),
    [(2.0, [1, 1]), (0.95, [1, 1]), (0.87, [1, 2]), (0.75, [2, 1]), (0.65, [2, 2]), (0.5, [2, 2])],
    ids=["loose-is-cheap", "saved-time-is-used", "second-pays", "first-pays", "both-pay", "too-late-is-quick"],
)
def test_the_budget_decides_how_much_speed_is_bought(slo_s, expected):
    assert sizes(slo_s) == expected


def test_a_late_first_stage_makes_the_second_buy_speed():
    # 0.4 s x 1.7 = 0.68 s leave 0.29 s of 0.97: too little for 0.48 s.
    assert sizes(0.97, **{"functions.first.bias": 1.7}) == [1, 2]


def test_headroom_is_time_that_is_not_planned():
    # Two runs of 0.48 s fit into 0.97 s, but not into nine tenths of it.
    assert sizes(0.97) == [1, 1]
    assert sizes(0.97, {"headroom": 0.1})[0] == 1
    assert sizes(0.86, {"headroom": 0.0}) == [1, 2]
    assert sizes(0.86, {"headroom": 0.1}) == [2, 1]


@pytest.mark.parametrize("method", ["frontier", "dual-blade"])
def test_both_methods_decide_alike(method):
    assert sizes(0.75, {"method": method}) == [2, 1]


def test_groups_of_one_split_the_budget_up_front():
    # Half of 0.95 s is 0.475 s for each: one vGPU takes 0.48 s. Together, one of the two may take longer.
    assert sizes(0.95, {"group_size": 1}) == [2, 1]
    assert sizes(0.97, {"group_size": 1}) == [1, 1]


BATCHES = """
duration_s: 10
cluster: {nodes: [{name: a, vcpus: 8, vgpus: 1}]}
functions:
  only:
    idle_holds: memory
    latency: {table: [{vgpus: 1, seconds: 0.1}, {batch: 4, vgpus: 1, seconds: 0.2}]}
workflows: {main: {stages: {only: []}, slo: {latency_s: 5}}}
arrivals: [{workflow: main, process: list, at: [1, 1.01, 1.02, 1.03, 1.04]}]
"""


def test_a_batch_is_as_large_as_what_waits_allows():
    recording = simulate(parse_scenario(BATCHES, "batches"), "esg")
    runs = recording.invocations.group_by("batch").first().sort("start")
    # The first finds nobody beside it; the other four wait for the only vGPU, and are cheaper together.
    assert runs["batch_size"].to_list() == [1, 4]
    assert runs["start"].to_list() == pytest.approx([1.0, 1.1])


def test_a_batch_that_would_be_too_slow_is_not_formed():
    recording = simulate(parse_scenario(BATCHES, "batches", overrides={"workflows.main.slo.latency_s": 0.3}), "esg")
    # At 1.1 s the second has 0.21 s left, and a batch of four is planned with 0.24 s.
    assert recording.invocations.sort("start")["batch_size"].to_list()[:2] == [1, 1]


NODES = """
duration_s: 30
cluster: {nodes: [{name: a, count: 4, vcpus: 8, vgpus: 7}]}
functions:
  first: {idle_holds: memory, output_mb: 10, latency: {constant_s: 0.1}}
  second: {idle_holds: memory, latency: {constant_s: 0.1}}
workflows: {main: {stages: {first: [], second: [first]}, slo: {latency_s: 2}}}
arrivals: [{workflow: main, process: deterministic, interval_s: 1}]
"""


def test_a_function_runs_at_home_and_the_next_where_its_input_lies():
    rows = simulate(parse_scenario(NODES, "nodes"), "esg").invocations
    assert rows.filter(rows["function"] == "first")["node"].n_unique() == 1
    assert rows["transfer_s"].sum() == 0


COLD = """
duration_s: 60
warmup_s: 30
cluster: {nodes: [{name: a, count: 2, vcpus: 8, vgpus: 7}]}
functions:
  only:
    idle_holds: memory
    cold_start_s: 5
    latency: {table: [{vgpus: 1, seconds: 0.5}, {vgpus: 2, seconds: 0.3}]}
workflows: {main: {stages: {only: []}, slo: {latency_s: 0.8}}}
arrivals: [{workflow: main, process: poisson, rate_rps: 4}]
"""


def test_nobody_waits_for_a_cold_start_once_containers_are_warm():
    recording = simulate(parse_scenario(COLD, "cold"), "esg")
    late = recording.invocations.filter(recording.invocations["ready"] > 30)
    assert late.filter(late["cold_s"] > 0).height == 0
    counted = recording.requests.filter(recording.requests["arrival"] > 30)
    assert (counted["end"] <= counted["deadline"]).mean() > 0.97


def test_prewarming_starts_containers_ahead_of_need():
    with_it = simulate(parse_scenario(COLD, "cold"), "esg").instances
    without = simulate(parse_scenario(COLD, "cold"), make_policy("esg", {"prewarms": False})).instances
    # 4 requests/s of 0.6 s keep 2.4 busy: 2.4 + 2 sqrt(2.4) = 5.5 are kept.
    assert with_it.height >= 5
    assert without.filter(~without["on_demand"]).height < with_it.filter(~with_it["on_demand"]).height


MAP = """
duration_s: 20
cluster: {nodes: [{name: n, count: 4, vcpus: 8, memory_gb: 64}]}
functions:
  split: {cold_start_s: 1, idle_holds: memory, latency: {constant_s: 0.05}}
  work: {cold_start_s: 3, idle_holds: memory, latency: {constant_s: 0.2}}
  merge: {cold_start_s: 1, idle_holds: memory, latency: {constant_s: 0.05}}
workflows:
  main:
    stages: {split: [], work: {after: [split], map: [8, 8]}, merge: {after: [work], join: true}}
    slo: {latency_s: 1}
arrivals: [{workflow: main, process: deterministic, interval_s: 0.1}]
"""


def test_a_map_has_containers_for_all_its_items():
    # Ten requests a second with eight items of 0.2 s keep 16 of 32 vCPUs busy; one item each would be 2.
    recording = simulate(parse_scenario(MAP, "map"), "esg")
    assert recording.instances.filter(recording.instances["function"] == "work").height >= 16
    later = recording.requests.filter(recording.requests["arrival"] > 10)
    assert (later["end"] <= later["deadline"]).all()


def test_a_mapped_stage_is_planned_in_batches_of_its_items():
    text = """
    duration_s: 10
    cluster: {nodes: [{name: a, vcpus: 8, vgpus: 7}], price: {vcpu_usd_per_hour: 0, vgpu_usd_per_hour: 1}}
    functions:
      split: {latency: {table: [{vgpus: 1, seconds: 0.4}, {vgpus: 4, seconds: 0.2}]}}
      work: {latency: {table: [{vgpus: 1, seconds: 0.4}, {vgpus: 4, seconds: 0.2}, {batch: 4, vgpus: 1, seconds: 0.6}]}}
    workflows: {main: {stages: {split: [], work: {after: [split], map: [4, 4]}}, slo: {latency_s: 1.1}}}
    arrivals: [{workflow: main, process: list, at: [0]}]
    """
    # At 1.2 times the declared times, 1.1 s hold 0.24 + 0.72 s (4 x 0.2 + 0.6 = 1.4 vGPU-seconds), not 0.48 + 0.72 s.
    # With batches of one, four runs of 0.48 s after one of 0.48 s would seem to be the cheapest (0.4 + 4 x 0.4 = 2).
    planner = Planner(make_site(parse_scenario(text, "batches")), 1, 3, "frontier", 30.0, 0.0)
    found = [(each.stage.name, each.configuration.batch, each.configuration.vgpus) for each in planner.expected("main")]
    assert found == [("split", 1, 4), ("work", 4, 1)]


def test_the_minimum_configuration_comes_after_failed_rounds():
    text = """
    duration_s: 10
    cluster: {nodes: [{name: a, vcpus: 8, vgpus: 3}]}
    functions:
      long: {idle_holds: memory, latency: {table: [{vgpus: 2, seconds: 4}]}}
      only: {idle_holds: memory, latency: {table: [{vgpus: 1, seconds: 1}, {vgpus: 3, seconds: 0.2}]}}
      tick: {idle_holds: memory, latency: {table: [{vcpus: 1, seconds: 0.01}]}}
    workflows:
      block: {stages: {long: []}}
      main: {stages: {only: []}, slo: {latency_s: 0.5}}
      tick: {stages: {tick: []}}
    arrivals:
      - {workflow: block, process: list, at: [0]}
      - {workflow: main, process: list, at: [1]}
      - {workflow: tick, process: list, at: [1.1, 1.2]}
    """
    recording = simulate(parse_scenario(text, "rounds"), make_policy("esg", {"paths": 1, "rounds": 3}))
    row = recording.invocations.filter(recording.invocations["function"] == "only")
    # Rounds at 1 s, 1.1 s and 1.11 s (the end of the first tick) find no room for three vGPUs.
    assert row["vgpus"].to_list() == [1]
    assert row["start"].to_list() == pytest.approx([1.11])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("paths", 0),
        ("group_size", 0),
        ("rounds", 0),
        ("refresh_s", 0.0),
        ("headroom", 1.0),
        ("headroom", -0.1),
        ("refresh_s", float("nan")),
    ],
)
def test_parameters_out_of_range_are_refused(name, value):
    with pytest.raises(Exception, match=name):
        make_policy("esg", {name: value})
