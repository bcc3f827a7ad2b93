"""Bayesian optimisation: what is promising, how it is searched, and that it finds what is known to be best."""

from itertools import product
from math import erf, pi, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.planning.bayesian import (
    Effort,
    GaussianProcess,
    NoisyImprovement,
    Space,
    expected_improvement,
    optimise,
)

SIZES = list(product((1, 2, 4, 8, 16), (1, 2, 4, 8), (1, 2, 3, 4, 7)))


def improvement(space, seed, count=6, draws=8):
    """Two processes over some random choices of a space."""
    rng = np.random.default_rng(seed)
    choices = list(dict.fromkeys(space.snap(rng.random((count, space.dimensions)))))
    points = space.points(choices)
    lengths = rng.uniform(0.3, 1.5, (2, space.dimensions))
    objective = GaussianProcess(points, rng.normal(size=len(points)), lengths[0], 1.2, 0.05, 0.5, 2.0)
    constraint = GaussianProcess(points, rng.normal(size=len(points)), lengths[1], 0.8, 0.02, -0.2, 0.7)
    return NoisyImprovement(objective, constraint, space, draws, rng), choices


class TestExpectedImprovement:
    def test_at_the_best_so_far_it_is_the_mean_of_half_a_normal(self):
        assert expected_improvement(3.0, 2.0, 3.0) == pytest.approx(2 / sqrt(2 * pi))

    def test_one_deviation_above_it_is_1_0833(self):
        assert expected_improvement(1.0, 1.0, 0.0) == pytest.approx(1.0833154705876864)

    def test_one_deviation_below_it_is_0_0833(self):
        assert expected_improvement(-1.0, 1.0, 0.0) == pytest.approx(0.08331547058768642)

    def test_without_uncertainty_it_is_what_is_gained(self):
        assert expected_improvement(5.0, 0.0, 3.0) == 2.0
        assert expected_improvement(2.0, 0.0, 3.0) == 0.0


class TestSpace:
    def test_sizes_in_use_are_evenly_spaced_in_the_middle_of_their_cells(self):
        (options,) = Space.of([[(1, 1.0), (4, 1.0), (16, 1.0)]]).sets
        assert options == pytest.approx(np.array([[1 / 6, 0.5], [0.5, 0.5], [5 / 6, 0.5]]))

    def test_a_point_snaps_to_the_option_of_its_cell(self):
        space = Space.of([SIZES, [(1,), (2,)]])
        batch, vcpus, vgpus = 0.39, 0.76, 0.99  # second of five, last of four, last of five
        ((first, second),) = space.snap(np.array([[batch, vcpus, vgpus, 0.49]]))
        assert SIZES[first] == (2, 8, 7)
        assert second == 0

    def test_a_point_beside_what_is_listed_snaps_to_the_nearest(self):
        space = Space.of([[(1, 1), (4, 2), (4, 4)]])  # (1, 4) and others are not listed
        assert space.snap(np.array([[0.1, 0.4], [0.9, 0.1], [0.9, 0.9]])) == [(0,), (1,), (2,)]

    def test_random_points_snap_to_every_option_equally_often(self):
        space = Space.of([SIZES])
        found = space.snap(np.random.default_rng(0).random((20_000, 3)))
        counts = np.bincount([choice[0] for choice in found], minlength=100)
        assert counts.min() > 140  # 200 each on average, with a deviation of 14
        assert counts.max() < 260

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.integers(0, 99), min_size=2, max_size=2))
    def test_a_choice_snaps_to_itself(self, choice):
        space = Space.of([SIZES, SIZES])
        assert space.snap(space.points([tuple(choice)])) == [tuple(choice)]

    def test_neighbours_are_one_step_away_along_one_axis(self):
        space = Space.of([SIZES])
        near = [SIZES[i] for i in space.near[SIZES.index((4, 2, 3))]]
        assert sorted(near) == [(2, 2, 3), (4, 1, 3), (4, 2, 2), (4, 2, 4), (4, 4, 3), (8, 2, 3)]


class TestNoisyImprovement:
    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 10**6))
    def test_it_is_the_closed_form_averaged_over_the_draws(self, seed):
        space = Space.of([SIZES, [(1, 1, 1), (2, 1, 1)]])
        asked, choices = improvement(space, seed)
        points = space.points(choices)
        objective, constraint = asked.objective, asked.constraint
        best = []
        for gains, excess in zip(objective.values, constraint.values, strict=True):
            feasible = [gain for gain, e in zip(gains, excess, strict=True) if e <= 0]
            best.append(max(feasible) if feasible else min(gains))
        there = (17, 1)
        means = []
        for drawn in (objective, constraint):
            process = drawn._process
            cross = process.covariance(space.points([there]), points)[0]
            known = process.covariance(points, points) + 1e-6 * process.scale * np.eye(len(points))
            standard = (drawn.values - process.offset) / process.unit
            mean = process.offset + process.unit * np.array([cross @ np.linalg.solve(known, each) for each in standard])
            variance = process.scale - cross @ np.linalg.solve(known, cross)
            means.append((mean, process.unit * sqrt(max(variance, 1e-6 * process.scale))))
        (gains, deviation), (excess, spread) = means
        expected = [
            expected_improvement(gain, deviation, b) * 0.5 * (1 - erf(e / spread / sqrt(2)))
            for gain, e, b in zip(gains, excess, best, strict=True)
        ]
        assert asked([there])[0] == pytest.approx(np.mean(expected), rel=1e-5, abs=1e-9)

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 10**6))
    def test_hill_climbing_ends_no_lower_than_any_neighbour_of_what_it_finds(self, seed):
        space = Space.of([SIZES, SIZES])
        asked, _ = improvement(space, seed)
        found = asked.climb([(0, 0), (99, 99)], [])
        assert found is not None
        (value,) = asked([found])
        near = [(int(i), found[1]) for i in space.near[found[0]]]
        near += [(found[0], int(i)) for i in space.near[100 + found[1]]]
        assert value >= max(asked(near)) - 1e-12
        assert asked.climb([(0, 0), (99, 99)], [found]) != found

    def test_a_choice_that_is_expected_promises_less(self):
        space = Space.of([SIZES, SIZES])
        asked, choices = improvement(space, 5)
        found = asked.climb([(0, 0), (50, 50)], choices)
        assert found is not None
        (before,) = asked([found])
        asked.expect(found)
        assert asked([found])[0] < 0.1 * before

    def test_nothing_is_found_where_all_is_known(self):
        space = Space.of([[(1,), (2,)]])
        asked, _ = improvement(space, 0, count=2)
        assert asked.climb([(0,)], [(0,), (1,)]) is None


def bowl(noise: float, rng: np.random.Generator):
    """Two sets of a hundred sizes: cost falls along two lines and the constraint cuts them off."""

    def observe(choice):
        x, y = (SIZES[i] for i in choice)
        cost = sum(abs(np.log2(b) - 3) + abs(c - 2) / 2 + abs(g - 3) / 2 for b, c, g in (x, y))
        excess = 4 - x[2] - y[1]  # the cheapest, 3 vGPUs and 2 vCPUs, is allowed
        return cost + noise * rng.normal(), excess + noise * rng.normal()

    return observe


class TestOptimise:
    def test_a_small_space_is_observed_whole(self):
        asked = []

        def observe(choice):
            asked.append(choice)
            return float(choice[0]), 1.5 - choice[0]

        found = optimise(observe, Space.of([[(i,) for i in range(5)]]), np.random.default_rng(0))
        assert asked == [(i,) for i in range(5)]
        assert found.best.choice == (2,)  # 0 and 1 break the constraint

    def test_as_many_choices_are_observed_as_were_asked_for_and_none_twice(self):
        rng = np.random.default_rng(0)
        effort = Effort(initial=5, rounds=4, per_round=2)
        found = optimise(bowl(0.0, rng), Space.of([SIZES, SIZES]), rng, effort)
        assert len({each.choice for each in found.observations}) == len(found.observations) == 13

    def test_where_nothing_is_feasible_the_nearest_to_it_is_best(self):
        space = Space.of([[(i,) for i in range(5)]])
        found = optimise(lambda choice: (-1.0 * choice[0], 1.0 + choice[0]), space, np.random.default_rng(0))
        assert found.best.choice == (0,)

    def test_the_same_seed_finds_the_same(self):
        space, effort = Space.of([SIZES, SIZES]), Effort(rounds=3)
        runs = [
            optimise(bowl(0.1, np.random.default_rng(9)), space, np.random.default_rng(4), effort) for _ in range(2)
        ]
        assert runs[0] == runs[1]

    @pytest.mark.parametrize("noise", [0.0, 0.2])
    def test_it_beats_as_many_random_choices(self, noise):
        space, effort = Space.of([SIZES, SIZES]), Effort(rounds=10)
        truth = bowl(0.0, np.random.default_rng(0))
        wins, reached = 0, 0
        for seed in range(8):
            rng = np.random.default_rng(seed)
            observe = bowl(noise, rng)
            found = optimise(observe, space, rng, effort)
            tried = space.snap(rng.random((effort.observations, space.dimensions)))
            by_chance = min((cost for cost, excess in map(truth, tried) if excess <= 0), default=np.inf)
            cost, excess = truth(found.best.choice)
            wins += cost < by_chance and excess <= noise
            reached += cost <= 0.5  # the optimum is 0, and the next best 0.5
        assert wins >= 7
        assert reached >= 5
