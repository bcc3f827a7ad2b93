"""Hpa: how many replicas a utilisation asks for, up at once and down after a while."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaler_traces import asked, at_once

from fairlead.engine import simulate
from fairlead.policy import Scale
from fairlead.policy.hpa import Hpa
from fairlead.testing import SCENARIOS, check_accounts, check_scaler, cluster, declared, prepared, scenario, view_of
from fairlead.workload import Deterministic


class TestUp:
    def test_all_busy_asks_for_a_quarter_more(self):
        # 1 / 0.8 = 1.25, so 2; 2.5, so 3; 3.75; 5; 6.25; 8.75; 11.25.
        assert at_once(Hpa(), [100] * 8, every_s=15) == [1, 2, 3, 4, 5, 7, 9, 12]

    def test_at_most_four_more_or_twice_as_many(self):
        # Ten times as many are wanted each time.
        assert at_once(Hpa(target=0.1), [1000] * 6, every_s=15) == [1, 5, 10, 20, 40, 80]

    def test_the_limits_may_be_set(self):
        slow = Hpa(target=0.1, scale_up_replicas=1, scale_up_share=0.5)
        assert at_once(slow, [1000] * 6, every_s=15) == [1, 2, 3, 5, 8, 12]

    def test_what_has_not_started_is_taken_for_idle(self):
        # Two of four have started and work: of four, half work, which is no reason for more.
        assert asked(Hpa(initial=4), [(0, 0, 0), (2, 2, 9), (4, 4, 9)], every_s=15) == [4, None, 5]

    def test_more_are_asked_for_where_even_those_will_not_do(self):
        # Three at work of four, where two should be: 4 x 3 / 2.
        assert asked(Hpa(initial=4, target=0.5), [(0, 0, 0), (3, 3, 9)], every_s=15) == [4, 6]

    def test_nothing_is_done_where_nothing_was_measured(self):
        assert asked(Hpa(), [(0, 0, 0), (0, 0, 50), (0, 0, 50)], every_s=15) == [1, None, None]


class TestTolerance:
    @pytest.mark.parametrize(
        ("busy", "expected"),
        [
            ((80, 70, 90), None),  # 240 of 300, as wanted
            ((88, 88, 88), None),  # 1.1 times as much, which is still tolerated
            ((88, 89, 89), 111),  # 266 / 240 x 100 = 110.8
            ((72, 72, 72), None),
            ((71, 72, 72), 90),  # 215 / 240 x 100 = 89.6
        ],
        ids=["on-target", "a-tenth-more", "more", "a-tenth-less", "less"],
    )
    def test_utilisation_is_averaged_over_the_samples_since(self, busy, expected):
        seen = [(0, 0, 0), *[(some, 100, 0) for some in busy]]
        assert asked(Hpa(initial=100, stabilisation_s=0), seen, every_s=5) == [100, None, None, expected]

    def test_a_busier_sample_before_the_last_decision_is_forgotten(self):
        seen = [(0, 0, 0), (10, 10, 0), (8, 10, 0)]
        assert asked(Hpa(initial=10), seen, every_s=15) == [10, 13, None]


class TestDown:
    def test_highest_number_wanted_in_the_window_is_kept(self):
        # What was wanted at 15 s counts up to 315 s.
        found = asked(Hpa(initial=10), [(0, 10, 0)] * 23, every_s=15)
        assert found == [10, *[None] * 20, 1, None]

    def test_a_blip_in_the_window_is_remembered(self):
        # With 10 replicas: 4 at work want 5, from 30 s; at 60 s, 6 want 8. At 330 s the first 10 is forgotten, at
        # 375 s the 8.
        seen = [(0, 10, 0), *[(4, 10, 0)] * 2, (6, 10, 0), *[(4, 10, 0)] * 17, (4, 10, 0), (3, 8, 0), (3, 8, 0)]
        found = asked(Hpa(initial=10), [*seen, (3, 8, 0)], every_s=15)
        assert found == [10, *[None] * 20, 8, None, None, 5]

    def test_without_a_window_it_goes_down_at_once_and_without_limit(self):
        assert at_once(Hpa(initial=100, stabilisation_s=0), [0, 0, 0], every_s=15) == [100, 1, 1]

    def test_up_is_not_delayed_by_the_window(self):
        assert at_once(Hpa(initial=8), [0, 0, 0, 8], every_s=15) == [8, 8, 8, 10]


class TestPeriod:
    def test_decides_no_more_often_than_its_period(self):
        # At 2 s; 15 s later is between two control periods, so at 18 s; then at 34 s.
        found = asked(Hpa(), [(2, 2, 0)] * 20, every_s=2)
        assert [2 * (i + 1) for i, many in enumerate(found) if many is not None] == [2, 18, 34]

    def test_decides_at_every_control_period_that_is_longer(self):
        assert at_once(Hpa(), [9] * 4, every_s=60) == [1, 2, 3, 4]


class TestBounds:
    def test_replicas_stay_between_their_bounds(self):
        bounded = Hpa(min_replicas=2, max_replicas=3, stabilisation_s=0)
        assert at_once(bounded, [9, 9, 9, 9, 0, 0], every_s=15) == [2, 3, 3, 3, 2, 2]

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(0, 60), min_size=1, max_size=60), st.integers(1, 3), st.integers(3, 40))
    def test_bounds_and_limits_hold_whatever_comes(self, demands, least, most):
        found = at_once(Hpa(min_replicas=least, max_replicas=most, stabilisation_s=45), demands, every_s=15)
        assert all(least <= many <= most for many in found)
        assert all(after <= max(before + 4, 2 * before) for before, after in pairwise(found))

    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 200))
    def test_a_steady_load_is_carried_near_the_target(self, load):
        replicas = at_once(Hpa(), [load] * 60, every_s=15)[-1]
        # All work is done, and the ratio is within the tolerance or the next smaller number would be too few.
        assert replicas >= load
        assert load / (replicas * 0.8) > 0.9 or replicas - 1 < load / 0.8


def test_first_control_period_scales_every_function_in_order():
    where = scenario({"b": 1.0, "a": 1.0})
    assert list(prepared(Hpa(), where).adjust(view_of(scenario=where))) == [Scale("b", 1), Scale("a", 1)]


def test_a_step_of_load_is_carried():
    # 4 per second, each a second: 4 at work, which are 0.8 of 5. Control periods seldom meet the end of a run.
    where = scenario(
        declared(1.0, cold_start_s=0.5),
        arrivals=[Deterministic("main", 0.25)],
        on=cluster(4),
        control_period_s=3.13,
        duration_s=1200.0,
    )
    recording = simulate(where, "fifo", scaler="hpa")
    check_accounts(recording)
    assert not recording.refusals
    alive = recording.instances["stopped"].is_null() | (recording.instances["stopped"] > 1200)
    assert alive.sum() == 5
    late = recording.invocations.filter(recording.invocations["ready"] > 1000)
    assert (late["start"] == late["ready"]).all()


def test_a_cluster_that_is_too_small_is_not_asked_for_ever_more():
    # 2 vCPUs for 8 at once: what cannot start is taken for idle, so that no more are asked for.
    where = scenario(
        declared(1.0),
        arrivals=[Deterministic("main", 0.125)],
        on=cluster(vcpus=2),
        control_period_s=3.13,
        duration_s=300.0,
    )
    policy = Hpa()
    recording = simulate(where, "fifo", scaler=policy)
    assert recording.instances.filter(recording.instances["stopped"].is_null()).height == 2
    assert policy._loads[0].replicas == 3


def test_it_conforms_with_other_parameters():
    some = {name: SCENARIOS[name] for name in ("chain", "tight-memory", "gpu-mps")}
    check_scaler(lambda: Hpa(period_s=2.0, stabilisation_s=4.0), some)


@pytest.mark.parametrize(
    "given_",
    [
        {"target": 0.0},
        {"target": 1.1},
        {"tolerance": 1.0},
        {"period_s": -1.0},
        {"stabilisation_s": float("inf")},
        {"scale_up_replicas": 0},
        {"scale_up_share": -0.1},
        {"initial": -1},
        {"min_replicas": 0},
        {"max_replicas": 0},
    ],
    ids=str,
)
def test_parameters_have_ranges(given_):
    with pytest.raises(ValueError, match=f"^{next(iter(given_))} must"):
        Hpa(**given_)
