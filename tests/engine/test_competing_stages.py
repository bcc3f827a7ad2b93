"""Competing copies of a stage: who wins, what becomes of the others, and what it costs."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_worlds import MAKERS, made, scenarios
from toy_policies import Doing, start_oldest

from fairlead.engine import simulate
from fairlead.engine.core.events import Outcome
from fairlead.engine.sim.physics import Physics
from fairlead.model import Configuration, Price, Stage, Workflow
from fairlead.policy import Cancel, Start
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, check_capacity, check_order, cluster, declared, scenario
from fairlead.workload import Listed, NodeFault

DOLLAR_PER_VCPU_SECOND = Price(vcpu_usd_per_hour=3600)


class Timed(Physics):
    """Copies take as long as is said here, and fail where it says so."""

    def __init__(self, where, times, failing=()):
        super().__init__(where, 0)
        self.times = times
        self.failing = failing

    def work_s(self, effect):
        head = effect.invocations[0]
        return self.times.get((head.request, head.copy), self.times.get(head.copy, 1.0))

    def outcomes(self, effect):
        return tuple(self._ending(invocation) for invocation in effect.invocations)

    def _ending(self, invocation):
        fails = invocation.copy in self.failing or (invocation.copy, invocation.attempt) in self.failing
        return Outcome(ok=False, error="it broke") if fails else Outcome()


def stage(name, *after, **more):
    return Stage(name=name, function=more.pop("function", name), after=after, **more)


def flow(functions, *stages, vcpus=16, **more):
    workflows = {"main": Workflow(name="main", stages=stages), **more.pop("others", {})}
    on = more.pop("on", cluster(vcpus=vcpus, price=DOLLAR_PER_VCPU_SECOND))
    return scenario(functions, workflows=workflows, on=on, **more)


def check_all(recording, where):
    check_capacity(recording, where)
    check_order(recording, where)
    check_accounts(recording)
    assert recording.stale_events == 0


def run(where, times, failing=(), policy=None):
    recording = simulate(where, policy or Doing(), physics=Timed(where, times, failing))
    check_all(recording, where)
    return recording


def ends(recording):
    return sorted(recording.invocations.select("stage", "start", "end", "outcome").rows())


def test_the_first_answer_wins_and_the_others_are_discarded_at_their_end():
    where = flow({"f": 1.0, "g": 1.0}, stage("f", compete=3), stage("g", "f"))
    recording = run(where, {0: 5.0, 1: 2.0, 2: 9.0})
    assert ends(recording) == [
        ("f", 0, 2, "done"),
        ("f", 0, 5, "discarded"),
        ("f", 0, 9, "discarded"),
        ("g", 2, 7, "done"),  # a stage without competition is copy 0
    ]
    assert recording.requests["end"].to_list() == [7]


def test_a_request_has_paid_for_losers_that_end_before_it():
    where = flow({"f": 1.0, "g": 1.0}, stage("f", compete=3), stage("g", "f"))
    recording = run(where, {0: 5.0, 1: 2.0, 2: 9.0})
    assert recording.requests["cost_usd"].to_list() == [2 + 5 + 5]
    assert recording.invocations["cost_usd"].sum() == 2 + 5 + 9 + 5


def test_the_instances_of_losers_stay_warm():
    where = flow({"f": declared(1.0, cold_start_s=1)}, stage("f", compete=2), arrivals=[0, 10])
    recording = run(where, {0: 2.0, 1: 4.0})
    assert recording.invocations.select("request", "is_cold", "end").sort("end").rows() == [
        (0, True, 3),
        (0, True, 5),
        (1, False, 12),
        (1, False, 14),
    ]
    assert recording.instances["cause"].to_list() == [None, None]


def test_a_copy_that_still_waits_leaves_no_trace():
    where = flow({"f": 1.0, "g": 1.0}, stage("f", compete=3), stage("g", "f"), vcpus=1)
    recording = run(where, {0: 2.0})
    assert ends(recording) == [("f", 0, 2, "done"), ("g", 2, 4, "done")]


def test_of_copies_that_end_together_one_wins():
    recording = run(flow(1.0, stage("f", compete=3)), {0: 2.0, 1: 2.0, 2: 2.0})
    assert ends(recording) == [("f", 0, 2, "discarded"), ("f", 0, 2, "discarded"), ("f", 0, 2, "done")]
    assert recording.requests["cost_usd"].to_list() == [2]


def test_an_instance_that_still_starts_for_a_loser_is_kept_for_the_next():
    where = flow(
        {"f": declared(1.0, cold_start_s=3)},
        stage("f", compete=2),
        others={"other": Workflow.chain("other", "f")},
        arrivals=[10, 20, Listed("other", (0.0,))],
    )
    recording = run(where, {0: 1.0, 1: 1.0})
    # The one instance is warm at 10; the second copy's is stopped at 11, after one of its three seconds.
    rows = recording.invocations.filter(workflow="main").sort("start", "is_cold")
    assert rows.select("start", "cold_s", "end", "is_cold").rows()[:2] == [(10, 0, 11, False), (10, 1, 11, True)]
    assert rows["is_cold"].to_list()[2:] == [False, False]
    assert recording.instances["ready"].to_list() == [3, 13]


def test_a_loser_in_a_batch_with_others_runs_to_the_end_and_is_discarded():
    pair = Configuration(batch=2)

    def in_pairs(view):
        waiting = {(i.request, i.copy): i for i in view.by_ready()}
        if (0, 0) in waiting:
            yield Start((waiting[0, 0],), pair, "n0")
            yield Start((waiting[0, 1], waiting[1, 0]), pair, "n0")

    law = Table((Row(seconds=1.0, batch=2),))
    where = flow({"f": law}, stage("f", compete=2), arrivals=[0, 0])
    recording = run(where, {(0, 0): 2.0, (0, 1): 6.0}, policy=Doing(in_pairs))
    rows = recording.invocations.select("request", "batch_size", "end", "outcome").sort("end", "request").rows()
    assert rows == [(0, 1, 2, "done"), (0, 2, 6, "discarded"), (1, 2, 6, "done")]
    # The second copy of request 1 waited until the first was done. Half a batch of 6 s is not in the answer of 2 s.
    assert recording.requests.select("end", "cost_usd").rows() == [(2, 2), (6, 3)]


def test_a_batch_of_losers_runs_to_its_end():
    pair = Configuration(batch=2)

    def in_pairs(view):
        waiting = {(i.request, i.copy): i for i in view.by_ready()}
        if (0, 1) in waiting:
            yield Start((waiting[0, 1], waiting[1, 1]), pair, "n0")
            yield Start((waiting[0, 0],), pair, "n0")
            yield Start((waiting[1, 0],), pair, "n0")

    where = flow({"f": Table((Row(seconds=1.0, batch=2),))}, stage("f", compete=2), arrivals=[0, 0])
    recording = run(where, {(0, 1): 9.0, (0, 0): 2.0, (1, 0): 5.0}, policy=Doing(in_pairs))
    rows = recording.invocations.select("request", "end", "outcome").sort("end", "request", "outcome").rows()
    assert rows == [(0, 2, "done"), (1, 5, "done"), (0, 9, "discarded"), (1, 9, "discarded")]


class TestFailure:
    def test_a_copy_that_fails_leaves_the_others(self):
        recording = run(flow(1.0, stage("f", compete=2)), {0: 1.0, 1: 3.0}, failing={0})
        assert ends(recording) == [("f", 0, 1, "failed"), ("f", 0, 3, "done")]
        assert recording.requests["outcome"].to_list() == ["completed"]

    def test_the_stage_fails_with_the_last_of_them(self):
        recording = run(flow(1.0, stage("f", compete=2)), {0: 1.0, 1: 3.0}, failing={0, 1})
        assert recording.requests.select("end", "outcome", "reason").rows() == [(3, "failed", "it broke")]

    def test_each_copy_has_retries_of_its_own(self):
        where = flow(declared(1.0, retries=1), stage("f", compete=2))
        recording = run(where, {0: 1.0, 1: 5.0}, failing={(0, 1)})
        assert recording.invocations.select("attempt", "start", "end", "outcome").sort("start", "end").rows() == [
            (1, 0, 1, "failed"),
            (1, 0, 5, "discarded"),
            (2, 1, 2, "done"),
        ]

    def test_a_retry_that_was_to_come_is_not_made_after_a_win(self):
        where = flow(declared(1.0, retries=1), stage("f", compete=2), retry_delay_s=2)
        recording = run(where, {0: 1.0, 1: 2.0}, failing={(0, 1)})
        assert ends(recording) == [("f", 0, 1, "failed"), ("f", 0, 2, "done")]

    def test_a_lost_node_takes_only_the_copies_on_it(self):
        on = cluster(2, vcpus=1, price=DOLLAR_PER_VCPU_SECOND)
        where = flow(1.0, stage("f", compete=2), on=on, node_faults=(NodeFault(node="n0", at_s=1.0),))
        recording = run(where, {0: 4.0, 1: 3.0})
        rows = recording.invocations.select("node", "end", "outcome").sort("end").rows()
        assert rows == [("n0", 1, "lost"), ("n1", 3, "done")]

    def test_a_copy_that_the_policy_cancels_waits_again_as_the_same_copy(self):
        deeds = []

        def cancel_once(view):
            if view.now == 1 and not deeds:
                deeds.append(Cancel(0))
                yield deeds[0]
            yield from start_oldest(view)

        where = flow(1.0, stage("f", compete=2), arrivals=[0, 1])
        recording = run(where, {(0, 0): 2.0, (0, 1): 9.0, (1, 0): 9.0, (1, 1): 9.0}, policy=Doing(cancel_once))
        rows = recording.invocations.filter(request=0).select("start", "end", "outcome").sort("start", "end").rows()
        assert rows == [(0, 1, "preempted"), (0, 9, "discarded"), (1, 3, "done")]


class TestInsideMapsAndBranches:
    def test_every_item_has_a_race_of_its_own(self):
        where = flow(
            {"a": 1.0, "b": declared(1.0, noise=0.3), "c": 1.0},
            stage("a"),
            stage("b", "a", map=(3, 3), compete=2),
            stage("c", "b", join=True),
        )
        recording = simulate(where, Doing())
        check_all(recording, where)
        rows = recording.invocations.filter(stage="b")
        assert rows.filter(outcome="done")["item"].sort().to_list() == [0, 1, 2]
        assert rows.filter(outcome="discarded")["item"].sort().to_list() == [0, 1, 2]
        assert recording.invocations.filter(stage="c")["ready"].to_list() == [rows.filter(outcome="done")["end"].max()]

    def test_competition_does_not_change_which_arm_is_taken(self):
        def taken(copies):
            stages = (stage("a", compete=copies), stage("b", "a", when=0.4), stage("c", "a", "b"))
            functions = {"a": declared(0.5, noise=0.4), "b": 0.1, "c": 0.1}
            recording = simulate(flow(functions, *stages, arrivals=[2.0 * i for i in range(200)]), Doing())
            return set(recording.invocations.filter(stage="b")["request"])

        assert taken(1) == taken(3)
        assert 60 <= len(taken(1)) <= 100  # 80 expected, three standard deviations are 21


def test_copies_have_luck_of_their_own_and_the_first_that_of_a_lone_run():
    def latencies(copies):
        where = flow(declared(1.0, noise=0.4), stage("f", compete=copies), arrivals=[3.0 * i for i in range(300)])
        requests = simulate(where, Doing()).requests
        return (requests["end"] - requests["arrival"]).to_list()

    alone, among_three = latencies(1), latencies(3)
    assert all(three <= one + 1e-9 for one, three in zip(alone, among_three, strict=True))
    # The mean of the least of three standard normals is -0.846: 1 - 0.4 * 0.846.
    assert sum(among_three) / 300 == pytest.approx(0.66, abs=0.05)
    assert sum(alone) / 300 == pytest.approx(1.0, abs=0.07)


LENIENT = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@LENIENT
@given(scenarios(), MAKERS, st.integers(2, 3))
def test_accounts_hold_where_every_stage_competes(where, name, copies):
    check_competing(where, name, copies)


@pytest.mark.slow
@settings(LENIENT, max_examples=200)
@given(scenarios(), MAKERS, st.integers(2, 3))
def test_accounts_hold_where_every_stage_competes_in_many(where, name, copies):
    check_competing(where, name, copies)


def check_competing(where, name, copies):
    flows = {
        key: Workflow(name=key, stages=tuple(msgspec.structs.replace(s, compete=copies) for s in w.stages), slo=w.slo)
        for key, w in where.workflows.items()
    }
    where = replace(where, workflows=flows)
    recording = simulate(where, made(name), seed=1)
    check_capacity(recording, where)
    check_order(recording, where)
    check_accounts(recording)
