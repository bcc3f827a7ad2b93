"""Functions that were never measured are tried out before the first request, within a bounded time."""

import asyncio

import pytest
from virtual_runtimes import run, served

from fairlead.engine.core import events as ev
from fairlead.engine.live.trial import EACH_S, try_out
from fairlead.model import Configuration
from fairlead.profile import Profile, Row, Table, space
from fairlead.replay import check_exactly, read_logged_run


class Function:
    """One whose runs take what a law says, on a clock of its own."""

    def __init__(self, law):
        self.law = law
        self.now = 0.0
        self.ran = []

    async def run(self, configuration):
        self.now += self.law(configuration)
        self.ran.append(configuration)
        return self.law(configuration)

    def times(self, configurations, limit_s, can_run=None):
        """What a trial finds, by configuration, in milliseconds."""
        rows = [
            Row(seconds=0.01 * (1 + 0.2 * (c.batch - 1)), batch=c.batch, vcpus=c.vcpus, vgpus=c.vgpus)
            for c in configurations
        ]
        prior = Profile(law=Table(tuple(rows)), assumed_most_s=1.0)
        found, runs = asyncio.run(try_out(prior, can_run or configurations, self.run, lambda: self.now, limit_s))
        assert runs == len(self.ran)
        return {row.configuration(): round(row.seconds * 1e3, 3) for row in found}


def test_sizes_that_were_not_tried_lie_on_the_line_through_those_that_were():
    it = Function(lambda c: 0.002 + 0.001 * c.batch)
    sizes = space((1, 2, 4, 8, 16))
    assert list(it.times(sizes, 2.0).values()) == pytest.approx([3, 4, 6, 10, 18])
    assert set(it.ran) < set(sizes)
    assert it.now < 0.3  # runs agree with each other, so a few are enough


def test_more_vcpus_are_tried_too():
    it = Function(lambda c: 0.04 / c.vcpus * c.batch)
    found = it.times(space((1, 4), (1.0, 2.0)), 5.0)
    assert found[Configuration(batch=4, vcpus=1.0)] == pytest.approx(160)
    assert found[Configuration(batch=4, vcpus=2.0)] == pytest.approx(80)


def test_a_slow_function_is_not_run_in_batches_that_might_take_longer_than_there_is_time():
    it = Function(lambda c: 1.5 * c.batch)
    found = it.times(space((1, 8)), 2.0)
    assert {c.batch for c in it.ran} == {1}
    assert it.now <= 2.0 + 1.5
    assert list(found.values()) == [1500, 3600]  # as much more as was assumed: a fifth for each further invocation


def test_what_does_not_fit_where_the_instance_is_follows_from_the_rest():
    it = Function(lambda c: 0.01 * c.batch)
    small = [c for c in space((1, 2), (1.0, 4.0)) if c.vcpus == 1]
    found = it.times(space((1, 2), (1.0, 4.0)), 2.0, small)
    assert {c.vcpus for c in it.ran} == {1.0}
    assert found == {c: 10.0 * c.batch for c in space((1, 2), (1.0, 4.0))}


def test_one_odd_run_is_not_what_a_function_takes():
    it = Function(lambda c: 0.5 if len(it.ran) == 3 else 0.01)
    assert list(it.times(space((1,)), 2.0).values()) == [10]


SLOW = """
    @app.function(batch=(1, 2))
    def slow(xs):
        sleep(0.2 + 0.1 * len(xs))
        return xs

    @app.function()
    def bare(x):
        sleep(0.05)
        return x

    app.workflow("main", slow, slo="1s", example=1)
    app.workflow("without", bare, slo="1s")
"""


def believed_s(app, function):
    view = app.runtime.controller.view
    return [round(view.profile(function).latency_s(c), 2) for c in view.profile(function).configurations]


@pytest.mark.parametrize("policy", ["fifo", "fairlead"])
def test_the_first_request_is_decided_by_times_that_were_seen(policy, tmp_path):
    async def test():
        async with served(SLOW, policy, record_to=tmp_path / "run") as app:
            assert believed_s(app, "slow") == [0.3, 0.4]
            assert believed_s(app, "bare") == [0.01]  # no example reaches it
            assert list(app.runtime.tried) == ["slow"]
            assert any(line.startswith("slow: tried out, ") for line in app.log)
            assert app.runtime.now < 1 + 2 * EACH_S
            assert await app.answer("main", 7) == 7

    run(test)
    logged = read_logged_run(tmp_path / "run")
    assert sum(isinstance(event, ev.Tried) for _, events in logged.instants for event in events) == 1
    assert logged.recording.invocations.height == 1  # trials are in no record
    assert logged.scenario.profiles["slow"].assumed_most_s is None
    assert check_exactly(logged) is None


def test_without_a_warm_up_nothing_is_tried():
    async def test():
        async with served(SLOW, warms_up=False) as app:
            assert believed_s(app, "slow") == [0.01, 0.01]
            assert app.runtime.tried == {}

    run(test)
