"""Fairlead, one decision at a time: which configuration, which batch, which order, and what is refused."""

from math import inf

import pytest

from fairlead.engine import simulate
from fairlead.model import SLO, Configuration, Price, Workflow
from fairlead.policy import Policy, Reject, Start, make_policy
from fairlead.policy.fairlead.policy import Fairlead
from fairlead.profile import Row, Table
from fairlead.testing import Waits, cluster, decisions, declared, scenario
from fairlead.workload import Listed

SMALL, LARGE = Configuration(vcpus=1), Configuration(vcpus=4)
SIZES = declared(Table((Row(vcpus=1, seconds=1.0), Row(vcpus=4, seconds=0.4))))  # 1 and 1.6 vCPU-seconds
BATCHES = declared(Table((Row(batch=1, seconds=0.1), Row(batch=4, seconds=0.2))))
ONE = cluster(1, vcpus=1)
DOLLAR = Price(vcpu_usd_per_hour=3600)  # one USD per second of a vCPU


def of(kind, actions):
    return [action for action in actions if isinstance(action, kind)]


def run(where, **settings):
    """One run of the policy; no action may be refused."""
    recording = simulate(where, Fairlead(), **settings)
    assert not recording.refusals, recording.refusals[0]
    return recording


class Losing(Policy):
    """The policy while requests are being dropped, with or without a resource that is short by the plan."""

    def __init__(self, is_short):
        self.policy, self.is_short = Fairlead(), is_short

    def prepare(self, site, rng):
        self.policy.prepare(site, rng)

    def decide(self, view):
        self.policy._outlook.is_losing, self.policy._outlook.is_short = True, self.is_short
        return self.policy.decide(view)


def test_it_is_registered_and_needs_no_parameters():
    assert isinstance(make_policy("fairlead", {}), Fairlead)


class TestConfigurations:
    @pytest.mark.parametrize(("deadline", "expected"), [(16.0, SMALL), (0.6, LARGE)], ids=["loose", "tight"])
    def test_the_cheapest_that_is_in_time_is_taken(self, deadline, expected):
        (start,) = of(Start, decisions(Fairlead(), deadline, scenario=scenario(SIZES, slo_s=deadline)))
        assert start.configuration == expected

    @pytest.mark.parametrize(
        ("slo_s", "vcpus", "latency_s"),
        [(16.0, [1, 1], 2.0), (2.0, [1, 4], 1.4), (1.0, [4, 4], 0.8)],
        ids=["loose-takes-the-cheapest-twice", "between-pays-for-speed-once", "tight-pays-for-speed-twice"],
    )
    def test_a_chain_pays_for_speed_only_as_often_as_it_must(self, slo_s, vcpus, latency_s):
        """A tenth more than the mean is planned with: 1.1 s and 0.44 s, in 97 % of the objective."""
        recording = run(scenario({"a": SIZES, "b": SIZES}, slo_s=slo_s))
        assert sorted(recording.invocations["vcpus"]) == vcpus
        assert recording.requests["end"].to_list() == pytest.approx([latency_s])

    def test_time_that_a_stage_lost_is_made_up_by_the_next(self):
        """The first stage takes 2 s instead of 1, so the second has 1 s left, in which only 4 vCPUs are in time."""
        late = declared(1.0, bias=2.0)
        recording = run(scenario({"a": late, "b": SIZES}, slo_s=3.0))
        assert recording.invocations.sort("start")["vcpus"].to_list() == [1, 4]
        assert recording.requests["end"].to_list() == pytest.approx([2.4])


class TestRefusals:
    def test_a_request_that_cannot_be_in_time_even_alone_is_refused_at_arrival(self):
        recording = run(scenario({"a": 1.0, "b": 3.0}, slo_s=3.5, arrivals=[2.0]))
        (request,) = recording.requests.iter_rows(named=True)
        assert (request["outcome"], request["end"]) == ("rejected", 2.0)
        assert request["reason"] == "it cannot be answered in time: it takes at least 4 s, and it is due in 3.5 s"
        assert recording.invocations.height == 0

    def test_a_request_that_is_in_time_alone_is_answered(self):
        recording = run(scenario({"a": 1.0, "b": 3.0}, slo_s=4.5))
        assert recording.requests.select("outcome", "end").rows() == [("completed", 4.0)]

    def test_the_eleventh_is_refused_where_there_is_time_for_ten(self):
        """Ten seconds of one vCPU; with eleven requests of a second each, the last would be a second late."""
        actions = decisions(Fairlead(), *[10.0] * 11, scenario=scenario(1.0, slo_s=10.0, on=ONE))
        (refusal,) = of(Reject, actions)
        assert refusal.request == 10
        assert refusal.retry_after_s == pytest.approx(1.0)

    def test_a_workflow_that_no_node_can_run_is_refused_with_the_reason(self):
        two = declared(1.0, configurations=(Configuration(vcpus=2),))
        where = scenario({"f": 1.0, "two": two}, workflows={"main": ("f",), "wide": ("two",)}, slo_s=9.0, on=ONE)
        actions = decisions(Fairlead(), 9.0, Waits(deadline=9.0, workflow="wide"), scenario=where)
        (refusal,) = of(Reject, actions)
        assert (refusal.request, refusal.reason) == (1, "no node can run all of its functions")
        assert [start.batch[0].request for start in of(Start, actions)] == [0]

    @pytest.mark.parametrize(("is_short", "dropped"), [(False, 0), (True, 1)], ids=["with-room", "short"])
    def test_a_request_is_dropped_for_its_cost_only_where_a_resource_is_short(self, is_short, dropped):
        """In the 0.6 s left only 4 vCPUs are in time, for 1.6 times the cost of a new request."""
        actions = decisions(Losing(is_short), 0.6, scenario=scenario(SIZES, slo_s=16.0))
        assert len(of(Reject, actions)) == dropped
        assert len(of(Start, actions)) == 1 - dropped


class TestDeadlinesOfClients:
    @pytest.mark.parametrize("slo_s", [inf, 60.0], ids=["no-objective", "a-longer-objective"])
    def test_what_a_client_gives_counts_instead_of_the_objective(self, slo_s):
        """Within 0.6 s only 4 vCPUs are in time, whatever the workflow's objective would allow."""
        where = scenario(SIZES, slo_s=slo_s)
        (start,) = of(Start, decisions(Fairlead(), 0.6, scenario=where))
        assert start.configuration == LARGE

    def test_a_refused_request_is_not_counted_among_those_that_wait(self):
        """Twelve come at once, there is time for ten; the batches that follow are those of ten."""
        actions = decisions(Fairlead(), *[10.0] * 12, scenario=scenario(1.0, slo_s=10.0, on=ONE))
        assert [refusal.request for refusal in of(Reject, actions)] == [10, 11]


class TestColdStarts:
    def test_a_cold_start_shorter_than_the_objective_is_waited_for(self):
        recording = run(scenario(declared(0.1, cold_start_s=2.0), slo_s=5.0))
        assert recording.requests.select("outcome", "end").rows() == [("completed", pytest.approx(2.1))]

    def test_nothing_is_refused_at_arrival_because_nothing_is_warm(self):
        """The cold start is longer than the objective: a request waits until it is hopeless, then it is dropped."""
        where = scenario(declared(0.1, cold_start_s=2.0), slo_s=0.5)
        actions = decisions(Fairlead(), 0.5, scenario=where)
        assert not of(Reject, actions)
        requests = run(where).requests
        assert requests["outcome"].to_list() == ["dropped"]
        assert requests["end"].to_list() == pytest.approx([0.398], abs=1e-3)  # 2 ms are for the reply


class TestBatches:
    def test_as_many_as_wait_run_together(self):
        (start,) = of(Start, decisions(Fairlead(), *[1.0] * 4, scenario=scenario(BATCHES, slo_s=1.0, on=ONE)))
        assert (len(start.batch), start.configuration.batch) == (4, 4)

    def test_a_batch_is_not_waited_for_before_it_is_known_that_others_come(self):
        (start,) = of(Start, decisions(Fairlead(), 1.0, scenario=scenario(BATCHES, slo_s=1.0, on=ONE)))
        assert start.configuration.batch == 1

    @pytest.mark.parametrize(("slo_s", "size"), [(2.0, 4), (0.6, 1)], ids=["with-time", "without"])
    def test_a_batch_is_waited_for_if_a_full_one_is_cheaper_and_in_time(self, slo_s, size):
        """One request in 0.2 s: a batch of four is full after 0.6 s and takes 0.2 s, half as long per request."""
        arrivals = [0.2 * i for i in range(100)]
        recording = run(scenario(BATCHES, slo_s=slo_s, on=ONE, arrivals=arrivals))
        later = recording.invocations.filter(recording.invocations["start"].is_between(10.0, 18.0))
        assert set(later["batch_size"]) == {size}
        assert (recording.requests["end"] <= recording.requests["deadline"]).all()

    def test_a_batch_is_not_waited_for_when_no_more_requests_come(self):
        """The last of them waits for twice the mean time between two, not until it is due."""
        recording = run(scenario(BATCHES, slo_s=20.0, on=ONE, arrivals=[0.2 * i for i in range(101)]))
        last = recording.requests.sort("arrival").row(-1, named=True)
        assert last["end"] - last["arrival"] < 1.0

    def test_two_workflows_that_share_a_function_share_batches(self):
        where = scenario({"f": BATCHES}, workflows={"x": ("f",), "y": ("f",)}, slo_s=1.0, on=ONE)
        waiting = [Waits(deadline=1.0, workflow=name) for name in ("x", "x", "y", "y")]
        (start,) = of(Start, decisions(Fairlead(), *waiting, scenario=where))
        assert sorted(invocation.workflow for invocation in start.batch) == ["x", "x", "y", "y"]

    def test_a_request_that_the_shared_batch_would_make_late_is_not_in_it(self):
        """A batch of two of `y` takes 0.2 s, planned with 0.22 s; that of `x` is due in 0.15 s and runs alone."""
        flows = {name: Workflow.chain(name, "f", slo=SLO(latency_s=s)) for name, s in (("x", 0.15), ("y", 1.0))}
        arrivals = [Listed("x", (0.0,)), Listed("y", (0.0, 0.0))]
        recording = run(scenario({"f": BATCHES}, workflows=flows, arrivals=arrivals, on=ONE))
        assert (recording.requests["end"] <= recording.requests["deadline"]).all()
        assert recording.invocations.sort("start")["workflow"].to_list() == ["x", "y", "y"]


class TestBudgets:
    THREE = declared(
        Table((Row(vcpus=1, seconds=2.0), Row(vcpus=2, seconds=1.2), Row(vcpus=4, seconds=0.8)))
    )  # USD 2, 2.4 and 3.2

    def where(self, latency_s, cost_usd=inf, **settings):
        flow = Workflow.chain("main", "f", slo=SLO(latency_s=latency_s, cost_usd=cost_usd))
        return scenario({"f": self.THREE}, workflows={"main": flow}, on=cluster(1, vcpus=4, price=DOLLAR), **settings)

    def test_only_the_middle_is_in_time_and_within_the_budget(self):
        recording = run(self.where(1.6, 2.6, arrivals=(0.0, 0.1, 5.0)))
        assert recording.invocations["vcpus"].to_list() == [2, 2, 2]
        assert recording.requests["cost_usd"].to_list() == pytest.approx([2.4] * 3)

    def test_a_request_that_only_the_most_expensive_would_answer_is_dropped(self):
        kept = run(self.where(1.0))
        assert kept.requests.select("outcome", "cost_usd").rows() == [("completed", pytest.approx(3.2))]
        dropped = run(self.where(1.0, 2.6))
        assert dropped.requests.select("outcome", "cost_usd").rows() == [("rejected", 0.0)]
        assert "budget" in dropped.requests["reason"][0]

    def test_what_is_left_of_the_budget_must_suffice_for_the_next_stages(self):
        """Two stages for at most USD 5: each may cost 2.4, but not one 3.2 and the other 2."""
        flow = Workflow.chain("main", "a", "b", slo=SLO(latency_s=2.8, cost_usd=5.0))
        on = cluster(1, vcpus=4, price=DOLLAR)
        recording = run(scenario({"a": self.THREE, "b": self.THREE}, workflows={"main": flow}, on=on))
        assert recording.requests.select("outcome", "end").rows() == [("completed", pytest.approx(2.4))]
        assert recording.requests["cost_usd"].to_list() == pytest.approx([4.8])

    @pytest.mark.parametrize(("is_billed", "outcome"), [(False, "completed"), (True, "rejected")])
    def test_a_cold_start_in_every_run_counts_against_the_budget_if_it_is_billed(self, is_billed, outcome):
        """A second to start and one to run, at a USD per second, for at most USD 1.5."""
        flow = Workflow.chain("main", "f", slo=SLO(latency_s=5.0, cost_usd=1.5))
        price = Price(vcpu_usd_per_hour=3600, bill_cold_start=is_billed)
        function = declared(1.0, cold_start_s=1.0, keep_alive_s=0.0)
        recording = run(scenario({"f": function}, workflows={"main": flow}, on=cluster(1, vcpus=1, price=price)))
        assert recording.requests["outcome"].to_list() == [outcome]


class TestOrder:
    def test_a_batch_that_can_still_fill_lets_others_go_first(self):
        """A request takes 10 ms, then 40 ms that up to eight share: 15 ms in full batches, which 60 a second need."""
        wide = declared(Table(tuple(Row(batch=batch, seconds=0.04) for batch in range(1, 9))))
        arrivals = tuple(i / 60 for i in range(600))
        recording = run(scenario({"short": declared(0.01), "wide": wide}, slo_s=1.0, arrivals=arrivals, on=ONE))
        assert (recording.requests["outcome"] == "completed").mean() > 0.9

    def test_those_behind_a_first_that_cannot_be_started_go_ahead(self):
        """Of 5 vCPUs the first takes 4. The second needs 4 as well, to be in time; the third is in time with one."""
        where = scenario(SIZES, slo_s=16.0, on=cluster(1, vcpus=5))
        starts = of(Start, decisions(Losing(is_short=False), 0.6, 0.6, 16.0, scenario=where))
        assert [(start.batch[0].request, start.configuration) for start in starts] == [(0, LARGE), (2, SMALL)]

    def test_the_most_urgent_goes_first(self):
        actions = decisions(Fairlead(), 9.0, 3.0, 5.0, scenario=scenario(1.0, slo_s=9.0, on=ONE))
        assert [start.batch[0].request for start in of(Start, actions)] == [1]

    def test_without_deadlines_requests_are_served_first_come_first_served(self):
        flows = {"x": ("f",), "y": ("g",), "z": ("f", "g")}
        arrivals = [Listed("y", (0.0, 0.3)), Listed("x", (0.1, 0.4)), Listed("z", (0.2,))]
        recording = run(scenario({"f": 1.0, "g": 1.0}, workflows=flows, arrivals=arrivals, on=ONE))
        served = recording.invocations.sort("start").select("workflow", "stage", "start").rows()
        expected = [("y", "g"), ("x", "f"), ("z", "f"), ("y", "g"), ("x", "f"), ("z", "g")]
        assert served == [(*who, pytest.approx(i)) for i, who in enumerate(expected)]

    def test_without_deadlines_nothing_is_refused(self):
        actions = decisions(Fairlead(), *[inf] * 50, scenario=scenario(1.0, on=ONE))
        assert not of(Reject, actions)
        assert len(of(Start, actions)) == 1

    def test_a_deadline_goes_before_none(self):
        flows = {"main": Workflow.chain("main", "f"), "due": Workflow.chain("due", "f", slo=SLO(latency_s=5.0))}
        waiting = [Waits(), Waits(deadline=5.0, workflow="due")]
        (start,) = of(Start, decisions(Fairlead(), *waiting, scenario=scenario({"f": 1.0}, workflows=flows, on=ONE)))
        assert start.batch[0].workflow == "due"
