"""Walks through what waits: merged in the right order, and without the functions that are closed."""

import pytest

from fairlead.policy.kit.lines import most_urgent_first, oldest_first
from fairlead.testing import Waits, scenario, view_of

TWO = scenario({"f": 1.0, "g": 1.0}, workflows={"main": ("f",), "other": ("g",), "third": ("f",)})
WAITING = (
    Waits(deadline=9.0),
    Waits(workflow="other", deadline=3.0),
    Waits(workflow="third", deadline=5.0),
    Waits(workflow="other", deadline=7.0),
    Waits(deadline=5.0),
)


@pytest.mark.parametrize(("walk", "expected"), [(most_urgent_first, [1, 2, 4, 3, 0]), (oldest_first, [0, 1, 2, 3, 4])])
def test_all_that_waits_is_walked_in_order(walk, expected):
    assert [each.request for each in walk(view_of(*WAITING, scenario=TWO), set())] == expected


@pytest.mark.parametrize(("walk", "expected"), [(most_urgent_first, [1, 2, 4, 0]), (oldest_first, [0, 1, 2, 4])])
def test_a_function_that_is_closed_during_the_walk_is_left_out_from_there_on(walk, expected):
    closed: set[str] = set()
    seen = []
    for each in walk(view_of(*WAITING, scenario=TWO), closed):
        seen.append(each.request)
        if each.function == "g":
            closed.add("g")
    assert seen == expected


@pytest.mark.parametrize("walk", [most_urgent_first, oldest_first])
def test_a_function_that_is_closed_at_the_start_is_not_looked_at(walk):
    assert [each.function for each in walk(view_of(*WAITING, scenario=TWO), {"f"})] == ["g", "g"]
