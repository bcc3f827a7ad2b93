"""Growth by hand: forecasts, the need with its room, when a node is asked for, furnished and given back."""

from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.model import SLO, Bounds, Price, Workflow
from fairlead.policy.fairlead.growth import Forecast, _Demand, _with_room
from fairlead.policy.fairlead.policy import Fairlead
from fairlead.profile import Row, Table
from fairlead.report import summarise
from fairlead.testing import check_accounts, check_capacity, check_order, cluster, declared, scenario
from fairlead.workload import NodeFault, Poisson

DOLLAR = Price(vcpu_usd_per_hour=1.0)


class TestForecast:
    def watch(self, rate_at, seconds, lead_s=10.0):
        """A forecast that has seen this many seconds, each with as many arrivals as the rate says."""
        forecast = Forecast(lead_s)
        for second in range(seconds):
            forecast.arrived = rate_at(second + 0.5)
            forecast.observe(second + 1.0, 1.0, lead_s)
        return forecast

    def test_a_steady_rate_goes_on(self):
        forecast = self.watch(lambda t: 5.0, 100)
        assert forecast.rate == pytest.approx(5.0)
        assert forecast.upper(0.0) == pytest.approx(5.0)  # no forecast was wrong

    def test_a_rising_rate_rises_on(self):
        forecast = self.watch(lambda t: 2 + 0.1 * t, 100)
        assert forecast.rate == pytest.approx(2 + 0.1 * 110, abs=0.01)

    def test_a_rate_does_not_fall_below_zero(self):
        assert self.watch(lambda t: max(0.0, 20 - t), 25).rate == 0

    def test_a_forecast_that_was_wrong_makes_room(self):
        forecast = self.watch(lambda t: 5.0 if t < 60 else 15.0, 70)
        # The forecasts of 5 for the seconds after 60 were wrong by up to 10.
        assert forecast.upper(0.0) > forecast.rate + 2
        assert forecast.upper(10.0) == forecast.rate  # an error does no harm where requests can wait ten lead times


class TestRoom:
    def demand(self, use, variance, per_slack):
        return _Demand(*(np.array([value, 0.0]) for value in (use, variance, per_slack)))

    def test_runs_that_can_wait_need_spare_capacity_for_their_slack(self):
        """Runs of 1 vCPU and 1 s with 2 s of slack: exp(-4 c) = 0.01 for c = 1.15 spare vCPUs."""
        assert _with_room([self.demand(16.0, 16.0, 0.5)])[0] == pytest.approx(16 + 0.5 * log(100) / 2)

    def test_runs_that_cannot_wait_need_what_may_be_busy(self):
        assert _with_room([self.demand(16.0, 16.0, 1e9)])[0] == pytest.approx(16 + 2.33 * sqrt(16))

    def test_a_resource_that_is_not_used_is_not_needed(self):
        assert _with_room([self.demand(16.0, 16.0, 0.5)])[1] == 0


def steps(*parts):
    """Arrivals at equal intervals. Each part has a rate per second and a length in seconds; parts follow each other."""
    found, begin = [], 0.0
    for rate, seconds in parts:
        found += [begin + i / rate for i in range(round(rate * seconds))]
        begin += seconds
    return found


def growing(arrivals, *, nodes=1, most=4, rows=((1, 1.0),), **settings):
    """Runs of a second on nodes of four vCPUs, due in 3 s; nodes take 5 s to come and instances 1 s to start."""
    table = Table(tuple(Row(vcpus=vcpus, seconds=seconds) for vcpus, seconds in rows))
    function = declared(table, cold_start_s=1.0, idle_holds="memory")
    settings = {"growth": {"plain": Bounds(most=most)}, "provision_s": 5.0, **settings}
    return scenario({"f": function}, arrivals=arrivals, on=cluster(nodes, vcpus=4, price=DOLLAR), slo_s=3.0, **settings)


def test_a_node_is_asked_for_when_the_load_rises_and_works_after_its_time():
    recording = simulate(growing(steps((0.5, 40), (6.0, 60))), Fairlead())
    later = [life for life in recording.nodes if life.asked > 0]
    assert later
    assert 40 < later[0].asked < 46  # within a few seconds of the step
    assert later[0].joined == later[0].asked + 5
    table = recording.invocations.filter(recording.invocations["node"] == later[0].node)
    assert table["start"].min() == pytest.approx(later[0].joined + 1, abs=0.5)  # an instance was started at once
    assert not table["is_cold"].any()
    late = recording.requests.filter(recording.requests["arrival"] > 60)
    assert (late["end"] <= late["deadline"]).all()
    assert recording.refusals == ()


def test_nodes_are_given_back_when_the_others_have_been_enough_for_a_lead_time():
    recording = simulate(growing(steps((0.5, 100)), nodes=3), Fairlead())
    # Half a vCPU is used, with up to 2.3 for chance: one node of four is enough from the first look on.
    left = sorted(life.left for life in recording.nodes if life.left is not None)
    assert len(left) == 2
    assert 6 <= left[0] < 12  # 5 s to come and 1 s to start
    assert set(recording.invocations["outcome"]) == {"done"}
    assert summarise(recording).slo_attainment == 1


def test_a_fixed_cluster_stays_as_it_is():
    recording = simulate(growing(steps((12.0, 30)), nodes=2, growth={"plain": Bounds(least=2, most=2)}), Fairlead())
    assert [(life.asked, life.left) for life in recording.nodes] == [(0, None)] * 2


def test_nodes_that_were_lost_are_replaced():
    fault = NodeFault(node="n1", at_s=30)
    bounds = {"plain": Bounds(least=2, most=3)}
    recording = simulate(growing(steps((2.0, 60)), nodes=2, growth=bounds, node_faults=(fault,)), Fairlead())
    (new,) = [life for life in recording.nodes if life.asked > 0]
    assert 30 <= new.asked < 33


@pytest.mark.parametrize(("usd_per_hour", "is_grown"), [(8.0, True), (160.0, False)], ids=["cheap", "expensive"])
def test_where_nodes_are_expensive_the_plan_spares_what_is_short_first(usd_per_hour, is_grown):
    """A run takes 2 vCPU-seconds, or 0.9 and 1.8 vGPU-seconds, which is more money at a dollar an hour each.

    7.5 runs a second need 15 of 16 vCPUs, and room. A node of eight is worth 8 dollars by the price list: at that price
    it is asked for. At 160 dollars it is cheaper to use the 20 vGPUs.
    """
    price = Price(vcpu_usd_per_hour=1.0, vgpu_usd_per_hour=1.0)
    rows = (Row(vcpus=2, seconds=1.0), Row(vcpus=1, vgpus=2, seconds=0.9))
    on = cluster(1, vcpus=8, kind="cpu", beside=cluster(1, vcpus=8, vgpus=20, price=price), price=price)
    where = scenario(
        {"f": declared(Table(rows), cold_start_s=1.0, idle_holds="memory")},
        arrivals=steps((7.5, 60)),
        on=on,
        slo_s=4.0,
        growth={"cpu": Bounds(most=3, usd_per_hour=usd_per_hour)},
        provision_s=5.0,
    )
    recording = simulate(where, Fairlead())
    assert any(life.asked > 0 for life in recording.nodes) == is_grown


@st.composite
def worlds(draw):
    """One or two functions in a chain on one to three nodes of one or two kinds that come and go, under any load."""
    function = st.builds(
        lambda seconds, **rest: declared(
            Table((Row(vcpus=1, seconds=seconds), Row(vcpus=2, seconds=0.6 * seconds))), **rest
        ),
        st.sampled_from([0.1, 0.5]),
        cold_start_s=st.sampled_from([0.0, 0.5]),
        idle_holds=st.sampled_from(["slice", "memory"]),
        noise=st.sampled_from([0.0, 0.3]),
    )
    parts = dict(zip("ab", draw(st.lists(function, min_size=1, max_size=2)), strict=False))
    flow = Workflow.chain("main", *parts, slo=SLO(latency_s=draw(st.sampled_from([1.0, 3.0]))))
    nodes, beside = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    on = cluster(nodes, vcpus=2.0)
    bounds = {"plain": Bounds(least=draw(st.integers(1, nodes)), most=nodes + draw(st.integers(0, 2)))}
    if beside:
        on = cluster(beside, vcpus=4.0, kind="fast", speed=2.0, beside=on)
        bounds["fast"] = Bounds(most=beside + 1, usd_per_hour=draw(st.sampled_from([0.05, 5.0])), provision_s=0.5)
    rates = st.sampled_from([1.0, 8.0, 30.0])
    arrivals = (Poisson("main", draw(rates)), *steps((draw(rates), 3.0)))
    return scenario(
        parts,
        workflows={"main": flow},
        arrivals=arrivals,
        on=on,
        growth=bounds,
        provision_s=draw(st.sampled_from([0.0, 1.0])),
        duration_s=8.0,
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(worlds(), st.integers(0, 3))
def test_the_number_of_nodes_stays_within_its_bounds_and_no_run_is_lost(where, seed):
    recording = simulate(where, Fairlead(), seed=seed)
    assert recording.refusals == ()
    instants = sorted({at for life in recording.nodes for at in (life.asked, life.joined, life.left) if at is not None})
    for kind, bounds in where.growth.items():
        own = [life for life in recording.nodes if life.kind == kind]
        for at in instants:
            billed = sum(life.asked <= at and (life.left is None or at < life.left) for life in own)
            up = sum(
                life.joined is not None and life.joined <= at and (life.left is None or at < life.left) for life in own
            )
            assert up >= bounds.least
            assert billed <= bounds.most
    assert not set(recording.invocations["outcome"]) & {"lost", "preempted"}
    check_capacity(recording, where)
    check_order(recording, where)
    check_accounts(recording)
    again = simulate(where, Fairlead(), seed=seed)
    assert again.nodes == recording.nodes
    assert again.requests.equals(recording.requests)
