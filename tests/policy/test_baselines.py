"""The baselines: who goes first, where, and in what configuration."""

import pytest

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy import Reject, Start, make_policy
from fairlead.policy.earliest_deadline import EarliestDeadline
from fairlead.policy.fifo import Fifo
from fairlead.policy.least_loaded import LeastLoaded
from fairlead.profile import Row, Table
from fairlead.testing import Waits, cluster, decisions, declared, prepared, scenario, view_of

SMALL, LARGE = Configuration(vcpus=1), Configuration(vcpus=4)
RESIZE = scenario({"f": declared(Table((Row(vcpus=1, seconds=2.0), Row(vcpus=4, seconds=1.0))))})


def started(actions):
    return [action.batch[0].request for action in actions if isinstance(action, Start)]


class TestEarliestDeadline:
    def test_most_urgent_goes_first(self):
        first, *_ = prepared(EarliestDeadline()).decide(view_of(9.0, 3.0))
        assert first.batch[0].deadline == 3.0

    @pytest.mark.parametrize(
        ("deadline", "expected"),
        [(10.0, SMALL), (1.5, LARGE), (0.1, LARGE)],
        ids=["loose-takes-cheapest", "tight-pays-for-speed", "late-takes-fastest"],
    )
    def test_configuration_follows_the_deadline(self, deadline, expected):
        (start,) = decisions(EarliestDeadline(drop_late=False), deadline, scenario=RESIZE)
        assert start.configuration == expected

    def test_what_cannot_be_saved_is_given_up(self):
        (action,) = decisions(EarliestDeadline(), 0.1, scenario=RESIZE)
        assert isinstance(action, Reject)

    def test_time_for_later_stages_is_set_aside(self):
        chain = scenario({"a": 1.0, "b": 3.0})
        assert isinstance(decisions(EarliestDeadline(), 3.5, scenario=chain)[0], Reject)
        assert isinstance(decisions(EarliestDeadline(), 4.5, scenario=chain)[0], Start)

    def test_headroom_makes_it_pay_earlier(self):
        (tight,) = decisions(EarliestDeadline(headroom=0.5), 3.0, scenario=RESIZE)
        (loose,) = decisions(EarliestDeadline(headroom=0.0), 3.0, scenario=RESIZE)
        assert (tight.configuration, loose.configuration) == (LARGE, SMALL)

    def test_ties_go_to_the_one_that_came_first(self):
        assert started(decisions(EarliestDeadline(), 5.0, 5.0, 5.0)) == [0, 1, 2]

    @pytest.mark.parametrize("headroom", [-0.1, 1.0])
    def test_headroom_has_a_range(self, headroom):
        with pytest.raises(ValueError, match="headroom"):
            EarliestDeadline(headroom=headroom)


class TestFifo:
    def test_oldest_goes_first_whatever_its_deadline(self):
        assert started(decisions(Fifo(), 9.0, 3.0, 6.0)) == [0, 1, 2]

    def test_nobody_overtakes_one_that_does_not_fit(self):
        two = scenario(
            {"wide": declared(Table((Row(vcpus=4, seconds=1.0),))), "thin": 1.0},
            workflows={"main": ("wide",), "other": ("thin",)},
        )
        waiting = (Waits(workflow="other"), Waits(), Waits(workflow="other"))
        assert started(decisions(Fifo(), *waiting, scenario=two)) == [0]

    def test_cheapest_single_configuration_is_used(self):
        (start,) = decisions(Fifo(), 0.1, scenario=RESIZE)
        assert start.configuration == SMALL

    def test_without_a_limit_nothing_is_rejected(self):
        assert not any(isinstance(action, Reject) for action in decisions(Fifo(), *[9.0] * 50))

    def test_queue_limit_rejects_the_last_to_come(self):
        actions = decisions(Fifo(queue_limit=1), *[9.0] * 7)  # four vCPUs, one may wait
        assert started(actions) == [0, 1, 2, 3]
        assert sorted(a.request for a in actions if isinstance(a, Reject)) == [5, 6]

    def test_queue_limit_of_zero_is_a_loss_system(self):
        recording = simulate(scenario(1.0, arrivals=[0, 0.5, 1.0, 1.5], on=cluster(vcpus=1)), Fifo(queue_limit=0))
        outcomes = dict(zip(recording.requests["request"], recording.requests["outcome"], strict=True))
        assert outcomes == {0: "completed", 1: "rejected", 2: "completed", 3: "rejected"}

    def test_queue_limit_must_not_be_negative(self):
        with pytest.raises(ValueError, match="queue_limit"):
            Fifo(queue_limit=-1)


class TestLeastLoaded:
    def test_load_is_spread_over_the_emptiest(self):
        on = scenario(1.0, on=cluster(3, vcpus=2))
        assert [a.node for a in decisions(LeastLoaded(), *[9.0] * 6, scenario=on)] == ["n0", "n1", "n2"] * 2

    def test_a_queue_that_cannot_start_does_not_hold_up_others(self):
        two = scenario(
            {"wide": declared(Table((Row(vcpus=3, seconds=1.0),))), "thin": 1.0},
            workflows={"main": ("wide",), "other": ("thin",)},
        )
        waiting = (Waits(), Waits(), Waits(workflow="other"))
        assert started(decisions(LeastLoaded(), *waiting, scenario=two)) == [0, 2]

    def test_emptiest_wins_over_warm(self):
        on = scenario(declared(1.0, cold_start_s=0.5), arrivals=[0, 10.0, 10.1], on=cluster(2, vcpus=2))
        assert simulate(on, "least-loaded").invocations["node"].to_list() == ["n0", "n0", "n1"]
        assert simulate(on, "fifo").invocations["is_cold"].to_list() == [True, False, True]


def test_baselines_are_what_their_names_make():
    kinds = [type(make_policy(name)) for name in ("earliest-deadline", "fifo", "least-loaded")]
    assert kinds == [EarliestDeadline, Fifo, LeastLoaded]
