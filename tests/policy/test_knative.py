"""Knative: how many replicas a concurrency asks for, when it panics, and when the last one goes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaler_traces import asked, at_once

from fairlead.engine import simulate
from fairlead.policy import Scale
from fairlead.policy.knative import Knative
from fairlead.testing import SCENARIOS, check_accounts, check_scaler, cluster, declared, prepared, scenario, view_of
from fairlead.workload import Deterministic

# Windows of five samples and of one, at a control period of 2 s; nothing but a panic differs from the defaults.
SHORT = {"stable_window_s": 10.0, "panic_window_s": 2.0}


class TestStable:
    def test_average_of_the_window_over_the_target_is_wanted(self):
        # Once the window holds 0, 0, 0, 0, 7: 7 / (5 x 0.7) = 2; then 14, 21, 28 and 35 / 3.5.
        calm = Knative(**SHORT, panic_threshold=100.0)
        assert at_once(calm, [0] * 5 + [7] * 6, every_s=2) == [1] * 5 + [2, 4, 6, 8, 10, 10]

    def test_waiting_and_working_both_count(self):
        only_now = Knative(stable_window_s=2.0, panic_window_s=2.0)
        assert asked(only_now, [(0, 0, 0), (3, 4, 4)], every_s=2) == [1, 10]

    def test_a_busy_replica_counts_as_its_target(self):
        # 2 x 8 in work and 8 that wait, over 8.
        batched = Knative(target=8, utilisation=1.0, stable_window_s=2.0, panic_window_s=2.0)
        assert asked(batched, [(0, 0, 0), (2, 2, 8)], every_s=2) == [1, 3]

    def test_nothing_is_asked_for_twice(self):
        assert asked(Knative(), [(0, 0, 0)] + [(1, 2, 0)] * 4, every_s=2) == [1, None, None, 2, None]

    def test_ready_replicas_are_at_most_halved_at_once(self):
        # 140 over 1.4, 2.1, 2.8 and 3.5; then 70 over 3.5; then nothing.
        calm = Knative(**SHORT, panic_threshold=1000.0)
        assert at_once(calm, [70, 70, 0, 0, 0, 0, 0, 0, 0, 0], every_s=2)[1:] == [100, 67, 50, 40, 20, 10, 5, 2, 1]

    def test_a_slow_start_may_be_asked_for(self):
        assert at_once(Knative(max_scale_up_rate=2.0), [0, 70, 70, 70], every_s=2) == [1, 2, 4, 8]

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 300))
    def test_a_steady_load_gets_what_it_needs(self, load):
        assert at_once(Knative(), [load] * 60, every_s=2)[-1] == -(-10 * load // 7)


class TestPanic:
    def test_a_burst_is_met_at_once(self):
        # The newest sample alone wants 7 / 0.7 = 10, which is more than twice one.
        assert at_once(Knative(**SHORT), [0] * 5 + [7], every_s=2)[-1] == 10

    def test_with_the_published_windows_it_takes_three_samples(self):
        # 7 / 1.4, 14 / 2.1, 21 / 2.1: at 2 s, the panic window of 6 s holds three.
        assert at_once(Knative(), [0, 7, 7, 7, 7], every_s=2) == [1, 5, 7, 10, 10]

    @pytest.mark.parametrize(("load", "expected"), [(3, None), (4, 4)], ids=["below", "at"])
    def test_threshold_is_a_multiple_of_the_ready_replicas(self, load, expected):
        policy = Knative(utilisation=1.0, stable_window_s=20.0, panic_window_s=2.0)
        seen = [(0, 0, 0), *[(0, 2, 0)] * 9, (2, 2, load - 2)]
        assert asked(policy, seen, every_s=2) == [1, *[None] * 9, expected]

    def test_nobody_goes_until_a_stable_window_without_a_reason(self):
        # The burst is at 12 s, so that the panic ends after 22 s, at 24 s. Then 10 are halved until one is left.
        found = at_once(Knative(**SHORT), [0] * 5 + [7] + [0] * 9, every_s=2)
        assert found[5:] == [10, *[10] * 5, 5, 2, 1, 1]

    def test_another_reason_makes_it_longer(self):
        # At 16 s, with 10 ready, 14 / 0.7 = 20 is twice as many: until 26 s, so to 28 s.
        found = at_once(Knative(**SHORT), [0] * 5 + [7, 0, 14] + [0] * 6, every_s=2)
        assert found[5:] == [10, 10, 20, *[20] * 5, 10]

    def test_replicas_that_are_still_starting_are_not_taken_back(self):
        slow = Knative(max_scale_up_rate=5.0)
        assert asked(slow, [(0, 0, 0), (1, 1, 6), (1, 1, 0), (0, 1, 0)], every_s=2) == [1, 5, None, None]

    def test_many_at_the_beginning_are_kept_for_a_window(self):
        # From 2 s to 12 s; then halved; the last one goes after the grace, at 4 + 30 s.
        found = at_once(Knative(initial=4, **SHORT), [0] * 17, every_s=2)
        assert found == [4] * 6 + [2] + [1] * 9 + [0]


class TestZero:
    def test_last_replica_goes_after_an_empty_window_and_the_grace(self):
        # The last sample that is not 0 is of 4 s: the window is first found empty at 14 s.
        policy = Knative(**SHORT, panic_threshold=100.0)
        found = at_once(policy, [0, 1] + [0] * 21, every_s=2)
        assert found.index(0) == 21  # at 44 s

    def test_without_a_grace_it_goes_with_the_window(self):
        policy = Knative(**SHORT, panic_threshold=100.0, grace_s=0.0)
        assert at_once(policy, [0, 1] + [0] * 6, every_s=2).index(0) == 6  # at 14 s

    def test_work_in_the_grace_begins_it_anew(self):
        policy = Knative(**SHORT, panic_threshold=100.0)
        # Empty at 14 s, not at 20 s, empty again at 30 s: gone at 60 s.
        assert at_once(policy, [0, 1] + [0] * 7 + [1] + [0] * 21, every_s=2).index(0) == 29

    def test_from_zero_the_next_control_period_starts_one(self):
        recording = simulate(
            scenario(declared(1.0, cold_start_s=0.5), arrivals=[3.0], control_period_s=2.0, duration_s=10.0),
            "fifo",
            scaler=Knative(initial=0),
        )
        # It waits from 3 s to the control period at 4 s, and then for the cold start.
        assert recording.invocations.select("start", "end").rows() == [(4.5, 5.5)]
        assert recording.instances.height == 1
        assert not recording.refusals

    def test_nobody_is_left_when_nobody_comes(self):
        # Last seen at work at 4 s; the window of 60 s is empty at 64 s, and the grace over at 94 s.
        where = scenario(
            {"f": declared(1.0), "g": 1.0},
            workflows={"main": ("f",), "other": ("g",)},
            arrivals=[3.5, 120.0],
            control_period_s=2.0,
            duration_s=130.0,
        )
        recording = simulate(where, "fifo", scaler="knative")
        first = recording.instances.filter(function="f").sort("instance")
        assert max(stopped for stopped in first["stopped"] if stopped is not None) == 94.0
        assert recording.invocations.sort("start")["start"].to_list() == [3.5, 120.0]


class TestBounds:
    def test_replicas_stay_between_their_bounds(self):
        policy = Knative(**SHORT, min_replicas=3, max_replicas=4)
        assert at_once(policy, [0, 0, 70, 70] + [0] * 40, every_s=2)[1:] == [3, 4, *[4] * 6, *[3] * 35]

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(0, 3), st.integers(3, 20))
    def test_bounds_and_halving_hold_whatever_comes(self, demands, least, most):
        policy = Knative(**SHORT, min_replicas=least, max_replicas=most)
        before = 0
        for after in at_once(policy, demands, every_s=2):
            assert least <= after <= most
            assert after >= before // 2
            before = after


def test_first_control_period_scales_every_function_in_order():
    where = scenario({"b": 1.0, "a": 1.0, "c": 1.0})
    assert list(prepared(Knative(initial=2), where).adjust(view_of(scenario=where))) == [
        Scale("b", 2),
        Scale("a", 2),
        Scale("c", 2),
    ]


def test_a_step_of_load_is_carried():
    # 8 per second, each half a second: 4 at work, for which 4 / 0.7 = 6 replicas are kept.
    where = scenario(
        declared(0.5, cold_start_s=1.0),
        arrivals=[Deterministic("main", 0.125)],
        on=cluster(4),
        control_period_s=2.0,
        duration_s=300.0,
    )
    recording = simulate(where, "fifo", scaler="knative")
    check_accounts(recording)
    late = recording.invocations.filter(recording.invocations["ready"] > 200)
    assert (late["start"] == late["ready"]).all()
    # Those at the end, and of them none that the panic at the beginning brought.
    alive = recording.instances["stopped"].is_null() | (recording.instances["stopped"] > 300)
    assert alive.sum() == 6


def test_it_conforms_with_other_parameters():
    some = {name: SCENARIOS[name] for name in ("chain", "tight-memory", "gpu-mps")}
    check_scaler(lambda: Knative(**SHORT, initial=0, grace_s=0.0), some)


@pytest.mark.parametrize(
    "given_",
    [
        {"target": 0},
        {"utilisation": 0.0},
        {"utilisation": 1.1},
        {"stable_window_s": 0.0},
        {"panic_window_s": 61.0},
        {"panic_threshold": 0.9},
        {"max_scale_up_rate": 1.0},
        {"max_scale_down_rate": float("inf")},
        {"grace_s": -1.0},
        {"initial": -1},
        {"min_replicas": -1},
        {"max_replicas": 0},
        {"max_replicas": 2, "min_replicas": 3},
    ],
    ids=str,
)
def test_parameters_have_ranges(given_):
    with pytest.raises(ValueError, match=f"^{next(iter(given_))} must "):
        Knative(**given_)
