"""What ESG and its rivals share: home nodes, options, recorded plans, batches that can be filled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead import simulate
from fairlead.engine.core.site import make_site
from fairlead.model import Configuration
from fairlead.policy import make_policy
from fairlead.policy.kit.locality import probes
from fairlead.policy.kit.options import all_options, graph_of
from fairlead.policy.kit.preplanned import Shrinking, planned, step
from fairlead.workload import load_scenario, parse_scenario


def test_probes_are_those_of_the_openwhisk_documentation():
    assert list(probes(13, 10)) == [3, 6, 9, 2, 5, 8, 1, 4, 7, 0]


@given(hash=st.integers(0, 2**32 - 1), count=st.integers(1, 200))
def test_probes_visit_every_node_once_from_home(hash, count):
    found = list(probes(hash, count))
    assert found[0] == hash % count
    assert sorted(found) == list(range(count))


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True),
            st.integers(1, 64),
            st.sampled_from([0.0, 0.5, 1.0, 8.0]),
            st.sampled_from([0.0, 0.25, 1.0, 7.0]),
        ).filter(lambda each: each[2] or each[3]),
        min_size=1,
        max_size=7,
        unique_by=lambda each: each[0],
    )
)
def test_a_recorded_plan_can_be_read_again(stages):
    plan = {name: Configuration(batch=b, vcpus=c, vgpus=g) for name, b, c, g in stages}
    assert planned(" -> ".join(step(*each) for each in plan.items())) == plan


def test_what_cannot_be_filled_shrinks_to_the_largest_batch_that_can():
    scenario = load_scenario("esg-recalled")
    known = all_options(make_site(scenario))
    shrinking = Shrinking(known)
    wanted = Configuration(batch=8, vcpus=2, vgpus=3)
    batches = [shrinking.fill("deblur", wanted, count).batch for count in (1, 2, 3, 5, 8, 30)]
    assert batches == [1, 2, 2, 4, 8, 8]
    assert {(c.vcpus, c.vgpus) for c in (shrinking.fill("deblur", wanted, n) for n in range(1, 9))} == {(2, 3)}


def test_options_hold_the_time_that_most_runs_keep_and_the_cost_of_one_in_a_full_batch():
    text = """
    cluster: {nodes: [{name: a, vcpus: 2, vgpus: 4}], price: {vcpu_usd_per_hour: 0, vgpu_usd_per_hour: 3600}}
    functions: {f: {latency: {table: [{vgpus: 1, seconds: 1}, {batch: 4, vgpus: 2, seconds: 2}]}}}
    workflows: {main: {stages: {f: []}}}
    arrivals: [{workflow: main, process: list, at: [0]}]
    """
    site = make_site(parse_scenario(text, "small"))
    options = all_options(site)["f"]
    assert options.pairs() == [pytest.approx((1.2, 1.0)), pytest.approx((2.4, 1.0))]
    assert options.configurations[options.least].batch == 1
    assert graph_of(site.workflows["main"]) == [[]]


def test_home_moves_on_when_its_node_is_lost_and_back_when_it_returns():
    text = """
    duration_s: 30
    cluster: {nodes: [{name: a, count: 5, vcpus: 8}]}
    functions: {f: {idle_holds: memory, latency: {constant_s: 0.1}}}
    workflows: {main: {stages: {f: []}, slo: {latency_s: 2}}}
    arrivals: [{workflow: main, process: deterministic, interval_s: 1, offset_s: 0.5}]
    """
    calm = simulate(parse_scenario(text, "calm"), make_policy("esg"))
    (home,) = calm.invocations["node"].unique().to_list()
    overrides = {"faults": [{"node": home, "at_s": 10, "back_s": 10}]}
    rows = simulate(parse_scenario(text, "lost", overrides=overrides), make_policy("esg")).invocations
    during = rows.filter((rows["start"] > 11.2) & (rows["start"] < 20))["node"].unique().to_list()
    after = rows.filter(rows["start"] > 22)["node"].unique().to_list()
    assert home not in during
    assert len(during) == 1
    assert after == [home]


@pytest.mark.parametrize("policy", ["esg", "orion", "aquatope"])
def test_no_container_is_started_ahead_of_need_where_a_warm_one_would_have_to_go(policy):
    """Each function needs a whole GPU and keeps it; two GPUs hold one container of each, and no second."""
    text = """
    duration_s: 30
    cluster: {nodes: [{name: a, count: 2, vcpus: 8, vgpus: 1}]}
    functions:
      first: &model {cold_start_s: 2, idle_holds: slice, latency: {table: [{vgpus: 1, seconds: 0.2}]}}
      second: *model
    workflows: {main: {stages: {first: [], second: [first]}, slo: {latency_s: 1}}}
    arrivals: [{workflow: main, process: deterministic, interval_s: 0.5}]
    """
    recording = simulate(parse_scenario(text, "slices"), make_policy(policy))
    assert not recording.refusals
    late = recording.instances.filter(recording.instances["started"] > 10)
    assert late.height == 0  # nothing is driven out, so nothing has to come back
    later = recording.requests.filter(recording.requests["arrival"] > 10)
    assert (later["end"] <= later["deadline"]).all()
