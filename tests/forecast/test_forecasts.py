"""What a load would see, and which split of a workflow to take at which load."""

import pytest

from fairlead.app import App, each
from fairlead.forecast import Cell, Comparison, Forecast, compare, forecast, splits_of
from fairlead.forecast.splits import Split
from fairlead.profile import Host
from fairlead.profile.measured import Machine, MeasuredFunction, MeasuredProfiles, Point
from fairlead.report import estimate
from fairlead.testing import cluster, declared, scenario


def chain(*names, policy="fifo", **options):
    app = App("test", policy=policy)
    app.node("box", vcpus=4)
    first, *others = [app.function(name=name, **options)(lambda x: x) for name in names]
    body = first
    for function in others:
        body = body >> function
    app.workflow("w", body, slo="1s")
    return app


def measured(seconds, *names):
    functions = {name: MeasuredFunction(points=(Point(mean_s=seconds, p50_s=seconds, count=1),)) for name in names}
    return MeasuredProfiles(app="test", machine=Machine(cpu="x", cores=4, limits=""), functions=functions)


def test_a_load_far_below_capacity_sees_the_time_of_the_functions():
    one = scenario(declared(0.010), on=cluster(vcpus=64))
    found = forecast(one, "main", 20.0, seeds=range(3), duration_s=5.0)
    assert found.in_time.mean == 1.0
    assert (found.p50_s.mean, found.p99_s.mean) == (pytest.approx(0.010), pytest.approx(0.010))
    assert found.requests == pytest.approx(300, abs=60)
    # One vCPU for 10 ms at $0.034 per vCPU-hour, a million times.
    assert found.cost_per_million.mean == pytest.approx(0.034 / 3600 * 0.010 * 1e6)
    assert found.cost_per_hour.mean == pytest.approx(0.034 / 3600 * 0.010 * found.requests / 3 / 5 * 3600, rel=0.01)
    assert found.utilisation.mean == pytest.approx(found.requests / 3 * 0.010 / 5 / 64, rel=0.02)
    assert found.goodput_rps.half_width > 0
    assert found.goodput_rps.count == 3


def test_a_load_above_capacity_cannot_all_be_in_time():
    one = scenario(declared(0.100), on=cluster(vcpus=1), slo_s=0.15)
    found = forecast(one, "main", 20.0, seeds=range(2), duration_s=10.0)
    assert found.in_time.mean < 0.2
    assert found.utilisation.mean == pytest.approx(1.0, abs=0.05)


def test_a_chain_of_three_has_four_splits():
    found, left_out = splits_of(chain("a", "b", "c").manifest(), "w")
    assert [split.label for split in found] == ["a | b | c", "a | b+c", "a+b | c", "a+b+c"]
    assert left_out == 0
    assert [split.chains for split in found] == [[], [("b", "c")], [("a", "b")], [("a", "b", "c")]]


def test_of_many_splits_those_near_the_ends_are_taken():
    found, left_out = splits_of(chain(*"abcdef").manifest(), "w")
    # Five places to cut: all, all but one, one, none; 32 in all.
    assert (len(found), left_out) == (1 + 5 + 5 + 1, 20)
    assert [found[0].label, found[1].label] == ["a | b | c | d | e | f", "a+b | c | d | e | f"]
    assert [found[6].label, found[-1].label] == ["a | b+c+d+e+f", "a+b+c+d+e+f"]
    assert len({split.label for split in found}) == 12


def test_a_split_is_of_the_declared_app_whatever_it_fuses():
    app = App("test")
    a, b, c = (app.function(name=name)(lambda x: x) for name in "abc")
    app.workflow("w", a >> b >> c, fuse="a+b")
    app.workflow("other", a >> b, fuse=True)
    plain = splits_of(app.manifest(), "w")[0][0].manifest(app.manifest(), "w")
    assert [stage.name for stage in plain.workflows[0].stages] == ["a", "b", "c"]
    assert [stage.name for stage in plain.workflows[1].stages] == ["a+b"]
    assert splits_of(app.manifest(), "other")[0][1].label == "a+b"


def test_fusing_saves_the_hops_that_the_machine_was_measured_with():
    host = Host(cores=4, hop_s=0.001, send_s=0.002, end_s=0.003, turn_s=0.005)
    found = compare(
        chain("a", "b").manifest(),
        "w",
        measured(0.011, "a", "b"),
        host,
        rates=[1.0],
        seeds=range(2),
        requests=20,
    )
    apart, fused = (row[0].forecast.p50_s.mean for row in found.rows)
    # Turn, send, 10 ms of work without the hop, end, turn; a second stage adds a send, a run, an end and a turn.
    assert fused == pytest.approx(0.005 + 0.002 + 0.020 + 0.003 + 0.005)
    assert apart == pytest.approx(fused + 0.002 + 0.003 + 0.005)
    assert found.best(0).split.label == "a+b"
    assert found.composed == ("a+b",)


def test_loads_are_shares_of_what_a_closed_loop_completes():
    found = compare(chain("a", "b").manifest(), "w", measured(0.020, "a", "b"), None, seeds=range(2), requests=20)
    # 40 ms of work per request on four vCPUs: 100 requests/s, however it is split.
    assert found.capacity_rps == pytest.approx(100, rel=0.05)
    assert found.rates == tuple(float(f"{load * found.capacity_rps:.2g}") for load in (0.25, 0.5, 1.0, 1.5, 2.0))
    assert len(found.rows) == 2


def cell(split, in_time, cost, p50_s):
    shares = in_time if isinstance(in_time, tuple) else (in_time,)
    known = {"in_time": estimate(shares), "cost": estimate([cost]), "p50_s": estimate([p50_s])}
    return Cell(
        split,
        Forecast(
            workflow="w",
            rate_rps=1.0,
            duration_s=1.0,
            seeds=(0,),
            requests=1,
            shares=shares,
            in_time=known["in_time"],
            goodput_rps=known["in_time"],
            p50_s=known["p50_s"],
            p99_s=known["p50_s"],
            cost_per_hour=known["cost"],
            cost_per_million=known["cost"],
            utilisation=known["in_time"],
        ),
    )


def test_the_best_is_in_time_then_cheap_then_fast():
    apart, fused = Split(((("a",), ("b",)),)), Split(((("a", "b"),),))
    rows = (
        (cell(apart, 1.0, 10.0, 0.2), cell(apart, 0.995, 9.0, 0.2), cell(apart, 0.90, 30.0, 0.9)),
        (cell(fused, 1.0, 10.4, 0.1), cell(fused, 1.0, 10.0, 0.1), cell(fused, 0.85, 10.0, 0.1)),
    )
    found = Comparison(workflow="w", rates=(5.0, 10.0, 20.0), capacity_rps=10.0, left_out=0, composed=(), rows=rows)
    # Costs within 5 %, so the faster; shares within a point, so the cheaper; five points apart, so the one in time.
    assert [found.best(i).split.label for i in range(3)] == ["a+b", "a | b", "a | b"]
    assert [(first, last, split.label) for first, last, split in found.advice()] == [
        (5.0, 5.0, "a+b"),
        (10.0, 20.0, "a | b"),
    ]


def test_a_difference_counts_where_the_seeds_agree_on_it():
    apart, fused = Split(((("a",), ("b",)),)), Split(((("a", "b"),),))
    for shares, expected in (((0.5, 0.8, 0.6), "a+b"), ((0.8, 0.6, 0.5), "a | b")):
        # Both are 6 points lower on average: by 6, 5 and 7 in the same seeds, or by -24, 25 and 17.
        rows = ((cell(apart, shares, 1.0, 0.1),), (cell(fused, (0.56, 0.85, 0.67), 2.0, 0.1),))
        found = Comparison(workflow="w", rates=(5.0,), capacity_rps=None, left_out=0, composed=(), rows=rows)
        assert found.best(0).split.label == expected


def test_a_workflow_that_cannot_be_split_says_so():
    app = App("test")
    a, b = (app.function(name=name)(lambda x: x) for name in "ab")
    app.workflow("w", a >> each(b))
    with pytest.raises(ValueError, match="workflow 'w' has no two stages that could be fused"):
        compare(app.manifest(), "w", None, None)
