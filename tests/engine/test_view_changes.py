"""What the view tells besides what waits: changes, rankings by deadline, batches that run, counts, room beside."""

from math import inf

import pytest
from toy_policies import Doing, start_oldest

from fairlead.engine import simulate
from fairlead.errors import UnknownNameError
from fairlead.model import SLO, Configuration, Workflow
from fairlead.policy import Cancel, Reject, Start, Wake, Warm
from fairlead.testing import cluster, declared, scenario, view_of
from fairlead.workload import Listed, NodeFault

ONE = Configuration()


def watch(where, read, act=start_oldest):
    """What `read` gave at each call, with its instant, where it gave anything."""
    seen = []

    def deed(view):
        found = read(view)
        if found:
            seen.append((view.now, found))
        yield from act(view)

    simulate(where, Doing(deed))
    return seen


class TestChanges:
    def test_what_began_to_wait_is_shown_once(self):
        where = scenario({"a": 1.0, "b": 2.0}, workflows={"main": ("a", "b")}, arrivals=[0, 0.5], on=cluster(vcpus=1))
        seen = watch(where, lambda view: [(i.request, i.stage) for i in view.changes.ready])
        assert seen == [(0, [(0, "a")]), (0.5, [(1, "a")]), (1, [(0, "b")]), (2, [(1, "b")])]

    def test_what_ended_comes_with_its_outcome_and_batch(self):
        where = scenario({"a": 1.0, "b": 2.0}, workflows={"main": ("a", "b")}, arrivals=[0, 5])
        seen = watch(where, lambda view: [(r.stage, r.end, r.outcome, r.batch) for r in view.changes.ended])
        assert seen == [(1, [("a", 1, "done", 0)]), (5, [("b", 3, "done", 1)]), (6, [("a", 6, "done", 2)])]

    def test_closed_requests_are_shown_at_the_next_call(self):
        def act(view):
            for request in view.fresh:
                if request.id == 1:
                    yield Reject(1, "not today")
            yield from start_oldest(view)

        where = scenario(1.0, arrivals=[0, 2, 4])
        seen = watch(where, lambda view: [(c.request.id, c.outcome, c.end) for c in view.changes.closed], act)
        assert seen == [(2, [(0, "completed", 1)]), (4, [(1, "rejected", 2)])]

    def test_instances_that_start_and_end_are_shown(self):
        where = scenario({"main": declared(1.0, cold_start_s=2, keep_alive_s=3)}, arrivals=[0, 2.5, 10])
        seen = watch(
            where,
            lambda view: (
                [i.id for i in view.changes.started] + [(s.instance.id, s.cause) for s in view.changes.stopped]
            ),
        )
        assert seen == [(2.5, [0]), (10, [1, (0, "expired"), (1, "expired")])]

    def test_a_node_that_goes_and_comes_back_is_shown(self):
        where = scenario(4.0, node_faults=(NodeFault(node="n0", at_s=1, back_s=2),))
        seen = watch(where, lambda view: [(n.node.name, n.what) for n in view.changes.nodes])
        assert seen == [(1, [("n0", "lost")]), (3, [("n0", "joined")])]

    def test_lost_and_cancelled_work_is_among_what_became_ready_and_ended(self):
        def act(view):
            for batch in view.running():
                yield Cancel(batch.invocations[0].id)
            if view.now == 0:
                yield from start_oldest(view)
                yield Wake(1.0)
            elif view.now == 1:
                yield Wake(1.5)
            else:
                yield from start_oldest(view)

        seen = watch(
            scenario(4.0),
            lambda view: ([i.attempt for i in view.changes.ready], [r.outcome for r in view.changes.ended]),
            act,
        )
        assert seen == [(0, ([1], [])), (1, ([], [])), (1.5, ([1], ["preempted"]))]

    def test_changes_stay_the_same_during_a_call(self):
        def act(view):
            before = view.changes
            yield from start_oldest(view)
            assert view.changes is before

        watch(scenario(1.0, arrivals=[0, 0.5]), lambda view: None, act)


class TestByDeadline:
    def where(self):
        return scenario(
            {"f": 1.0, "g": 1.0},
            workflows={
                "loose": Workflow.chain("loose", "f", slo=SLO(latency_s=9)),
                "tight": Workflow.chain("tight", "f", "g", slo=SLO(latency_s=3)),
            },
            arrivals=[Listed("loose", (0.0,)), Listed("tight", (1.0, 2.0))],
        )

    def test_a_function_is_ranked_over_all_workflows(self):
        seen = []

        def deed(view):
            seen.append([i.deadline for i in view.by_deadline(function="f")])
            seen.append([i.deadline for i in view.by_deadline("loose", "f")])
            return iter(())

        simulate(self.where(), Doing(deed))
        assert seen[-2:] == [[4, 5, 9], [9]]

    def test_the_most_urgent_is_the_first(self):
        found = []

        def deed(view):
            if view.now == 2:
                found.append((view.most_urgent().deadline, view.most_urgent("loose").deadline))
                found.append(view.most_urgent(function="g"))
            return iter(())

        simulate(self.where(), Doing(deed))
        assert found == [(4, 9), None]

    def test_an_unknown_name_is_an_error(self):
        with pytest.raises(UnknownNameError, match="function"):
            view_of(1.0).by_deadline(function="nothing")

    def test_rankings_follow_what_starts_while_they_are_walked(self):
        orders = []

        def deed(view):
            order = []
            for invocation in view.by_deadline(function="f"):
                order.append(invocation.deadline)
                node = view.place("f", ONE)
                if node is not None:
                    yield Start((invocation,), ONE, node)
            orders.append(order)

        simulate(scenario(1.0, slo_s=5, arrivals=[0, 0, 0], on=cluster(vcpus=2)), Doing(deed))
        assert orders[:2] == [[5, 5, 5], [5]]


class TestRunning:
    def test_batches_are_shown_with_their_predicted_end(self):
        def read(view):
            return [(b.id, b.function, len(b.invocations), b.start, b.end) for b in view.running(function="main")]

        where = scenario({"main": declared(4.0, cold_start_s=2)}, arrivals=[0, 1])
        assert watch(where, read) == [(1, [(0, "main", 1, 0, 6)])]

    def test_what_was_spent_is_known_while_a_request_is_open(self):
        spent = watch(
            scenario({"a": 3.0, "b": 1.0}, workflows={"main": ("a", "b")}),
            lambda view: [view.spent_usd(i.request) for i in view.changes.ready],
        )
        recording = simulate(scenario({"a": 3.0, "b": 1.0}, workflows={"main": ("a", "b")}))
        cost = dict(recording.invocations.select("stage", "cost_usd").rows())
        assert spent == [(0, [0]), (3, [cost["a"]])]


class TestCounts:
    def test_instances_are_counted_by_state(self):
        def act(view):
            if view.now == 0:
                yield Warm("main", ONE, "n0")
                yield Wake(1.0)
            elif view.now == 1:
                yield Wake(3.0)
            elif view.now == 3:
                yield from start_oldest(view)
                yield Wake(3.5)

        where = scenario({"main": declared(2.0, cold_start_s=2)}, on=cluster(vcpus=2))
        seen = watch(
            where, lambda view: [(c.vgpus, c.ready, c.idle, c.starting, c.ready_at) for c in view.counts("main")], act
        )
        assert seen == [
            (1, [(0, 0, 0, 1, 2)]),
            (2, [(0, 1, 1, 0, inf)]),
            (3, [(0, 1, 1, 0, inf)]),
            (3.5, [(0, 1, 0, 0, inf)]),
        ]


class TestRoomBeside:
    """One node with two vCPUs; an idle instance of `kept` holds one of them."""

    def look(self, vcpus):
        found = []
        size = Configuration(vcpus=vcpus)

        def deed(view):
            if view.now == 5:
                found.append((view.place("other", size), view.place("other", size, evicts=False)))
                found.append(view.fits("other", size, "n0", evicts=False))
                found.append(view.place("kept", ONE, evicts=False))
            else:
                yield from start_oldest(view)

        functions = {
            "kept": declared(1.0, cold_start_s=1, idle_holds="slice"),
            "other": declared(1.0, cold_start_s=1, configurations=(size,)),
        }
        where = scenario(
            functions,
            workflows={"kept": ("kept",), "other": ("other",)},
            arrivals=[Listed("kept", (0.0,)), Listed("other", (5.0,))],
            on=cluster(vcpus=2),
        )
        simulate(where, Doing(deed))
        return found

    def test_what_needs_the_held_room_fits_only_by_eviction(self):
        assert self.look(2) == [("n0", None), False, "n0"]

    def test_what_fits_beside_the_idle_instance_needs_no_eviction(self):
        assert self.look(1) == [("n0", "n0"), True, "n0"]
