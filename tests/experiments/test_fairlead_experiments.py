"""The experiments about `fairlead`: rows from small runs, and claims from rows made by hand."""

import pytest

from fairlead.experiments import run_experiment
from fairlead.experiments.fairlead_ablation import run as ablation
from fairlead.experiments.fairlead_bench import Setting, failures, measure, shipped
from fairlead.experiments.fairlead_overload import run as overload
from fairlead.experiments.fairlead_sensitivity import run as sensitivity
from fairlead.experiments.league_bounds import run as bounds
from fairlead.experiments.rows import by_seed
from fairlead.league.catalogue import catalogue
from fairlead.league.plan import shipped_entrant
from fairlead.workload import load_scenario

SHORT = {"warmup_s": 0.2, "counted_s": 0.4}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path))
    monkeypatch.setattr("fairlead.experiments.fairlead_bench.cores", lambda: 1)


def with_settings(monkeypatch, module, **changed):
    """The experiment's own settings, small ones in their place."""
    settings = {**module.read_settings(module.__package__), **changed, "quick": {}}
    monkeypatch.setattr(module, "read_settings", lambda package: settings)


def row(values, **rest):
    """A row with an attainment and a goodput of these values, one per seed."""
    mean = sum(values) / len(values)
    figures = {
        f"{name}{ending}": value
        for name in ("attainment", "goodput_rps")
        for ending, value in (("", mean), ("_by_seed", by_seed(values)))
    }
    return {"status": "done", **figures, **rest}


class TestBench:
    def test_equal_settings_are_run_once_and_seeds_may_differ(self, tmp_path):
        scenario = shipped("batched-stage", 1.0, SHORT)
        settings = [
            Setting(name=name, load=1.0, scenario=scenario, seeds={"fifo": 1, "least-loaded": 2}) for name in ("a", "b")
        ]
        one, other = measure(settings, 60.0, lambda share, text: None)
        assert {policy: len(found) for policy, found in one.items()} == {"fifo": 1, "least-loaded": 2}
        assert one == other
        assert len(list(tmp_path.glob("*/*.json"))) == 3
        assert failures(settings, [one, other]) == []

    def test_without_times_of_its_own_a_scenario_is_as_long_as_in_the_league(self):
        assert shipped("quickstart", 3.0) == shipped_entrant("quickstart", ["fifo"], [3.0], catalogue()).at[3.0]


class TestOverload:
    def test_rows_have_every_load_and_policy(self, monkeypatch):
        with_settings(
            monkeypatch,
            overload,
            scenarios={"batched-stage": {**SHORT, "seeds": 2}},
            loads=[1, 2],
            rival_loads=[2],
            rivals=["fifo"],
        )
        found = run_experiment("fairlead-overload")
        assert [(one["load"], one["policy"], one["offered_rps"]) for one in found.rows] == [
            (1, "fairlead", 333),
            (2, "fairlead", 666),
            (2, "fifo", 666),
        ]
        (figure,) = found.figures
        assert figure.name == "fairlead-overload-batched-stage"
        assert "fifo" in figure.svg

    @pytest.mark.parametrize(
        ("last", "verdict"),
        [([99.0, 98.9, 99.1], "met"), ([80.0, 81.0, 82.0], "not met"), ([97.0, 90.0, 99.0], "not decided")],
    )
    def test_goodput_at_the_highest_load_is_compared_with_the_peak(self, last, verdict):
        here = {"scenario": "s", "policy": "fairlead"}
        peak = row([100.0, 100.0, 100.0], load=3, **here)
        rows = [row([50.0, 50.0, 50.0], load=1, **here), peak, row(last, load=10, **here)]
        (claim,) = overload.judge([*rows, row([200.0], load=10, scenario="s", policy="fifo")])
        assert claim.verdict == verdict


class TestSensitivity:
    def test_every_function_is_wrong_by_the_same_factor(self):
        where = load_scenario("wrong-profiles")
        wrong = sensitivity.with_error(where, "times", 1.5)
        for name, profile in where.profiles.items():
            assert wrong.profiles[name].bias == pytest.approx(1.5 * profile.bias)

    def test_noise_is_set_and_cold_starts_are_multiplied_on_every_kind(self):
        where = load_scenario("quickstart")
        assert {one.noise for one in sensitivity.with_error(where, "noise", 0.4).profiles.values()} == {0.4}
        slow = sensitivity.with_error(where, "cold starts", 5).profiles["detect"]
        assert slow.cold_s("gpu") == pytest.approx(5 * where.profiles["detect"].cold_s("gpu"))

    def test_rows_have_every_error_and_value(self, monkeypatch):
        with_settings(
            monkeypatch,
            sensitivity,
            scenarios={"batched-stage": SHORT},
            errors={"noise": [0, 0.4]},
            rivals=["fifo"],
            seeds=1,
        )
        found = run_experiment("fairlead-sensitivity")
        assert [(one["error"], one["value"], one["policy"]) for one in found.rows] == [
            ("noise", 0, "fairlead"),
            ("noise", 0, "fifo"),
            ("noise", 0.4, "fairlead"),
            ("noise", 0.4, "fifo"),
        ]

    @pytest.mark.parametrize(("ours", "verdict"), [(0.8, "met"), (0.7, "not met")])
    def test_each_rival_is_compared_under_the_same_error(self, ours, verdict):
        """A rival has 90 % with noise 0.4; another error, in which it has 100 %, is another claim."""
        noisy = {"scenario": "s", "error": "noise", "value": 0.4}
        rows = [row([ours, ours], policy="fairlead", **noisy), row([0.9, 0.9], policy="esg", **noisy)]
        wrong = {"scenario": "s", "error": "times", "value": 0.7}
        rows += [row([1.0, 1.0], policy="fairlead", **wrong), row([1.0, 1.0], policy="esg", **wrong)]
        assert [claim.verdict for claim in sensitivity.judge(rows)] == [verdict, "met"]


class TestAblation:
    def test_rows_have_the_whole_policy_and_each_ingredient_left_out(self, monkeypatch):
        with_settings(
            monkeypatch, ablation, scenarios={"batched-stage": SHORT}, loads=[3], ingredients=["prices"], seeds=1
        )
        whole, without = run_experiment("fairlead-ablation").rows
        assert (whole["without"], without["without"]) == ("nothing", "prices")
        assert whole["attainment"] != without["attainment"]

    def test_points_lost_are_averaged_over_the_cells(self):
        """Without `a` 10 and 12 points are lost, without `b` 0.1 and -0.1, without `c` 10 are gained twice."""
        attained = {"nothing": (0.9, 0.5), "a": (0.8, 0.38), "b": (0.899, 0.501), "c": (1.0, 0.6)}
        rows = [
            row([value], without=name, scenario="s", load=load)
            for name, values in attained.items()
            for load, value in zip((1, 3), values, strict=True)
        ]
        a, b, c = ablation.judge(rows)
        assert (a.verdict, b.verdict, c.verdict) == ("not decided", "not decided", "not met")
        assert a.ours == pytest.approx(0.11)
        assert "Worth most on s at load 3: 12.0 points." in a.note
        assert b.note.startswith("Worth nothing here")


class TestBounds:
    def test_rows_have_the_bound_beside_the_best_of_the_committed_league(self):
        found = run_experiment("league-bounds", quick=True)
        assert {one["scenario"] for one in found.rows} == {"quickstart", "batched-stage", "table-4.1"}
        for one in found.rows:
            assert one["fairlead"] <= one["best"]
            assert 0 <= one["bound"] <= 1

    @pytest.mark.parametrize(("low", "verdict"), [(0.5, "met"), (0.51, "not met")])
    def test_a_dispatcher_above_the_bound_refutes_it(self, low, verdict):
        here = {"scenario": "s", "load": 3, "best": 0.52, "bound": 0.5, "highest_low": low}
        (claim,) = bounds.judge([here])
        assert claim.verdict == verdict
