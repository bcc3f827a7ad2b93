"""Upper bounds: by hand on small clusters, and never below what a dispatcher attains."""

from collections import Counter
from math import inf

import numpy as np
import pytest

from fairlead.engine import simulate
from fairlead.league.bound import attainment_bound
from fairlead.league.catalogue import catalogue
from fairlead.league.needs import Pools, counted_requests
from fairlead.league.plan import shipped_entrant
from fairlead.model import SLO, Price, Workflow
from fairlead.policy import make_policy
from fairlead.profile import Row, Table
from fairlead.report import summarise
from fairlead.testing import SCENARIOS, cluster, declared, scenario
from fairlead.workload import ClosedLoop, Listed, NodeFault, PressureChange

ONE = cluster(1, vcpus=1)


def every(count, interval_s):
    return (Listed("main", tuple(i * interval_s for i in range(count))),)


class TestByHand:
    def test_one_vcpu_answers_as_many_as_fit_until_the_last_deadline(self):
        """20 requests of 1 s, one per 0.5 s, due in 1 s: the last is due at 10.5 s, so 10.5 of 20 at most."""
        where = scenario(declared(1.0), slo_s=1.0, arrivals=every(20, 0.5), on=ONE, duration_s=10.0)
        assert attainment_bound(where, 0) == pytest.approx(10.5 / 20, rel=2e-3)

    def test_with_room_all_can_be_answered(self):
        where = scenario(declared(1.0), slo_s=2.0, arrivals=every(5, 2.0), on=ONE, duration_s=10.0)
        assert attainment_bound(where, 0) == 1.0

    def test_what_takes_longer_than_its_objective_cannot_be_answered(self):
        where = scenario(declared(1.0), slo_s=0.9, arrivals=every(5, 2.0), on=ONE, duration_s=10.0)
        assert attainment_bound(where, 0) == 0.0

    def test_noise_may_shorten_a_run_by_three_standard_deviations(self):
        for noise, expected in ((0.03, 0.0), (0.04, 1.0)):  # 0.91 s and 0.88 s at best
            where = scenario(declared(1.0, noise=noise), slo_s=0.9, arrivals=every(5, 2.0), on=ONE, duration_s=10.0)
            assert attainment_bound(where, 0) == expected

    def test_true_times_count_and_not_declared_ones(self):
        where = scenario(declared(1.0, bias=2.0), slo_s=1.5, arrivals=every(5, 3.0), on=ONE, duration_s=15.0)
        assert attainment_bound(where, 0) == 0.0

    def test_batches_are_full(self):
        """Eight in 2 s, or one in 1 s: 4 per second. 80 requests in 8 s, the last due at 11.9 s: 47.6 of 80."""
        batches = Table((Row(batch=1, seconds=1.0), Row(batch=8, seconds=2.0)))
        where = scenario(declared(batches), slo_s=4.0, arrivals=every(80, 0.1), on=ONE, duration_s=8.0)
        assert attainment_bound(where, 0) == pytest.approx(47.6 / 80, rel=2e-3)
        assert attainment_bound(where, 0, most_batch=1) == pytest.approx(11.9 / 80, rel=2e-3)

    def test_two_resources_are_mixed(self):
        """On 1 vCPU in 2 s or on the GPU in 1 s: 1.5 per second. Two come per second for 20 s, due in 2 s."""
        either = Table((Row(vcpus=1, seconds=2.0), Row(vcpus=0, vgpus=1, seconds=1.0)))
        on = cluster(1, vcpus=1, vgpus=1)
        where = scenario(declared(either), slo_s=2.0, arrivals=every(40, 0.5), on=on, duration_s=20.0)
        assert attainment_bound(where, 0) == pytest.approx(1.5 * 21.5 / 40, rel=2e-3)

    def test_a_chain_cannot_be_slow_twice(self):
        """Slow runs take 1 vCPU for 1 s, fast ones 4 for 0.5 s; both stages within 1.5 s use at least 3 vCPU-s."""
        sizes = declared(Table((Row(vcpus=1, seconds=1.0), Row(vcpus=4, seconds=0.5))))
        where = scenario({"a": sizes, "b": sizes}, slo_s=1.5, arrivals=every(80, 0.1), on=cluster(), duration_s=8.0)
        assert attainment_bound(where, 0) == pytest.approx(4 * (7.9 + 1.5) / 3 / 80, rel=5e-3)

    def test_a_budget_excludes_what_is_too_expensive(self):
        price = Price(vcpu_usd_per_hour=3600)  # 1 USD per vCPU-second
        sizes = declared(Table((Row(vcpus=1, seconds=1.0), Row(vcpus=4, seconds=0.5))))
        for budget, expected in ((1.5, 0.0), (2.0, 1.0)):
            flow = {"main": Workflow.chain("main", "a", slo=SLO(latency_s=0.8, cost_usd=budget))}
            on = cluster(price=price)
            where = scenario({"a": sizes}, workflows=flow, arrivals=every(5, 2.0), on=on, duration_s=10.0)
            assert attainment_bound(where, 0) == expected

    def test_neighbours_that_halve_the_pace_are_worth_nothing(self):
        """Two runs at a time go at half pace (sensitivity 2, half of the node each): as much as one at a time."""
        function = declared(1.0, sensitivity=2.0)
        where = scenario(function, slo_s=2.0, arrivals=every(40, 0.25), on=cluster(vcpus=2), duration_s=10.0)
        assert attainment_bound(where, 0) == pytest.approx((9.75 + 2) / 40, rel=2e-3)

    def test_a_function_that_is_loaded_for_every_run_takes_that_time_too(self):
        function = declared(1.0, cold_start_s=1.0, keep_alive_s=0.0)
        where = scenario(function, slo_s=2.0, arrivals=every(20, 0.5), on=ONE, duration_s=10.0)
        assert attainment_bound(where, 0) == pytest.approx((9.5 + 2) / 2 / 20, rel=2e-3)

    def test_a_burst_is_bounded_in_its_own_window(self):
        """100 requests of 0.1 s at once, due in 0.5 s, and nothing for the other 9.5 s: five, not all."""
        at = tuple([0.0] * 100 + [9.0])
        where = scenario(declared(0.1), slo_s=0.5, arrivals=(Listed("main", at),), on=ONE, duration_s=10.0)
        assert attainment_bound(where, 0) == pytest.approx(6 / 101, rel=5e-3)

    def test_closed_loops_have_none(self):
        where = scenario(declared(1.0), slo_s=2.0, arrivals=(ClosedLoop("main", users=2, think_s=1),), duration_s=10.0)
        assert attainment_bound(where, 0) is None

    def test_without_an_objective_there_is_time_for_everything(self):
        where = scenario(declared(1.0), slo_s=inf, arrivals=every(50, 0.1), on=ONE, duration_s=5.0)
        assert attainment_bound(where, 0) == 1.0


def test_lost_nodes_and_pressure_from_outside_take_their_part():
    """Four vCPUs for 10 s, of which n0's two are lost for 2 s, and half as fast on n1 for 4 s under a pressure of 1."""
    where = scenario(
        declared(1.0, sensitivity=1.0, pressure=0.0),
        on=cluster(2, vcpus=2),
        node_faults=(NodeFault(node="n0", at_s=3.0, back_s=2.0),),
        pressures=(PressureChange(node="n1", at_s=1.0, pressure=1.0), PressureChange(node="n1", at_s=5.0, pressure=0)),
        duration_s=10.0,
    )
    found = Pools(where.cluster).capacity(where, 0.0, 10.0)
    assert found == pytest.approx(np.array([2 * 8.0 + 2 * (6.0 + 4.0 / 2)]))


@pytest.mark.parametrize("name", ["fork-join", "branch", "map-join"])
def test_stages_are_run_as_often_as_the_simulator_runs_them(name):
    where = SCENARIOS[name]()
    recording = simulate(where, make_policy("fifo", {}), seed=3)
    ran = Counter(recording.invocations["stage"].to_list())
    needed: Counter[str] = Counter()
    for _, kind in counted_requests(where, 3):
        stages = where.workflows[kind.workflow].stages
        needed.update({stage.name: runs for stage, runs in zip(stages, kind.visits, strict=True)})
    assert recording.requests["outcome"].unique().to_list() == ["completed"]
    assert needed == ran


@pytest.mark.parametrize("policy", ["earliest-deadline", "fairlead", "clockwork"])
@pytest.mark.parametrize("name", ["table-4.1", "batched-stage", "mig-changing-mix"])
def test_no_dispatcher_is_above_it(name, policy):
    """At three times the load, where it is below 1."""
    where = shipped_entrant(name, [policy], [3.0], catalogue()).at[3.0]
    bound = attainment_bound(where, 5)
    attained = summarise(simulate(where, policy, seed=5)).slo_attainment
    assert 0 < attained <= bound < 1
