"""How a request goes through its workflow: forks, branches, maps, failures, and giving up."""

import pytest
from toy_policies import Doing, start_oldest

from fairlead.engine import simulate
from fairlead.model import Stage, Workflow
from fairlead.policy import Plan, Reject
from fairlead.testing import check_accounts, check_order, cluster, declared, scenario
from fairlead.workload import Listed, NodeFault


def flow(functions, *stages, **settings):
    workflows = {"main": Workflow(name="main", stages=stages)}
    settings.setdefault("on", cluster(vcpus=16))
    return scenario(functions, workflows=workflows, **settings)


def stage(name, *after, **more):
    return Stage(name=name, function=more.pop("function", name), after=after, **more)


def runs(recording, *columns):
    return sorted(recording.invocations.select(columns).rows())


def test_join_of_a_fork_waits_for_the_slower_side():
    functions = {"a": 1.0, "b": 2.0, "c": 5.0, "d": 1.0}
    where = flow(functions, stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c"))
    recording = simulate(where)
    assert runs(recording, "stage", "ready", "end") == [("a", 0, 1), ("b", 1, 3), ("c", 1, 6), ("d", 6, 7)]
    assert recording.requests["end"].to_list() == [7]
    check_order(recording, where)


def test_request_ends_with_the_last_of_several_ends():
    where = flow({"a": 1.0, "b": 2.0, "c": 5.0}, stage("a"), stage("b", "a"), stage("c", "a"))
    assert simulate(where).requests["end"].to_list() == [6]


def test_workflows_share_functions_and_their_instances():
    where = scenario(
        {"f": declared(1.0, cold_start_s=1)},
        workflows={"main": ("f",), "other": ("f",)},
        arrivals=[0, Listed("other", (5.0,))],
    )
    recording = simulate(where)
    assert runs(recording, "workflow", "is_cold") == [("main", True), ("other", False)]


class TestBranch:
    STAGES = (stage("a"), stage("b", "a", when=0.3), stage("c", "a", when=0.5), stage("d", "c"), stage("e", "b", "d"))
    FUNCTIONS = dict.fromkeys("abcde", 0.001)

    def shares(self, count=4000):
        where = flow(self.FUNCTIONS, *self.STAGES, arrivals=[0.1 * i for i in range(count)])
        recording = simulate(where)
        check_order(recording, where)
        taken = {}
        for request, name in recording.invocations.select("request", "stage").rows():
            taken.setdefault(request, set()).add(name)
        assert set(recording.requests["outcome"]) == {"completed"}
        return [frozenset(names) for names in taken.values()]

    def test_one_arm_is_taken_or_none(self):
        paths = self.shares(4000)
        # Without an arm, nothing leads to e: it is skipped with the arms.
        assert set(paths) == {frozenset("abe"), frozenset("acde"), frozenset("a")}
        share = {len(path): paths.count(path) / len(paths) for path in set(paths)}
        # Three standard errors of a share of 0.5 in 4000 are 0.024.
        assert share[3] == pytest.approx(0.3, abs=0.024)
        assert share[4] == pytest.approx(0.5, abs=0.024)
        assert share[1] == pytest.approx(0.2, abs=0.024)

    def test_untaken_arms_count_as_done(self):
        where = flow(
            {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0},
            stage("a"),
            stage("b", "a", when=1.0),
            stage("c", "a", when=0.0),
            stage("d", "b", "c"),
        )
        recording = simulate(where)
        assert [name for name, _ in runs(recording, "stage", "end")] == ["a", "b", "d"]
        assert recording.requests["end"].to_list() == [3]

    def test_plain_successor_runs_beside_the_arms(self):
        where = flow(dict.fromkeys("abc", 1.0), stage("a"), stage("b", "a", when=0.0), stage("c", "a"))
        assert [name for (name,) in runs(simulate(where), "stage")] == ["a", "c"]

    def test_every_policy_meets_the_same_branches(self):
        where = flow(self.FUNCTIONS, *self.STAGES, arrivals=[0.1 * i for i in range(50)], on=cluster(vcpus=2))
        paths = [runs(simulate(where, name), "request", "stage") for name in ("fifo", "least-loaded")]
        assert paths[0] == paths[1]


class TestMap:
    def test_map_runs_once_per_item_and_join_waits_for_all(self):
        where = flow(
            {"a": 1.0, "b": 2.0, "c": 1.0}, stage("a"), stage("b", "a", map=(3, 3)), stage("c", "b", join=True)
        )
        recording = simulate(where, Doing())
        assert runs(recording, "stage", "item", "ready", "end") == [
            ("a", 0, 0, 1),
            ("b", 0, 1, 3),
            ("b", 1, 1, 3),
            ("b", 2, 1, 3),
            ("c", 0, 3, 4),
        ]
        check_order(recording, where)

    def test_join_waits_for_the_last_item_on_a_narrow_machine(self):
        where = flow(
            {"a": 1.0, "b": 2.0, "c": 1.0},
            stage("a"),
            stage("b", "a", map=(3, 3)),
            stage("c", "b", join=True),
            on=cluster(vcpus=1),
        )
        assert simulate(where).requests["end"].to_list() == [8]

    def test_stages_after_a_map_run_item_by_item(self):
        where = flow(
            {"a": 1.0, "b": 1.0},
            stage("each", function="a", map=(2, 2)),
            stage("then", "each", function="b"),
            stage("all", "then", function="a", join=True),
            on=cluster(vcpus=1),
        )
        recording = simulate(where)
        assert runs(recording, "end", "stage", "item") == [
            (1, "each", 0),
            (2, "each", 1),
            (3, "then", 0),
            (4, "then", 1),
            (5, "all", 0),
        ]

    def test_numbers_of_items_lie_in_their_range_and_all_occur(self):
        where = flow(
            dict.fromkeys("abc", 0.001),
            stage("a"),
            stage("b", "a", map=(2, 4)),
            stage("c", "b", join=True),
            arrivals=[0.1 * i for i in range(300)],
        )
        recording = simulate(where)
        check_order(recording, where)
        counts = recording.invocations.filter(recording.invocations["stage"] == "b")["request"].value_counts()["count"]
        assert set(counts) == {2, 3, 4}

    def test_branch_inside_a_map_is_taken_per_item(self):
        where = flow(
            dict.fromkeys("abcd", 0.001),
            stage("a"),
            stage("b", "a", map=(20, 20)),
            stage("c", "b", when=0.5),
            stage("d", "b", "c", join=True),
        )
        recording = simulate(where)
        check_order(recording, where)
        count = recording.invocations.filter(recording.invocations["stage"] == "c").height
        assert 3 <= count <= 17  # of 20 items, half each; outside with a chance of 4 in 10 000


class TestFailure:
    def test_failed_run_is_tried_again_after_the_delay(self):
        where = scenario(declared(1.0, failure_rate=1.0, retries=2), retry_delay_s=0.5)
        recording = simulate(where)
        assert runs(recording, "attempt", "ready", "start", "end", "outcome") == [
            (1, 0, 0, 1, "failed"),
            (2, 1.5, 1.5, 2.5, "failed"),
            (3, 3, 3, 4, "failed"),
        ]
        assert recording.requests.select("end", "outcome").rows() == [(4, "failed")]

    def test_each_attempt_has_a_chance_of_its_own(self):
        where = scenario(declared(0.001, failure_rate=0.5, retries=19), arrivals=[0.1 * i for i in range(1000)])
        recording = simulate(where)
        assert set(recording.requests["outcome"]) == {"completed"}  # one would fail with a chance of 1 in a million
        share = sum(outcome == "failed" for outcome in recording.invocations["outcome"]) / recording.invocations.height
        assert share == pytest.approx(0.5, abs=0.035)  # three standard errors of 2000 attempts

    def test_failure_ends_the_request_and_discards_its_siblings(self):
        where = flow(
            {"a": 1.0, "bad": declared(1.0, failure_rate=1.0), "slow": 5.0, "end": 1.0},
            stage("a"),
            stage("bad", "a"),
            stage("slow", "a"),
            stage("end", "bad", "slow"),
        )
        recording = simulate(where)
        assert recording.requests.select("end", "outcome").rows() == [(2, "failed")]
        assert runs(recording, "stage", "end", "outcome") == [
            ("a", 1, "done"),
            ("bad", 2, "failed"),
            ("slow", 6, "discarded"),
        ]
        check_accounts(recording)


class TestNodeLoss:
    def test_lost_work_waits_again_and_is_shown(self):
        lost = []

        def deed(view):
            lost.extend((view.now, i.request, i.attempt) for i in view.lost)
            yield from start_oldest(view)

        where = scenario(4.0, node_faults=(NodeFault(node="n0", at_s=1, back_s=2),))
        recording = simulate(where, Doing(deed))
        assert runs(recording, "attempt", "ready", "start", "end", "outcome") == [
            (1, 0, 0, 1, "lost"),
            (2, 1, 3, 7, "done"),
        ]
        assert lost == [(1, 0, 2)]
        assert recording.requests.select("end", "outcome").rows() == [(7, "completed")]
        assert recording.instances.sort("instance").select("stopped", "cause").rows() == [(1, "lost"), (None, None)]

    def test_lost_work_fails_where_that_is_the_setting(self):
        where = scenario(4.0, node_faults=(NodeFault(node="n0", at_s=1),), on_loss="fail")
        recording = simulate(where)
        assert recording.requests.select("end", "outcome", "reason").rows() == [(1, "failed", "node n0 was lost")]

    def test_attempts_are_counted(self):
        faults = tuple(NodeFault(node="n0", at_s=at, back_s=0.5) for at in (1, 3, 5, 7))
        recording = simulate(scenario(4.0, node_faults=faults, max_attempts=3))
        assert recording.invocations["outcome"].to_list() == ["lost"] * 3
        assert recording.requests.select("end", "outcome").rows() == [(5, "failed")]

    def test_warm_instances_are_lost_too(self):
        where = scenario(
            declared(1.0, cold_start_s=1), arrivals=[0, 5.0], node_faults=(NodeFault(node="n0", at_s=3, back_s=1),)
        )
        assert simulate(where).invocations["is_cold"].to_list() == [True, True]

    def test_with_no_node_left_requests_stay_unfinished(self):
        recording = simulate(scenario(4.0, node_faults=(NodeFault(node="n0", at_s=1),)))
        assert recording.requests.select("end", "outcome").rows() == [(None, "unfinished")]

    def test_another_node_takes_over(self):
        where = scenario(4.0, node_faults=(NodeFault(node="n0", at_s=1),), on=cluster(2))
        assert runs(simulate(where), "attempt", "node", "end") == [(1, "n0", 1), (2, "n1", 5)]


class TestGivingUp:
    FORK = (stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c"))

    def test_fresh_request_is_rejected_with_advice(self):
        def deed(view):
            for request in view.fresh:
                yield Reject(request.id, "not today", retry_after_s=7)

        recording = simulate(scenario(1.0, arrivals=[2.0]), Doing(deed))
        columns = ("end", "outcome", "reason", "retry_after_s")
        assert recording.requests.select(columns).rows() == [(2, "rejected", "not today", 7)]
        assert recording.invocations.height == 0

    def test_drop_discards_what_runs_and_forgets_what_waits(self):
        def deed(view):
            if view.now == 1.0 and view.waiting() == 1:
                yield Reject(0, "too late")
            else:
                yield from start_oldest(view)

        where = flow({"a": 1.0, "b": 5.0, "c": 5.0, "d": 1.0}, *self.FORK, on=cluster(vcpus=1))
        recording = simulate(where, Doing(deed))
        assert recording.requests.select("end", "outcome").rows() == [(1, "dropped")]
        assert runs(recording, "stage", "end", "outcome") == [("a", 1, "done"), ("b", 6, "discarded")]
        check_accounts(recording)

    def test_promise_is_recorded(self):
        def deed(view):
            for request in view.fresh:
                yield Plan(request.id, ("f on n0",), view.now + 1)
            yield from start_oldest(view)

        assert simulate(scenario(1.0, arrivals=[2.0]), Doing(deed)).requests["promised"].to_list() == [3]

    def test_a_request_ends_once(self):
        def deed(view):
            yield Reject(0, "no")
            yield Reject(0, "no, really")

        recording = simulate(scenario(1.0), Doing(deed))
        assert recording.requests.height == 1
        assert recording.refusals[0].reason == "request 0 is not open"
