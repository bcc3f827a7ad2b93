"""Pard: worker sizes, early drops by what is ahead, and the order that the load decides."""

import pytest

from fairlead.engine import simulate
from fairlead.model import SLO, Configuration, Workflow
from fairlead.policy.pard.pipeline import Downstream, RecentMean
from fairlead.policy.pard.policy import TOO_LATE, Pard
from fairlead.policy.pard.sizing import make_workers
from fairlead.policy.static_replicas import StaticReplicas
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario, site_of
from fairlead.workload import Listed

ONE, FOUR = Configuration(), Configuration(batch=4)
ROWS = (Row(batch=1, vcpus=1, seconds=0.1), Row(batch=4, vcpus=1, seconds=0.2))
BATCHES = declared(Table(ROWS), configurations=(ONE, FOUR))  # one at a time: 10/s; four at a time: 20/s


class TestSizing:
    @pytest.mark.parametrize(
        ("slo_s", "batch"),
        [(0.5, 4), (0.485, 4), (0.3, 1), (0.15, 1), (0.01, 1)],
        ids=["roomy", "twice-the-batch-fits", "only-the-small-one-fits-twice", "fits-once", "nothing-fits"],
    )
    def test_the_largest_batch_that_fits_twice_into_the_objective_is_chosen(self, slo_s, batch):
        """Before anything was observed, 1.2 times the declared time is planned with: 0.12 s and 0.24 s."""
        assert make_workers(site_of(scenario({"f": BATCHES}, slo_s=slo_s)))["f"].full.batch == batch

    def test_a_worker_takes_the_smallest_batch_that_holds_what_waits(self):
        worker = make_workers(site_of(scenario({"f": BATCHES}, slo_s=9)))["f"]
        assert [worker.holding(count).batch for count in (1, 2, 4, 9)] == [1, 4, 4, 4]


class TestEstimates:
    def test_the_mean_forgets_what_left_the_window(self):
        waits = RecentMean(1.0)
        waits.add(0.0, 4.0)
        waits.add(0.8, 2.0)
        assert [waits.mean(0.9), waits.mean(1.5), waits.mean(2.0)] == [3.0, 2.0, 0.0]

    def test_a_rate_is_per_second_of_the_window_or_of_the_time_so_far(self):
        arrivals = RecentMean(2.0)
        arrivals.add(0.5, 1.0)
        arrivals.add(1.0, 1.0)
        assert [arrivals.per_s(1.0), arrivals.per_s(2.0), arrivals.per_s(2.6)] == [2.0, 1.0, 0.5]

    def test_what_is_ahead_is_the_slowest_path(self):
        flow = scenario({"a": 1.0, "b": 2.0, "c": 5.0}, workflows={"main": ("a", "b", "c")}).workflows
        ahead = Downstream(flow, refresh_s=1.0)
        ahead.refresh(0.0, {"a": 1.0, "b": 2.0, "c": 5.0}.__getitem__)
        assert [ahead.after_s("main", stage) for stage in "abc"] == [7.0, 5.0, 0.0]


def outcomes(recording):
    return recording.requests.sort("request").select("outcome", "end").rows()


class TestDropping:
    def test_a_request_is_dropped_at_its_first_stage_where_later_stages_are_too_slow(self):
        where = scenario({"a": 1.0, "b": 3.0}, workflows={"main": ("a", "b")}, slo_s=3.5)
        recording = simulate(where, Pard())
        assert recording.requests.select("outcome", "reason").rows() == [("rejected", TOO_LATE)]
        assert recording.invocations.height == 0

    def test_what_can_be_in_time_is_served(self):
        where = scenario({"a": 1.0, "b": 3.0}, workflows={"main": ("a", "b")}, slo_s=4.5)
        assert outcomes(simulate(where, Pard())) == [("completed", 4.0)]

    def test_recent_waits_ahead_make_a_new_request_late(self):
        """Eight requests fill one vCPU; a wait ahead of the ninth leaves it no chance, and it costs no work."""
        where = scenario(1.0, slo_s=2.5, arrivals=[0] * 8, on=cluster(vcpus=1))
        recording = simulate(where, Pard(adapts=False))
        assert [outcome for outcome, _ in outcomes(recording)].count("completed") == 2
        assert recording.invocations.height == 2

    def test_requests_without_a_deadline_are_never_dropped(self):
        recording = simulate(scenario(1.0, arrivals=[0] * 3, on=cluster(vcpus=1)), Pard())
        assert sorted(outcomes(recording)) == [("completed", 1.0), ("completed", 2.0), ("completed", 3.0)]


class TestOrder:
    def where(self):
        """Twenty requests with two objectives at once, for a vCPU that serves one per second."""
        chains = {name: Workflow.chain(name, "f", slo=SLO(latency_s=s)) for name, s in (("tight", 6), ("loose", 10))}
        arrivals = [Listed("tight", tuple([0.1] * 10)), Listed("loose", tuple([0.1] * 10))]
        return scenario({"f": 1.0}, workflows=chains, arrivals=arrivals, on=cluster(vcpus=1))

    def first(self, policy):
        return simulate(self.where(), policy).invocations.sort("start")["workflow"][0]

    def test_in_overload_the_largest_budget_goes_first(self):
        assert self.first(Pard(refresh_s=0.01)) == "loose"

    def test_without_adapting_the_smallest_budget_goes_first(self):
        assert self.first(Pard(refresh_s=0.01, adapts=False)) == "tight"


def test_the_workers_of_a_scaled_function_are_left_to_its_scaler():
    where = scenario({"f": declared(1.0, cold_start_s=1)}, slo_s=9, arrivals=[2.5, 3.0], control_period_s=1.0)
    recording = simulate(where, Pard(), scaler=StaticReplicas(replicas=1))
    assert recording.refusals == ()
    assert recording.instances.height == 1


@pytest.mark.parametrize("wrong", [{"window_s": 0}, {"refresh_s": -1}, {"band": 1}, {"window_s": float("inf")}])
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Pard(**wrong)
