"""What load from outside costs where it was measured, and what a run takes besides its work."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.engine.sim.compiled import coverage
from fairlead.model import Configuration, Stage, Workflow
from fairlead.policy import make_policy
from fairlead.profile import Row, Table
from fairlead.profile.interference import under_pressure
from fairlead.testing import check_accounts, check_capacity, cluster, declared, scenario
from fairlead.workload import PressureChange, fuse

CURVE = ((0.25, 1.0), (0.5, 1.6), (0.75, 2.6))


def pressed(*changes):
    return tuple(PressureChange(node="n0", at_s=at, pressure=pressure) for at, pressure in changes)


def span_s(where):
    """How long its one request took."""
    recording = simulate(where)
    check_capacity(recording, where)
    check_accounts(recording)
    (request,) = recording.requests.iter_rows(named=True)
    return request["end"] - request["arrival"]


def sensitive(seconds=10.0, curve=((0.5, 1.6),), **more):
    return declared(seconds, pressure_curves={"plain": curve}, **more)


class TestTheCurve:
    @pytest.mark.parametrize(
        ("pressure", "factor"),
        [(0.0, 1.0), (0.2, 1.0), (0.375, 1.3), (0.5, 1.6), (0.625, 2.1), (0.75, 2.6), (1.0, 3.6)],
    )
    def test_straight_lines_between_the_points_and_the_last_goes_on(self, pressure, factor):
        assert under_pressure(CURVE, pressure) == pytest.approx(factor)

    def test_one_point_is_a_line_from_no_pressure(self):
        assert [under_pressure(((0.5, 1.6),), p) for p in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([1.0, 1.3, 1.6, 2.2])

    def test_a_point_at_no_pressure_is_a_constant(self):
        assert [under_pressure(((0.0, 1.0),), p) for p in (0.0, 0.5, 2.0)] == [1.0, 1.0, 1.0]

    def test_nobody_gets_quicker_by_a_curve_that_falls(self):
        assert under_pressure(((0.5, 1.6), (0.75, 1.1)), 2.0) == 1.0

    @given(
        st.lists(st.tuples(st.floats(0.01, 1), st.floats(1, 5)), min_size=1, max_size=5, unique_by=lambda p: p[0]),
        st.floats(0, 2),
        st.floats(0, 2),
    )
    @settings(max_examples=60, deadline=None)
    def test_more_pressure_costs_no_less_on_a_curve_that_rises(self, points, one, other):
        factors = sorted(factor for _, factor in points)
        curve = tuple(zip(sorted(at for at, _ in points), factors, strict=True))
        low, high = sorted((one, other))
        assert 1 <= under_pressure(curve, low) <= under_pressure(curve, high) + 1e-9


class TestRuns:
    def test_half_the_node_taken_makes_ten_seconds_sixteen(self):
        assert span_s(scenario(sensitive(), pressures=pressed((0, 0.5)))) == pytest.approx(16)

    def test_pressure_that_comes_midway_slows_the_rest(self):
        # Four seconds at full pace; the other six take 1.6 times as long.
        assert span_s(scenario(sensitive(), pressures=pressed((4, 0.5)))) == pytest.approx(4 + 9.6)

    def test_pressure_that_goes_gives_the_pace_back(self):
        # Eight seconds do five seconds of work; the other five take five.
        assert span_s(scenario(sensitive(), pressures=pressed((0, 0.5), (8, 0)))) == pytest.approx(13)

    def test_nobody_is_slowed_on_a_kind_without_a_curve(self):
        where = scenario(sensitive(), on=cluster(kind="other"), pressures=pressed((0, 0.5)))
        assert span_s(where) == pytest.approx(10)

    def test_each_function_has_a_curve_of_its_own(self):
        functions = {"a": sensitive(), "b": sensitive(5.0, ((0.5, 3.0),)), "c": declared(1.0)}
        assert span_s(scenario(functions, pressures=pressed((0, 0.5)))) == pytest.approx(16 + 15 + 1)

    def test_the_curve_has_all_that_pressure_costs(self):
        # Neither a sensitivity nor the sharing of an overcommitted node counts the same pressure again.
        where = scenario(sensitive(sensitivity=1.0), pressures=pressed((0, 0.5)))
        assert span_s(where) == pytest.approx(16)
        where = scenario(sensitive(), on=cluster(vcpus=1, overcommit=4.0), pressures=pressed((0, 0.5)))
        assert span_s(where) == pytest.approx(16)

    def test_neighbours_still_share_the_vcpus(self):
        # Two runs of one vCPU each on one vCPU go at half pace, and pressure slows both.
        flow = Workflow(name="main", stages=(Stage(name="a", function="a"), Stage(name="b", function="b")))
        where = scenario(
            {"a": sensitive(), "b": sensitive()},
            workflows={"main": flow},
            on=cluster(vcpus=1, overcommit=4.0),
            pressures=pressed((0, 0.5)),
        )
        assert span_s(where) == pytest.approx(32)


class TestOverhead:
    def test_it_is_added_to_each_run(self):
        assert span_s(scenario(declared(10.0, overhead_s=3.0))) == pytest.approx(13)

    def test_it_is_not_slowed(self):
        where = scenario(sensitive(overhead_s=3.0), pressures=pressed((0, 0.5)))
        assert span_s(where) == pytest.approx(19)

    def test_it_takes_no_vcpus_from_others(self):
        # The way to a takes 4 s, in which b has the only vCPU to itself; then they share it.
        flow = Workflow(name="main", stages=(Stage(name="a", function="a"), Stage(name="b", function="b")))
        functions = {"a": declared(2.0, overhead_s=4.0), "b": declared(6.0)}
        where = scenario(functions, workflows={"main": flow}, on=cluster(vcpus=1, overcommit=4.0))
        found = simulate(where).invocations
        ends = dict(zip(found["function"], found["end"], strict=True))
        assert ends == pytest.approx({"a": 8, "b": 8})

    def test_it_is_no_part_of_the_run_in_records(self):
        recording = simulate(scenario(declared(10.0, overhead_s=3.0)))
        (row,) = recording.invocations.iter_rows(named=True)
        assert row["end"] - row["start"] == pytest.approx(13)
        assert row["transfer_s"] == pytest.approx(3)


class TestFused:
    """Two functions of 6 and 2 s: three quarters of the time, and one."""

    def one(self, first, second):
        where = scenario({"a": first, "b": second})
        fused = fuse(where, "main")
        return fused, fused.profiles["a+b"]

    def test_curves_are_weighed_by_the_time_of_each(self):
        curve, other = ((0.5, 2.0),), ((0.25, 1.0), (0.5, 4.0))
        _, profile = self.one(sensitive(6.0, curve), sensitive(2.0, other))
        # At 0.25: 0.75 x 1.5 + 0.25 x 1; at 0.5: 0.75 x 2 + 0.25 x 4.
        assert profile.pressure_curves == {"plain": ((0.25, pytest.approx(1.375)), (0.5, pytest.approx(2.5)))}

    def test_who_has_no_curve_is_not_slowed(self):
        _, profile = self.one(sensitive(6.0, ((0.5, 2.0),)), declared(2.0))
        assert under_pressure(profile.pressure_curves["plain"], 0.5) == pytest.approx(1.75)

    def test_there_is_one_way_to_them_all(self):
        fused, profile = self.one(declared(6.0, overhead_s=1.0), declared(2.0, overhead_s=3.0))
        assert profile.overhead_s == 3.0
        assert span_s(fused) == pytest.approx(11)

    def test_pressure_slows_the_one_as_it_would_have_slowed_them(self):
        functions = {"a": sensitive(6.0, ((0.5, 2.0),)), "b": sensitive(2.0, ((0.5, 4.0),))}
        apart = scenario(functions, pressures=pressed((0, 0.5)))
        assert span_s(fuse(apart, "main")) == pytest.approx(span_s(apart)) == pytest.approx(20)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (sensitive(), "function f has measured pressure curves"),
        (declared(1.0, overhead_s=0.5), "function f takes time besides its work (overhead_s)"),
    ],
)
def test_the_compiled_engine_leaves_both_to_the_other_by_name(function, reason):
    assert reason in (coverage(scenario({"f": function}), make_policy("fifo"), None) or "")


def test_a_table_by_kind_and_a_curve_go_together():
    rows = (Row(seconds=4.0, vcpus=2, kind="plain"),)
    where = scenario(declared(Table(rows), pressure_curves={"plain": ((0.5, 1.5),)}), pressures=pressed((0, 0.5)))
    assert where.profiles["f"].configurations == (Configuration(vcpus=2),)
    assert span_s(where) == pytest.approx(6)
