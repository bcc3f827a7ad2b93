"""Invocations that a prediction cache answers: requests go on at once, and nothing is run or paid for them."""

import pytest

from fairlead.engine import simulate
from fairlead.engine.core import Controller
from fairlead.engine.core import events as ev
from fairlead.engine.core.effects import Answer, RunBatch
from fairlead.model import Request, Stage, Workflow
from fairlead.policy import Policy, Reject, make_policy
from fairlead.testing import check_accounts, check_capacity, check_order, cluster, declared, prepared, scenario

TWO = scenario({"a": declared(1.0), "b": declared(2.0)}, slo_s=10)


def test_a_share_of_invocations_needs_no_run():
    there = scenario({"a": declared(1.0, hit_rate=0.25)}, arrivals=tuple(range(400)), on=cluster(vcpus=1))
    recording = simulate(there, "fifo")
    outcomes = recording.invocations["outcome"].value_counts().sort("count")
    assert outcomes["outcome"].to_list() == ["cached", "done"]
    assert 60 < outcomes["count"][0] < 140  # 100 expected, with a standard deviation of 9
    latencies = recording.requests["end"] - recording.requests["arrival"]
    assert set(latencies.round(6)) == {0.0, 1.0}
    check_accounts(recording)


@pytest.mark.parametrize("policy", ["fifo", "fairlead"])
def test_when_everything_is_known_nothing_runs(policy):
    there = scenario({"a": declared(1.0, hit_rate=1.0), "b": declared(1.0, hit_rate=1.0)}, arrivals=(0.0, 0.0, 3.0))
    recording = simulate(there, policy)
    assert recording.requests["end"].to_list() == [0.0, 0.0, 3.0]
    assert (recording.invocations.height, recording.requests["cost_usd"].sum()) == (6, 0.0)


def test_the_rest_of_a_request_runs():
    there = scenario({"a": declared(1.0, hit_rate=1.0), "b": declared(2.0)}, arrivals=(5.0,))
    recording = simulate(there, "fifo")
    rows = recording.invocations.select("stage", "ready", "start", "end", "batch", "instance", "outcome").rows()
    assert rows == [("a", 5.0, 5.0, 5.0, -1, -1, "cached"), ("b", 5.0, 5.0, 7.0, 0, 0, "done")]
    check_order(recording, there)
    check_capacity(recording, there)


def test_a_map_is_answered_item_by_item():
    stages = (
        Stage(name="split", function="split"),
        Stage(name="each", function="work", after=("split",), map=(3000, 3000)),
        Stage(name="all", function="split", after=("each",), join=True),
    )
    functions = {"split": declared(1.0), "work": declared(1.0, hit_rate=1.0)}
    recording = simulate(scenario(functions, workflows={"main": Workflow(name="main", stages=stages)}), "fifo")
    assert recording.requests["end"].to_list() == [2.0]
    assert recording.invocations["outcome"].to_list().count("cached") == 3000


class Refusing(Policy):
    """Refuses everything that it is shown."""

    def decide(self, view):
        self.seen = [*getattr(self, "seen", []), *view.changes.ready]
        for request in view.fresh:
            yield Reject(request.id, "no")


def recall_of(*stages):
    return lambda ready: [ev.Recalled(i.request, i.stage, i.item) for i in ready if i.stage in stages]


def test_a_request_that_is_answered_at_once_is_never_shown_to_be_refused():
    policy = Refusing()
    controller = Controller(TWO, policy, recall=recall_of("a", "b"))
    effects = controller.handle(0.0, [ev.Arrived(Request(0, "main", 0.0, 10.0))])
    assert effects == [Answer(0.0, 0, "completed")]
    assert (controller.requests, controller.fresh, getattr(policy, "seen", [])) == ({}, [], [])


def test_a_policy_sees_only_what_is_left_to_do():
    policy = Refusing()
    controller = Controller(TWO, policy, recall=recall_of("a"))
    controller.handle(0.0, [ev.Arrived(Request(0, "main", 0.0, 10.0))])
    assert [invocation.stage for invocation in policy.seen] == ["b"]


def test_what_waits_already_may_be_recalled_later():
    fifo = prepared(make_policy("fifo"), TWO)
    answers = []
    controller = Controller(TWO, fifo, recall=lambda ready: answers.pop() if answers else [])
    arrived = [ev.Arrived(Request(number, "main", 0.0, 10.0)) for number in range(6)]
    effects = controller.handle(0.0, arrived)
    controller.handle(0.0, [ev.InstanceReady(effect.instance) for effect in effects])  # four of six run
    assert len(controller.waiting.tasks) == 2
    answers.append([ev.Recalled(4, "a"), ev.Recalled(5, "a"), ev.Recalled(5, "b")])
    effects = controller.handle(1.0, [ev.Pressure("n0", 0.0)])
    assert Answer(1.0, 5, "completed") in effects
    assert [task[0].stage for task in controller.waiting.tasks.values()] == ["b"]
    assert not any(isinstance(effect, RunBatch) for effect in effects)
    assert controller.stale_events == 0


def test_what_does_not_wait_cannot_be_recalled():
    controller = Controller(TWO, Refusing())
    controller.handle(0.0, [ev.Recalled(7, "a")])
    controller.handle(1.0, [ev.Arrived(Request(0, "main", 1.0, 10.0)), ev.Recalled(0, "b")])
    assert controller.stale_events == 2


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_hit_rate_is_a_share(rate):
    with pytest.raises(ValueError, match="hit_rate must be in"):
        declared(1.0, hit_rate=rate)
