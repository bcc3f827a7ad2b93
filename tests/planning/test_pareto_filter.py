"""Which points no other beats, in two columns and in more."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.planning import pareto_filter
from fairlead.planning.pareto import dominance_filter


def unbeaten(points):
    """The same by comparing each with each."""
    rows = sorted(set(map(tuple, points.tolist())))
    return [row for row in rows if not any(o != row and all(a <= b for a, b in zip(o, row, strict=True)) for o in rows)]


def test_of_equal_points_the_first_is_kept():
    latency, cost = np.array([2.0, 1.0, 2.0, 1.0]), np.array([3.0, 5.0, 3.0, 5.0])
    assert pareto_filter(latency, cost).tolist() == [1, 0]


def test_of_equally_fast_the_cheapest_is_kept():
    latency, cost = np.array([1.0, 1.0, 1.0]), np.array([5.0, 3.0, 4.0])
    assert pareto_filter(latency, cost).tolist() == [1]


def test_nothing_of_nothing():
    assert len(pareto_filter(np.empty(0), np.empty(0))) == 0


PAIR = st.tuples(st.integers(0, 9), st.integers(0, 9))


@settings(max_examples=60, deadline=None)
@given(st.lists(PAIR, min_size=1, max_size=30))
def test_two_columns_give_what_comparing_all_gives(pairs):
    points = np.array(pairs, dtype=np.float64)
    kept = points[pareto_filter(points[:, 0], points[:, 1])]
    assert [tuple(row) for row in kept.tolist()] == unbeaten(points)


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("values", [2, 6, 1000], ids=["many-ties", "some-ties", "few-ties"])
def test_more_columns_give_what_comparing_all_gives(columns, values):
    rng = np.random.default_rng(values + columns)
    for count in (1, 5, 60, 300):
        points = rng.integers(0, values, (count, columns)).astype(np.float64)
        kept = points[dominance_filter(points)]
        assert [tuple(row) for row in kept.tolist()] == unbeaten(points)


def test_points_on_a_plane_are_all_kept():
    rng = np.random.default_rng(1)
    points = rng.integers(0, 1000, (500, 3)).astype(np.float64)
    points = np.unique(np.column_stack([points, 5000 - points.sum(axis=1)]), axis=0)
    assert len(dominance_filter(points)) == len(points)
