"""BacklogTimeline: the answers of a Timeline, also where searches are remembered."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.planning.timeline import Timeline
from fairlead.policy.dag_admission.backlog import BacklogTimeline

LINE = 100  # enough segments for searches to be remembered
DEMANDS = (((0, 1),), ((0, 2),), ((0, 1), (1, 1)))

instants = st.integers(0, 2 * LINE + 10)
durations = st.integers(0, 5).map(lambda halves: halves / 2)
steps = st.lists(
    st.tuples(st.sampled_from(("take", "give", "ask", "ask", "ask")), instants, durations, st.sampled_from(DEMANDS)),
    max_size=40,
)


def in_line(timeline):
    """One of two units is taken for one second in two, all of them for every other of the rest."""
    for i in range(LINE):
        timeline.take(2 * i, 2 * i + 1.5, ((0, 1 + i % 2), (1, i % 3)))
    return timeline


@given(steps=steps)
@settings(max_examples=100, deadline=None)
def test_it_finds_what_a_timeline_finds(steps):
    plain, quick = in_line(Timeline((2, 2))), in_line(BacklogTimeline((2, 2)))
    for what, at, duration, demand in steps:
        if what == "ask":
            assert quick.earliest(at, duration, demand) == by_hand(plain, at, duration, demand)
        else:
            for timeline in (plain, quick):
                getattr(timeline, what)(at, at + duration, demand)
    plain.forget(-1)  # joins equal segments, which the other never has
    assert (quick.times, quick.free) == (plain.times, plain.free)


@given(steps=steps, now=instants)
@settings(max_examples=50, deadline=None)
def test_what_lies_ahead_is_the_same_once_the_past_is_let_go(steps, now):
    whole, kept = in_line(BacklogTimeline((2, 2))), in_line(BacklogTimeline((2, 2)))
    kept.forget(now)
    assert all(at > now for at in kept.times[1:])
    for what, at, duration, demand in steps:
        if what == "ask":
            assert kept.earliest(now + at, duration, demand) == whole.earliest(now + at, duration, demand)
        else:
            for timeline in (whole, kept):
                getattr(timeline, what)(now + at, now + at + duration, demand)


def by_hand(timeline, after, duration, demand):
    """The first of all possible starts (`after` and where a segment begins) at which the demand fits."""
    starts = [after, *(at for at in timeline.times if at > after)]
    fits = (at for at in starts if timeline.fits(at, max(at + duration, at + 1e-12), demand))
    return next(fits, float("inf"))


def test_what_is_given_back_in_the_middle_is_found():
    # 100 seconds are taken one by one. From 0 the first free second is at 100; then the one at 40 is given back.
    timeline, demand = BacklogTimeline((101,)), ((0, 101),)
    for i in range(100):
        timeline.take(i, i + 1, ((0, 1 + i),))
    assert timeline.earliest(0, 1, demand) == 100
    assert timeline.earliest(0, 1, demand) == 100
    timeline.give(40, 41, ((0, 41),))
    assert timeline.earliest(0, 1, demand) == 40
    assert timeline.earliest(0, 2, demand) == 100
    assert timeline.earliest(41, 1, demand) == 100


def test_a_copy_is_independent():
    timeline = BacklogTimeline((1,))
    timeline.take(0, 2, ((0, 1),))
    other = timeline.copy()
    timeline.give(0, 2, ((0, 1),))
    assert (timeline.earliest(0, 1, ((0, 1),)), other.earliest(0, 1, ((0, 1),))) == (0, 2)
