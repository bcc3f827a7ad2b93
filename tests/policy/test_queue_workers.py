"""queue-workers: so many calls of a map at a time, whatever the number of instances."""

import polars as pl
import pytest

from fairlead import simulate
from fairlead.errors import ConfigError
from fairlead.model import Stage, Workflow
from fairlead.policy import make_policy
from fairlead.testing import cluster, scenario

ITEMS = 12


def world(**settings):
    """A split of 1 s, twelve items of 2 and then 1 s each, and a join of 1 s, with room for all at once."""
    stages = (
        Stage(name="split", function="split"),
        Stage(name="each", function="each", after=("split",), map=(ITEMS, ITEMS)),
        Stage(name="then", function="then", after=("each",)),
        Stage(name="join", function="join", after=("then",), join=True),
    )
    return scenario(
        {"split": 1.0, "each": 2.0, "then": 1.0, "join": 1.0},
        workflows={"main": Workflow(name="main", stages=stages)},
        on=cluster(2, vcpus=50),
        **settings,
    )


def span_s(recording) -> float:
    return recording.requests["end"][0] - recording.requests["arrival"][0]


@pytest.mark.parametrize(("workers", "expected_s"), [(1, 38.0), (2, 20.0), (4, 11.0), (12, 5.0), (50, 5.0)])
def test_a_map_takes_as_long_as_its_workers_need(workers, expected_s):
    recording = simulate(world(), make_policy("queue-workers", {"workers": workers}))
    # Twelve items of 3 s in all, over the workers, and 1 s each before and behind.
    assert span_s(recording) == pytest.approx(expected_s)


def test_no_more_calls_are_under_way_than_there_are_workers():
    recording = simulate(world(arrivals=(0.0, 0.5)), make_policy("queue-workers", {"workers": 3}))
    mapped = recording.invocations.filter(pl.col("function").is_in(["each", "then"]))
    for at in mapped["start"]:
        under_way = mapped.filter((pl.col("start") <= at) & (pl.col("end") > at))
        assert under_way.height <= 3


def test_what_is_outside_a_map_does_not_wait_for_workers():
    recording = simulate(world(arrivals=(0.0, 2.0)), make_policy("queue-workers", {"workers": 1}))
    second = recording.invocations.filter((pl.col("function") == "split") & (pl.col("request") == 1))
    assert second["start"].to_list() == [2.0]  # while the first request's items hold the only worker


def test_calls_are_taken_in_the_order_in_which_they_came():
    recording = simulate(world(), make_policy("queue-workers", {"workers": 4}))
    mapped = recording.invocations.filter(pl.col("function").is_in(["each", "then"])).sort("start")
    assert mapped["ready"].is_sorted()


def test_less_than_one_worker_is_an_error():
    with pytest.raises(ConfigError, match="workers must be at least 1; got 0"):
        make_policy("queue-workers", {"workers": 0})
