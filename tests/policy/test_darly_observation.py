"""What an agent of Darly sees, and what a request is worth to it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.policy.darly.observation import observation_size, observe
from fairlead.policy.darly.reward import REFUSED, Weights, reward

ROWS = np.arange(28.0).reshape(4, 7)  # counter c of node n is 7 n + c


def test_four_nodes_and_three_groups_make_35_numbers():
    assert observation_size(4, 3) == 35
    assert observe(ROWS, (1, 2, 4), 1, 2, 35.0, 2).shape == (35,)
    assert observe(np.zeros((2, 7)), (1,), 1, 1, 1.0, 1).shape == (observation_size(2, 1),) == (19,)


def test_each_counter_has_a_place_of_its_own():
    rows = np.zeros((4, 7))
    rows[2, 4] = 0.5  # C0 of the third node
    seen = observe(rows, (1, 1, 1), 1, 1, 35.0, 2)
    assert np.flatnonzero(seen[:28]).tolist() == [2 * 7 + 4]
    assert seen[18] == 0.5


def test_everything_is_on_a_scale_near_one():
    seen = observe([[2.0, 1, 1, 2.0, 1, 1, 1]] * 4, (1, 2, 4), 1, 2, 26.0, 2)
    assert seen[:28].tolist() == [1.0] * 28
    assert seen[28:] == pytest.approx([0.25, 0.5, 1.0, 0.25, 0.5, 26 / 35, 0.5])


def test_as_published_counters_of_different_nodes_are_added_into_each_other():
    seen = observe(ROWS, (1, 2, 4), 1, 2, 35.0, 2, is_as_published=True)
    # Index i holds the counters i - n of the nodes n = 0..3: those of 7 n + i - n = i + 6 n.
    expected = [sum(i + 6 * n for n in range(4) if 0 <= i - n < 7) for i in range(10)]
    assert expected == [
        0,
        1 + 7,
        2 + 8 + 14,
        3 + 9 + 15 + 21,
        4 + 10 + 16 + 22,
        52 + 4,
        56 + 4,
        13 + 19 + 25,
        20 + 26,
        27,
    ]
    assert seen[:10].tolist() == expected
    assert not seen[10:28].any()
    assert seen[28:].tolist() == [1, 2, 4, 1, 2, 35, 2]


def test_as_published_two_states_look_alike_that_are_not():
    first, second = np.zeros((4, 7)), np.zeros((4, 7))
    first[0, 4] = second[1, 3] = 0.5  # C0 of w01, and cache misses of w02
    alike = [observe(rows, (1, 1, 1), 1, 1, 35.0, 2, is_as_published=True) for rows in (first, second)]
    apart = [observe(rows, (1, 1, 1), 1, 1, 35.0, 2) for rows in (first, second)]
    assert np.array_equal(*alike)
    assert not np.array_equal(*apart)


def test_a_counter_that_is_no_number_does_not_reach_the_network():
    rows = np.full((4, 7), np.nan)
    rows[1, 3] = np.inf
    seen = observe(rows, (1, 1, 1), 1, 1, 35.0, 2)
    assert np.isfinite(seen).all()
    assert seen[7 + 3] == 2.0


@pytest.mark.parametrize(
    ("rows", "positions"), [(np.zeros((4, 6)), (1,)), (np.zeros(28), (1,)), (ROWS, (0, 1, 1)), (ROWS, (1, 5, 1))]
)
def test_what_cannot_be_seen_is_an_error(rows, positions):
    with pytest.raises(ValueError, match="must be"):
        observe(rows, positions, 1, 1, 35.0, 2)


# --- equation 1 ----------------------------------------------------------------------------------------------------


def test_the_best_reward_is_ten():
    assert reward(35.0, 35.0, nodes_used=1, replicas=3) == 3 / 1 + 12 / 3 + 3 == 10


def test_more_nodes_and_more_replicas_are_worth_less():
    assert reward(17.5, 35.0, nodes_used=3, replicas=9) == pytest.approx(1 + 12 / 9 + 1.5)


def test_being_close_to_the_limit_is_worth_more():
    assert reward(34.0, 35.0, nodes_used=1, replicas=3) > reward(20.0, 35.0, nodes_used=1, replicas=3)


def test_a_violation_costs_between_five_and_six():
    assert reward(35.0001, 35.0, nodes_used=1, replicas=3) == pytest.approx(-5, abs=1e-4)
    assert reward(52.5, 35.0, nodes_used=1, replicas=3) == -5.5
    assert reward(1e6, 35.0, nodes_used=1, replicas=3) == -6
    assert REFUSED == -2


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1000), st.floats(0.1, 100), st.integers(1, 3), st.integers(3, 12))
def test_a_reward_is_good_if_and_only_if_the_objective_is_met(latency_s, qos_s, nodes, replicas):
    worth = reward(latency_s, qos_s, nodes_used=nodes, replicas=replicas)
    assert (2 <= worth <= 10) if latency_s <= qos_s else (-6 <= worth <= -5)


def test_an_application_with_other_groups_has_its_own_constants():
    assert reward(1.0, 1.0, nodes_used=2, replicas=2, groups=5, weights=Weights(most_replicas=16)) == 2.5 + 8 + 3
