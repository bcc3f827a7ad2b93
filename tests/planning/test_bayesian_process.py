"""Gaussian processes: against what can be worked out by hand, and against themselves."""

from math import exp, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.planning.bayesian import GaussianProcess, fit, matern52
from fairlead.planning.bayesian.gaussian_process import log_posterior


def process(points, values, *, length=1.0, scale=1.0, noise=0.1):
    points = np.array(points, dtype=float)
    return GaussianProcess(points, np.array(values, dtype=float), np.full(points.shape[1], length), scale, noise)


def test_correlation_is_one_at_no_distance_and_falls_as_matern_says():
    root = sqrt(5.0)
    one = (1 + root + 5 / 3) * exp(-root)
    assert matern52(np.array([0.0, 1.0])).tolist() == pytest.approx([1.0, one])


def test_one_observation_pulls_the_mean_by_its_share_of_the_variance():
    # With scale 1 and noise 1/4 the weight at the point is 1 / 1.25 = 0.8, and 1 - 0.8 of the variance is left.
    mean, covariance = process([[0.3]], [2.0], noise=0.25).posterior(np.array([[0.3]]))
    assert mean[0] == pytest.approx(1.6)
    assert covariance[0, 0] == pytest.approx(0.2)


def test_two_observations_agree_with_the_inverse_written_out():
    k, noise = float(matern52(np.array([0.25]))[0]), 0.1
    values = (1.0, -2.0)
    determinant = (1 + noise) ** 2 - k**2
    weights = [
        ((1 + noise) * values[0] - k * values[1]) / determinant,
        ((1 + noise) * values[1] - k * values[0]) / determinant,
    ]
    mean, covariance = process([[0.0], [0.5]], values, noise=noise).posterior(np.array([[0.0]]))
    assert mean[0] == pytest.approx(weights[0] + k * weights[1])
    assert covariance[0, 0] == pytest.approx(1 - ((1 + noise) * (1 + k * k) - 2 * k * k) / determinant)


def test_three_observations_agree_with_a_solved_system():
    points, values = np.array([[0.0, 0.1], [0.4, 0.9], [0.8, 0.3]]), np.array([1.0, 3.0, -1.0])
    lengths, scale, noise = np.array([0.5, 2.0]), 1.7, 0.05
    there = np.array([[0.2, 0.2], [1.0, 1.0]])

    def k(a, b):
        r = sqrt(5.0 * sum(((x - y) / length) ** 2 for x, y, length in zip(a, b, lengths, strict=True)))
        return scale * (1 + r + r * r / 3) * exp(-r)

    known = np.array([[k(a, b) + noise * (i == j) for j, b in enumerate(points)] for i, a in enumerate(points)])
    cross = np.array([[k(a, b) for b in points] for a in there])
    mean, covariance = GaussianProcess(points, values, lengths, scale, noise).posterior(there)
    assert mean == pytest.approx(cross @ np.linalg.solve(known, values))
    expected = np.array([[k(a, b) for b in there] for a in there]) - cross @ np.linalg.solve(known, cross.T)
    assert covariance == pytest.approx(expected)


def test_offset_and_unit_are_those_of_the_values():
    points = np.array([[0.0], [0.5]])
    plain = GaussianProcess(points, np.array([1.0, -1.0]), np.ones(1), 1.0, 0.1)
    scaled = GaussianProcess(points, np.array([110.0, 90.0]), np.ones(1), 1.0, 0.1, 100.0, 10.0)
    (mean, variance), (other, another) = (each.posterior(np.array([[0.2]])) for each in (plain, scaled))
    assert other == pytest.approx(100 + 10 * mean)
    assert another == pytest.approx(100 * variance)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 9))
def test_leave_one_out_is_what_the_others_predict(seed, count):
    rng = np.random.default_rng(seed)
    points, values = rng.random((count, 2)), rng.normal(size=count)
    whole = process(points, values, length=0.6, noise=0.2)
    mean, deviation = whole.leave_one_out()
    for i in range(count):
        rest = whole.told(np.delete(points, i, axis=0), np.delete(values, i))
        expected, variance = rest.posterior(points[i : i + 1])
        assert mean[i] == pytest.approx(expected[0])
        assert deviation[i] == pytest.approx(sqrt(variance[0, 0] + 0.2))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 4))
def test_gradient_is_that_of_the_value(seed, count, dimensions):
    rng = np.random.default_rng(seed)
    points, values = rng.random((count, dimensions)), rng.normal(size=count)
    at = rng.normal(-0.5, 0.5, dimensions + 2)
    _, gradient = log_posterior(at, points, values)
    for i in range(len(at)):
        step = np.zeros_like(at)
        step[i] = 1e-5
        slope = (log_posterior(at + step, points, values)[0] - log_posterior(at - step, points, values)[0]) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-4)


def test_fit_finds_which_dimension_matters_and_how_noisy_values_are():
    rng = np.random.default_rng(0)
    points = rng.random((60, 2))
    values = np.sin(6 * points[:, 0]) + rng.normal(0, 0.1, 60)
    found = fit(points, values)
    assert found.length_scales[1] > 2 * found.length_scales[0]
    assert 0.05 < found.unit * sqrt(found.noise) < 0.2
    mean, _ = found.posterior(np.array([[0.25, 0.1], [0.25, 0.9]]))
    assert mean == pytest.approx([np.sin(1.5)] * 2, abs=0.15)


def test_fit_gains_on_its_start():
    rng = np.random.default_rng(1)
    points, values = rng.random((20, 3)), rng.normal(size=20)
    standard = (values - values.mean()) / values.std()
    found = fit(points, values)
    reached = np.log([*found.length_scales, found.scale, found.noise])
    first = np.log([0.5, 0.5, 0.5, 1.0, 0.01])
    assert log_posterior(reached, points, standard)[0] > log_posterior(first, points, standard)[0] + 1


def test_values_that_are_all_equal_are_predicted_everywhere():
    found = fit(np.array([[0.1], [0.5], [0.9]]), np.full(3, 7.0))
    assert found.posterior(np.array([[0.3]]))[0][0] == pytest.approx(7.0)


def test_draws_have_the_mean_and_the_spread_of_the_posterior():
    known = process([[0.0], [0.4], [1.0]], [1.0, 0.0, 2.0], noise=0.3)
    drawn = known.draw(np.random.default_rng(0).standard_normal((4000, 3)))
    mean, covariance = known.posterior(known.points)
    assert drawn.mean(axis=0) == pytest.approx(mean, abs=0.05)
    assert np.cov(drawn.T) == pytest.approx(covariance, abs=0.03)
