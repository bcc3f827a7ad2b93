"""Timeline: what is free when, against a model that looks at every instant."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.planning.timeline import Timeline

CAPACITY = (4, 3)
END = 12  # nothing is taken after this


class ByInstant:
    """The same over whole seconds: a row of free amounts for each, and one for ever after."""

    def __init__(self):
        self.free = [list(CAPACITY) for _ in range(END + 1)]

    def change(self, start, end, demand, sign):
        for instant in range(start, end):
            for column, amount in demand:
                self.free[instant][column] += sign * amount

    def fits(self, start, end, demand):
        rows = self.free[start : max(end, start + 1)]  # what takes no time needs its room all the same
        return all(row[column] >= amount for row in rows for column, amount in demand)

    def earliest(self, after, duration, demand):
        starts = range(after, END + 1)
        return next((start for start in starts if self.fits(start, min(start + duration, END + 1), demand)), inf)


instants = st.integers(0, END)
demands = st.lists(st.integers(0, 3), min_size=2, max_size=2).map(
    lambda amounts: tuple((column, amount) for column, amount in enumerate(amounts) if amount)
)
takes = st.lists(st.tuples(instants, instants, demands), max_size=8)


@given(
    taken=takes,
    given_back=st.lists(st.integers(0, 7), unique=True),
    before=instants,
    question=st.tuples(instants, instants, demands),
)
@settings(max_examples=60, deadline=None)
def test_every_answer_is_that_of_the_model(taken, given_back, before, question):
    timeline, model = Timeline(CAPACITY), ByInstant()
    for start, end, demand in taken:
        timeline.take(start, end, demand)
        model.change(start, end, demand, -1)
    for start, end, demand in (taken[i] for i in given_back if i < len(taken)):
        timeline.give(start, end, demand)
        model.change(start, end, demand, 1)
    timeline.forget(before)
    after, other, demand = question
    after = max(after, before)
    assert [timeline.free_at(instant) for instant in range(before, END + 1)] == model.free[before:]
    if after < other:
        assert timeline.fits(after, other, demand) == model.fits(after, other, demand)
    assert timeline.earliest(after, other, demand) == model.earliest(after, other, demand)


@given(taken=takes)
@settings(max_examples=60, deadline=None)
def test_what_is_given_back_leaves_nothing_behind(taken):
    timeline = Timeline(CAPACITY)
    for each in taken:
        timeline.take(*each)
    for each in reversed(taken):
        timeline.give(*each)
    timeline.forget(-inf)
    assert (timeline.times, timeline.free) == ([-inf], [list(CAPACITY)])


def test_a_gap_is_used_if_it_is_long_enough():
    timeline = Timeline((1,))
    timeline.take(0, 2, ((0, 1),))
    timeline.take(5, 6, ((0, 1),))
    assert timeline.earliest(0, 3, ((0, 1),)) == 2
    assert timeline.earliest(0, 3.5, ((0, 1),)) == 6
    assert timeline.earliest(4.5, 0.5, ((0, 1),)) == 4.5


def test_a_part_of_what_was_taken_may_be_given_back():
    timeline = Timeline((2,))
    timeline.take(0, 10, ((0, 2),))
    timeline.give(4, 10, ((0, 1),))
    assert timeline.earliest(0, 1, ((0, 1),)) == 4
    assert timeline.earliest(0, 1, ((0, 2),)) == 10


def test_every_column_must_be_free_at_once():
    timeline = Timeline((1, 1))
    timeline.take(0, 1, ((0, 1),))
    timeline.take(1, 2, ((1, 1),))
    assert timeline.earliest(0, 1, ((0, 1),)) == 1
    assert timeline.earliest(0, 1, ((0, 1), (1, 1))) == 2


def test_more_than_there_is_is_never_free():
    assert Timeline((1,)).earliest(0, 1, ((0, 2),)) == inf


def test_an_interval_of_no_length_takes_nothing():
    timeline = Timeline((1,))
    timeline.take(3, 3, ((0, 1),))
    assert timeline.times == [-inf]


@pytest.mark.parametrize(("start", "end", "fits"), [(0, 1, True), (0, 1.5, False), (1, 2, False), (2, 9, True)])
def test_an_end_is_not_part_of_its_interval(start, end, fits):
    timeline = Timeline((1,))
    timeline.take(1, 2, ((0, 1),))
    assert timeline.fits(start, end, ((0, 1),)) is fits


def test_forgetting_changes_nothing_from_then_on():
    timeline = Timeline((2,))
    for start in range(5):
        timeline.take(start, start + 2, ((0, 1),))
    timeline.forget(3.5)
    assert len(timeline.times) == 3  # until 5, until 6, and for ever
    assert [timeline.free_at(instant) for instant in (3.5, 5, 6)] == [[0], [1], [2]]


steps = st.one_of(
    st.tuples(st.just("take"), instants, instants, demands),
    st.tuples(st.just("give"), st.integers(0, 9)),
    st.tuples(st.just("ask"), instants, instants, demands),
)


@given(steps=st.lists(steps, max_size=40))
@settings(max_examples=150, deadline=None)
def test_what_was_searched_before_changes_no_answer(steps):
    timeline, model, taken = Timeline(CAPACITY), ByInstant(), []
    for later in range(2 * END, 20 * END, 2):  # enough segments for searches to be remembered
        timeline.take(later, later + 1, ((0, 1),))
    for what, *values in steps:
        if what == "take":
            taken.append(values)
            timeline.take(*values)
            model.change(*values, -1)
        elif what == "give" and values[0] < len(taken):
            timeline.give(*taken[values[0]])
            model.change(*taken.pop(values[0]), 1)
        elif what == "ask":
            after, duration, demand = values
            assert timeline.earliest(after, min(duration, 2 * END - after), demand) == model.earliest(*values)


def test_it_is_overdrawn_only_where_more_was_taken_than_there_is():
    timeline = Timeline(CAPACITY)
    timeline.take(2, 4, ((0, 3),))
    timeline.take(3, 6, ((0, 3),))
    assert timeline.is_overdrawn(0, 9)
    assert timeline.is_overdrawn(3, 3.5)
    assert not timeline.is_overdrawn(0, 3)
    assert not timeline.is_overdrawn(4, 9)
