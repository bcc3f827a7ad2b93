"""Measuring, without a process: when samples are enough, what they say, and where inputs come from."""

import asyncio
from math import sqrt

import pytest

from fairlead.app import App, each, fork, switch
from fairlead.engine.live.measuring.bench import UnmeasurableError
from fairlead.engine.live.measuring.examples import collect
from fairlead.engine.live.measuring.machine import OthersMeter
from fairlead.engine.live.measuring.samples import StopRule, half_width, percentile, pooled_noise
from fairlead.engine.live.values import Result, decode, encode
from fairlead.profile.host import cpu_name

RULE = StopRule(tolerance=0.05, least=5, most=200, least_late=2)


def samples(count, spread):
    """Around 1 s, in turn above and below by the spread."""
    return [1 + spread * (-1) ** i for i in range(count)]


def needed(spread):
    """How many of these samples the rule wants."""
    return next(n for n in range(1, 1000) if RULE.is_enough(samples(n, spread)))


def test_equal_samples_need_the_least_there_is():
    assert needed(0.0) == 5


def test_the_wider_the_spread_the_more_samples():
    # Half-width: about 2 x spread / sqrt(n) <= 0.05, so n is about (2 x spread / 0.05)^2.
    assert needed(0.05) == 7
    assert 16 <= needed(0.1) <= 20
    assert 60 <= needed(0.2) <= 68
    assert needed(0.9) == 200


def test_the_half_width_is_students():
    # Four samples, 1 +- 0.1: deviation 0.1155, t with 3 degrees of freedom 3.182.
    assert half_width(samples(4, 0.1)) == pytest.approx(3.182 * 0.11547 / sqrt(4), rel=1e-4)
    assert half_width([1.0]) == float("inf")
    assert half_width([0.0, 0.0]) == 0.0
    # Twelve samples: t with 11 degrees of freedom is 2.201.
    twelve = samples(12, 0.1)
    assert half_width(twelve) == pytest.approx(2.201 * 0.1 * sqrt(12 / 11) / sqrt(12), rel=2e-3)


def test_who_is_late_stops_but_not_with_a_single_sample():
    assert not RULE.is_enough([1.0], is_late=True)
    assert RULE.is_enough([1.0, 2.0], is_late=True)
    assert not RULE.is_enough([1.0, 2.0])


def test_a_percentile_is_a_sample():
    assert [percentile([3.0, 1.0, 2.0, 4.0], share) for share in (0.5, 0.95, 0.99)] == [2.0, 4.0, 4.0]
    assert percentile([1.0], 0.5) == 1.0


def test_noise_is_pooled_over_points_of_different_length():
    # Relative deviations of 0.1 and 0.1: the tenfold point counts no more.
    assert pooled_noise([[0.9, 1.0, 1.1], [9.0, 10.0, 11.0]]) == pytest.approx(0.1)
    assert pooled_noise([[1.0]]) == 0.0


def examples_of(app, *wanted):
    """What every function would be called with; run in this process, as an instance would."""
    manifest = app.manifest()

    async def call(function, key, argument):
        stage = app.stage(key)
        value = [decode(part) for part in argument] if isinstance(argument, list) else decode(argument)
        try:
            output = app.functions[function](value)
        except (TypeError, ValueError) as error:
            raise UnmeasurableError(str(error)) from None
        if stage.splits:
            return Result(True, [encode(item) for item in output], None, len(output))
        return Result(True, encode(output), stage.choose(output))

    found = asyncio.run(collect(manifest, wanted or app.functions, call))
    shown = {
        name: [[decode(p) for p in v] if isinstance(v, list) else decode(v) for _, v in pairs]
        for name, pairs in found.inputs.items()
    }
    return shown, found


def small_app():
    app = App("small")

    @app.function
    def split(n):
        return list(range(n))

    @app.function
    def double(x):
        return 2 * x

    @app.function
    def total(xs):
        return sum(xs)

    @app.function
    def refuse(x):
        raise ValueError("never")

    return app, split, double, total, refuse


def test_an_example_reaches_every_stage_with_what_the_stage_before_gave():
    app, split, double, total, _ = small_app()
    app.workflow("main", split >> each(double) >> total, example=3)
    shown, found = examples_of(app)
    assert shown == {"split": [3], "double": [0, 1, 2], "total": [[0, 2, 4]]}
    assert found.batch("double", 5) == (["main/double"] * 5, [encode(i) for i in (0, 1, 2, 0, 1)])


def test_stages_after_the_last_that_is_wanted_are_not_run():
    app, split, double, total, _ = small_app()
    app.workflow("main", split >> each(double) >> total, example=3)
    assert set(examples_of(app, "double")[0]) == {"split", "double"}
    assert set(examples_of(app, "split")[0]) == {"split"}


def test_a_map_over_the_input_and_a_long_one_are_cut():
    app, _, double, total, _ = small_app()
    app.workflow("main", each(double) >> total, example=list(range(100)))
    shown, _ = examples_of(app)
    assert shown["double"] == list(range(16))
    assert shown["total"] == [[2 * i for i in range(16)]]


def test_an_arm_that_the_example_does_not_take_is_tried_too():
    app, split, double, total, _ = small_app()
    body = double >> switch(lambda x: "even", {"even": split, "odd": total})
    app.workflow("main", body, example=1)
    shown, found = examples_of(app)
    assert shown["split"] == [2]
    assert "total" not in shown  # it was tried with 2, which is no list
    assert "not iterable" in found.faults["total"]


def test_a_stage_that_fails_is_noted_and_what_follows_left_out():
    app, split, double, total, refuse = small_app()
    app.workflow("main", fork(double, refuse >> split) >> total, example=1)
    shown, found = examples_of(app)
    assert found.faults["refuse"] == "never"
    assert shown == {"double": [1]}


def test_what_joins_a_map_that_fails_is_not_called_with_nothing():
    app, split, _, total, refuse = small_app()
    app.workflow("main", split >> each(refuse) >> total, example=3)
    shown, _ = examples_of(app)
    assert shown == {"split": [3]}


def test_others_are_whoever_is_not_us():
    meter = OthersMeter()
    sum(i for i in range(3_000_000))
    share = meter.share()
    assert share is None or 0.0 <= share <= 1.0
    assert cpu_name()
