"""DagAdmission: how long a run is planned to take, before and after enough was seen of it."""

import msgspec
import pytest
from admission_runs import chain, column, run

from fairlead.model import Configuration, Price
from fairlead.policy.dag_admission.estimates import Durations
from fairlead.policy.dag_admission.tasks import Way
from fairlead.testing import cluster, declared, scenario, site_of, view_of
from fairlead.workload import Deterministic

ONE = cluster(vcpus=1)
WORLD = scenario(1.0, on=ONE)
VIEW = view_of(scenario=WORLD)


@pytest.fixture
def way():
    return Way(WORLD.functions["f"], Configuration(vcpus=1), "plain", site_of(WORLD))


def after(way, seconds, *, source="learned", slack=0.25, percentile=0.99):
    durations = Durations(source, slack, percentile)
    for each in seconds:
        durations.observe(way, each)
    return durations


def test_slack_is_added_until_enough_was_seen(way):
    assert after(way, [0.8] * 31).run_s(VIEW, way) == 1.25
    assert after(way, [0.8] * 32).run_s(VIEW, way) == 0.8


def test_a_way_is_known_once_enough_was_seen(way):
    assert after(way, [0.8] * 31).is_unknown(way)
    assert not after(way, [0.8] * 32).is_unknown(way)


def test_declared_durations_are_never_learned(way):
    durations = after(way, [0.8] * 99, source="declared")
    assert durations.run_s(VIEW, way) == 1.25
    assert not durations.is_unknown(way)


@pytest.mark.parametrize(("percentile", "seconds"), [(0.5, 50), (0.99, 99), (0.991, 100), (1, 100)])
def test_the_percentile_of_the_last_hundred_is_planned_with(way, percentile, seconds):
    durations = after(way, [1000] * 4 + list(range(1, 101)), percentile=percentile)  # looked at every eight runs
    assert durations.run_s(VIEW, way) == seconds


def test_a_cost_is_planned_with_mean_and_spread(way):
    durations = after(way, [0.5, 1.5] * 50)
    assert durations.spread_s(VIEW, way) == (1, 0.5)
    assert durations.sigmas == pytest.approx(2.326, abs=1e-3)  # 99 % of a normal distribution


def test_until_then_a_cost_is_planned_with_the_mean_to_learn_the_spread(way):
    assert after(way, []).spread_s(VIEW, way) == (1, 0)


def test_where_nothing_is_learned_slack_stands_for_the_spread(way):
    durations = after(way, [], source="declared")
    mean_s, deviation_s = durations.spread_s(VIEW, way)
    assert mean_s + durations.sigmas * deviation_s == pytest.approx(1.25)


def test_a_budget_below_the_mean_and_slack_is_kept_from_the_first_warm_run_on():
    # 1 vCPU costs 1 USD per second. A run takes 1 s, of a budget of 1.1 USD: the mean fits, 1.25 s would not. A cold
    # start takes 5 s and is billed. The first request is refused and starts an instance, which is ready at 5.
    on = msgspec.structs.replace(ONE, price=Price(vcpu_usd_per_hour=3600))
    flows = {"main": chain("f", latency_s=2, cost_usd=1.1)}
    world = scenario({"f": declared(1.0, cold_start_s=5)}, workflows=flows, arrivals=(0, 3, 5, 6.5), on=on)
    assert column(run(world), "promised") == [None, None, 6.25, 7.75]
    assert column(run(world), "end")[2:] == [6, 7.5]
    assert column(run(world), "cost_usd")[2:] == pytest.approx([1, 1])


def test_an_instance_is_started_for_a_probe():
    # 1.25 s do not fit into 1.1 s, nor does a cold start of 5 s. The first refusal starts one instance, the others
    # none: only one request at a time will be admitted to learn from. At 5 it is ready.
    world = scenario(declared(1.0, cold_start_s=5), arrivals=(0, 1, 2, 5, 5.5, 6), on=cluster(vcpus=4), slo_s=1.1)
    recording = run(world)
    assert column(recording, "promised") == [None, None, None, 6, None, 7]
    assert recording.instances["started"].to_list() == [0]


def test_after_32_exact_runs_promises_are_tight():
    recording = run(scenario(1.0, arrivals=(Deterministic("main", 2.0),), on=ONE, slo_s=2, duration_s=80))
    waits = [
        promised - at for promised, at in zip(*(column(recording, c) for c in ("promised", "arrival")), strict=True)
    ]
    assert waits[:32] == pytest.approx([1.25] * 32)
    assert waits[32:] == pytest.approx([1] * 8)


def test_a_biased_declaration_is_found_out():
    # Declared with a second, it takes 1.1 s: the belief follows, and after 32 runs exactly that is promised.
    world = scenario(declared(1.0, bias=1.1), arrivals=(Deterministic("main", 3.0),), on=ONE, slo_s=3, duration_s=120)
    recording = run(world)
    latencies = [p - a for p, a in zip(column(recording, "promised"), column(recording, "arrival"), strict=True)]
    assert latencies[0] == pytest.approx(1.25)
    assert latencies[32:] == pytest.approx([1.1] * 8)


def test_where_slack_would_admit_nothing_one_at_a_time_is_admitted_to_learn_from():
    # 1.25 s do not fit into 1.1 s. One is admitted on the declared second; while it runs nobody else is, though there
    # is a vCPU for each.
    world = scenario(1.0, arrivals=(0, 0.5, 0.9, 1.0, 1.5), on=cluster(vcpus=4), slo_s=1.1)
    assert column(run(world), "promised") == [1, None, None, 2, None]


def test_after_32_probes_everybody_who_fits_is_admitted():
    arrivals = [float(i) for i in range(32)] + [40.0] * 5
    recording = run(scenario(1.0, arrivals=arrivals, on=cluster(vcpus=4), slo_s=1.1))
    assert column(recording, "promised") == [*(float(i + 1) for i in range(32)), 41, 41, 41, 41, None]


def test_declared_durations_are_not_probed():
    world = scenario(1.0, arrivals=(0, 2), on=ONE, slo_s=1.1)
    assert column(run(world, estimates="declared"), "promised") == [None, None]
