"""The builders of `fairlead.testing`: small worlds from few words."""

from math import inf

import pytest
from toy_policies import Doing, yielding

from fairlead.model import Configuration, Device
from fairlead.policy import Start, Wake
from fairlead.testing import Waits, check_frozen, cluster, decisions, declared, scenario, site_of, view_of
from fairlead.workload import Listed, Poisson


def test_smallest_scenario_is_one_request_for_one_second():
    small = scenario()
    assert list(small.functions) == ["f"]
    assert small.arrivals == (Listed("main", (0.0,)),)
    assert small.cluster.nodes[0].vcpus == 4


def test_functions_are_chained_unless_told_otherwise():
    assert scenario({"a": 1.0, "b": 2.0}).workflows["main"].functions == ("a", "b")
    assert list(scenario({"a": 1.0, "b": 2.0}, workflows={"x": ("b",)}).workflows) == ["x"]


def test_settings_go_where_they_belong():
    made = scenario(declared(1.0, memory_gb=2, cold_start_s=3), retry_delay_s=4.0)
    assert (made.functions["f"].memory_gb, made.profiles["f"].cold_start_s, made.retry_delay_s) == (2, 3, 4)


def test_arrivals_are_instants_processes_or_both():
    made = scenario(1.0, arrivals=[2, Poisson("main", 1.0), 1])
    assert made.arrivals == (Listed("main", (2.0, 1.0)), Poisson("main", 1.0))


def test_clusters_of_several_kinds():
    made = cluster(2, kind="gpu", vgpus=7, devices=2, sharing="mig", beside=cluster())
    assert [(node.name, node.kind, len(node.devices)) for node in made.nodes] == [
        ("n0", "plain", 0),
        ("n1", "gpu", 2),
        ("n2", "gpu", 2),
    ]
    assert made.nodes[1].devices[0] == Device(vgpus=7, sharing="mig")


class TestView:
    def test_what_was_asked_for_waits(self):
        view = view_of(9.0, 3.0)
        assert [i.deadline for i in view.by_ready()] == [9.0, 3.0]
        assert [i.deadline for i in view.by_deadline()] == [3.0, 9.0]
        assert view.waiting() == 2
        assert view.now == 0.0

    def test_requests_of_the_last_instant_are_fresh(self):
        view = view_of(Waits(), Waits(at=2.0), Waits(at=2.0))
        assert [request.id for request in view.fresh] == [1, 2]
        assert view.now == 2.0

    def test_later_nothing_is_fresh(self):
        view = view_of(Waits(deadline=9.0), now=4.0)
        assert view.fresh == ()
        assert view.slack_s(view.oldest()) == 5.0

    def test_workflows_and_functions(self):
        two = scenario({"a": 1.0, "b": 1.0}, workflows={"main": ("a",), "other": ("b",)})
        view = view_of(Waits(), Waits(workflow="other"), Waits(workflow="other"), scenario=two)
        assert view.queues() == (("main", "a"), ("other", "b"))
        assert view.waiting("other", "b") == 2

    def test_nothing_waits_in_an_empty_view(self):
        assert view_of().oldest() is None

    def test_it_is_a_real_view(self):
        check_frozen(view_of(9.0, 3.0), scenario())
        assert view_of(1.0).fits("f", Configuration(), "n0")

    def test_arrivals_after_now_are_a_mistake(self):
        with pytest.raises(ValueError, match="after now"):
            view_of(Waits(at=5.0), now=1.0)


class TestDecisions:
    def test_actions_are_carried_out_as_they_come(self):
        actions = decisions(Doing(), *[inf] * 6)  # on four vCPUs
        assert [type(action) for action in actions] == [Start] * 4

    def test_refused_action_is_an_error_with_its_reason(self):
        with pytest.raises(AssertionError, match="in the future"):
            decisions(Doing(yielding(Wake(-1.0))), 9.0)

    def test_policy_is_asked_once_at_the_last_instant(self):
        policy = Doing()
        decisions(policy, Waits(), Waits(at=1.0), Waits(at=1.0), now=3.0)
        assert policy.asked == [3.0]


def test_site_tells_what_a_run_would():
    site = site_of(scenario({"a": 1.0, "b": 2.0}))
    assert list(site.functions) == ["a", "b"]
    assert site.profiles["b"].latency_s(Configuration()) == 2.0
    assert site.arrivals is None
