"""Predicting what was not measured: laws are found again, and measuring stops when they are."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model import Configuration
from fairlead.profile import space
from fairlead.profile.predict import complete, fit, next_to_measure, non_negative_least_squares

SPACE = space((1, 2, 4, 8, 16), (0.25, 0.5, 1.0, 2.0, 4.0))


def one_thread(c):
    """8 ms and 2 ms per item, of one thread: no faster than with one vCPU."""
    return (0.008 + 0.002 * c.batch) / min(c.vcpus, 1.0)


def parallel(c):
    """2 ms, and per item 4 ms that all vCPUs share."""
    return 0.002 + 0.004 * c.batch / c.vcpus


def shared(c):
    """A batch that grows with its root."""
    return (0.001 + 0.01 * sqrt(c.batch)) / min(c.vcpus, 1.0)


def measured_by(law, tolerance, chosen=SPACE):
    """What is measured of a law, in order, until the rest can be predicted."""
    times = {}
    while (configuration := next_to_measure(chosen, times, tolerance)) is not None:
        assert configuration not in times
        times[configuration] = law(configuration)
    return times


@pytest.mark.parametrize("law", [one_thread, parallel, shared])
def test_a_law_is_found_from_a_part_of_the_space(law):
    times = measured_by(law, 0.02)
    predicted, predictor = complete(SPACE, times)
    assert len(times) <= 10  # of 25
    assert len(times) + len(predicted) == 25
    assert predictor.held_out_error < 0.02
    for configuration, seconds in predicted.items():
        assert seconds == pytest.approx(law(configuration), rel=0.05)


def test_the_corners_and_the_middle_come_first():
    times = measured_by(one_thread, 0.02)
    corners = {Configuration(b, c) for b in (1, 16) for c in (0.25, 4.0)}
    assert set(list(times)[:4]) == corners
    assert list(times)[4] == Configuration(4, 1.0)


def test_a_function_that_follows_no_law_is_measured_everywhere():
    def jagged(c):
        return 0.01 * (1 + 7 * SPACE.index(c) % 11)

    times = measured_by(jagged, 0.02)
    assert len(times) == 25
    assert complete(SPACE, times)[0] == {}


def test_points_far_from_all_others_are_looked_at_before_a_law_is_believed():
    times = measured_by(lambda c: 0.01, 0.02)
    assert len(times) == 7  # the first count above a quarter of 25
    assert list(times)[5:] == [Configuration(16, 1.0), Configuration(8, 2.0)]  # two doublings from the nearest


def test_the_next_point_is_beside_the_one_that_was_predicted_worst():
    sizes = space((1, 2, 4, 8, 16, 32))
    times = {Configuration(1): 0.1} | {Configuration(b): 0.01 for b in (4, 8, 32)}
    errors = fit(times).errors
    assert errors[Configuration(1)] == pytest.approx(0.9)  # the others say 0.01
    assert max(errors, key=errors.get) == Configuration(1)
    assert next_to_measure(sizes, times, 0.05) == Configuration(2)  # 2 and 16 are left


def test_one_or_two_points_are_enough_to_begin_with():
    assert measured_by(one_thread, 0.05, space()) == {Configuration(): 0.010}
    two = measured_by(one_thread, 0.05, space((1,), (0.5, 1.0)))
    assert fit(two).mean_s(Configuration(1, 0.5)) == pytest.approx(0.020)
    assert fit(two).held_out_error is None


def test_a_function_that_takes_no_time_is_no_trouble():
    assert fit({Configuration(b): 0.0 for b in (1, 2, 4)}).mean_s(Configuration(8)) == pytest.approx(0.0, abs=1e-6)


def test_more_of_anything_never_costs_a_negative_time():
    falling = {Configuration(b): 0.1 / b for b in (1, 2, 4, 8)}  # noise can look like this
    predictor = fit(falling)
    assert all(weight >= 0 for weight in predictor.weights)
    assert predictor.mean_s(Configuration(64)) > 0


def test_nothing_measured_cannot_be_fitted():
    with pytest.raises(ValueError, match="nothing was measured"):
        fit({})


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 10))
def test_non_negative_least_squares_meets_its_conditions(seed, columns, rows):
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(rows, columns)), rng.normal(size=rows)
    x = non_negative_least_squares(matrix, target)
    slope = matrix.T @ (target - matrix @ x)
    assert (x >= 0).all()
    assert slope.max() <= 1e-6  # nothing that could still be added would help
    assert np.abs(slope[x > 1e-9]).max(initial=0.0) <= 1e-6  # and nothing there should change


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e-4, 1.0),
    st.floats(0.0, 0.1),
    st.lists(st.integers(1, 64), min_size=4, max_size=8, unique=True),
)
def test_a_straight_line_over_batch_sizes_is_predicted_exactly(fixed_s, per_item_s, sizes):
    predictor = fit({Configuration(n): fixed_s + per_item_s * n for n in sizes})
    assert predictor.mean_s(Configuration(100)) == pytest.approx(fixed_s + 100 * per_item_s, rel=0.05)
