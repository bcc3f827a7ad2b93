"""Run times that are learned: a wrong declaration, sizes never seen, odd runs, and a percentile that holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.engine.core.capacity import Belief
from fairlead.model import Configuration
from fairlead.policy import Policy
from fairlead.policy.fifo import Fifo
from fairlead.policy.punctual.pace import Ladder, Pace
from fairlead.profile import Constant, Estimate, Profile
from fairlead.profile.spread import FIRST_SPREAD, widened
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Poisson

SIZES = tuple(range(1, 9))


def truth(size: int, factor: float = 1.0) -> float:
    return factor * (0.008 + 0.002 * size)


def pace(declared_s=None) -> Pace:
    return Pace(SIZES, declared_s or [truth(size) for size in SIZES], 0.9)


class TestPace:
    def test_what_is_declared_is_believed_at_first(self):
        assert pace().mean_s(7) == pytest.approx(0.024)
        assert pace().upper_s(7) == pytest.approx(0.024 * FIRST_SPREAD)

    @pytest.mark.parametrize("factor", [0.1, 0.2, 5, 10])
    def test_three_runs_of_one_size_correct_all_sizes(self, factor):
        found = pace()
        for _ in range(3):
            found.learn(0, truth(1, factor))
        for rung, size in enumerate(SIZES):
            assert found.mean_s(rung) == pytest.approx(truth(size, factor), rel=0.25)

    def test_two_sizes_give_the_others_whatever_was_declared(self):
        found = pace([0.01 * size for size in SIZES])  # no batching gain declared
        for _ in range(20):
            found.learn(0, truth(1))
            found.learn(7, truth(8))
        assert found.mean_s(3) == pytest.approx(truth(4), rel=0.25)  # declared: two and a half times as much

    def test_one_odd_run_is_forgotten(self):
        found = pace()
        for _ in range(30):
            found.learn(3, truth(4))
        found.learn(3, 10 * truth(4))
        assert found.mean_s(3) < 1.6 * truth(4)
        for _ in range(60):
            found.learn(3, truth(4))
        assert found.mean_s(3) == pytest.approx(truth(4), rel=0.05)

    def test_a_size_not_seen_since_follows_the_others(self):
        found = pace()
        for _ in range(30):
            found.learn(7, truth(8, 10))  # a bad time
        for _ in range(200):
            found.learn(0, truth(1))
            found.learn(3, truth(4))
        assert found.mean_s(7) == pytest.approx(truth(8), rel=0.1)

    def test_what_takes_no_time_divides_nothing_by_zero(self):
        found = Pace((1,), [0.0], 0.9)
        found.learn(0, 0.0)
        assert 0 < found.upper_s(0) < 1e-3

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 7), st.floats(1e-4, 10.0)), min_size=1, max_size=60))
    def test_means_stay_within_what_was_seen_and_declared(self, runs):
        found = pace()
        for rung, seconds in runs:
            found.learn(rung, seconds)
        most = max(max(seconds for _, seconds in runs), 0.024)
        for rung in range(8):
            assert 0 < found.mean_s(rung) <= most * 8 * 2.4
            assert found.upper_s(rung) >= found.mean_s(rung)


class TestSpread:
    @pytest.mark.parametrize("percentile", [0.8, 0.9, 0.95])
    def test_the_percentile_lies_below(self, percentile):
        ratios = np.random.default_rng(1).normal(1, 0.1, 6000)
        spread, below = FIRST_SPREAD, 0
        for ratio in ratios:
            below += ratio <= spread
            spread = widened(spread, ratio, percentile)
        assert below / 6000 == pytest.approx(percentile, abs=0.02)

    def test_it_never_falls_below_the_mean(self):
        spread = FIRST_SPREAD
        for _ in range(500):
            spread = widened(spread, 0.5)
        assert spread == 1.0


class TestBelief:
    def test_the_upper_correction_starts_above_the_mean_and_closes_in(self):
        belief = Belief(2.0)
        assert belief.upper == FIRST_SPREAD
        for _ in range(300):
            belief.learn(3.0)  # always half as much again
        assert belief.correction == pytest.approx(1.5, rel=0.06)
        assert belief.upper == pytest.approx(1.5, rel=0.12)

    def test_what_is_declared_to_take_no_time_stays_so(self):
        belief = Belief(0.0)
        belief.learn(1.0)
        assert belief.upper >= 0


class TestEstimate:
    def test_the_upper_time_is_above_the_mean_before_anything_ran(self):
        estimate = Estimate(Profile(law=Constant(2.0)), cluster())
        assert estimate.upper_s(Configuration()) == pytest.approx(2.0 * FIRST_SPREAD)

    def test_a_policy_sees_it_follow_what_ran(self):
        seen = []

        class Watching(Fifo):
            """Looks at what is believed of the function."""

            def decide(self, view):
                seen.append(view.profile("f").upper_s(Configuration()))
                return super().decide(view)

        where = scenario(declared(0.1, noise=0.2), arrivals=(Poisson("main", 20.0),), duration_s=40)
        recording = simulate(where, Watching())
        runs = recording.invocations["end"] - recording.invocations["start"]
        assert issubclass(Watching, Policy)
        assert np.mean(runs.to_numpy() <= np.median(seen[200:])) == pytest.approx(0.95, abs=0.03)


class TestBatchSize:
    def ladder(self, declared_s):
        configurations = [Configuration(batch=size) for size in SIZES]
        return Ladder(configurations, {"plain": Pace(SIZES, declared_s, 0.9)}, 1.0)

    def test_chance_does_not_change_it(self):
        ladder = self.ladder([truth(size) for size in SIZES])
        for _ in range(20):
            ladder.pace.learn(7, 1.03 * truth(8))
            ladder.pace.learn(6, 0.98 * truth(7))  # now seven at once do as much per second as eight
        ladder.review()
        assert ladder.sizes[ladder.top] == 8

    def test_where_a_batch_saves_nothing_the_smallest_is_taken(self):
        ladder = self.ladder([truth(size) for size in SIZES])
        for _ in range(20):
            for rung, size in enumerate(SIZES):
                ladder.pace.learn(rung, 0.01 * size)  # eight take eight times as long
        ladder.review()
        assert ladder.sizes[ladder.top] == 1
