"""Standings, by numbers that can be checked by hand."""

import pytest

from fairlead.league.figures import Figures, Outcome
from fairlead.league.plan import Cell, Entrant, Plan, PlannedRun
from fairlead.league.standing import breaks, standings, tabulate
from fairlead.testing import scenario as built

SEEDS = (0, 1)


def plan(loads=(1.0,), scenarios=("a", "b"), policies=("x", "y")):
    world = built()
    entrants = tuple(
        Entrant(name=name, at=dict.fromkeys(loads, world), policies=policies, rate_rps=10.0) for name in scenarios
    )
    runs = tuple(
        PlannedRun(cell=Cell(name, load, policy), scenario=world, seed=seed, key="")
        for name in scenarios
        for load in loads
        for policy in policies
        for seed in SEEDS
    )
    return Plan(entrants=entrants, runs=runs, seeds=SEEDS)


def done(share):
    figures = Figures(
        requests=100,
        completed=100,
        rejected=0,
        attainment=share,
        goodput_rps=10 * share,
        cost_usd=1.0,
        worst_attainment=share / 2,
        worst_workflow="w",
        cold_starts=0,
        decision_s=None,
        wall_s=1.0,
        cpu_s=0.1,
    )
    return Outcome(status="done", figures=figures)


def outcomes(shares):
    """By scenario, load and policy, a share per seed; a single one stands for all seeds."""
    found = {}
    for (scenario, load, policy), given in shares.items():
        for seed in SEEDS:
            share = given[seed] if isinstance(given, tuple) else given
            found[Cell(scenario, load, policy), seed] = share if isinstance(share, Outcome) else done(share)
    return found


SHARES = {("a", 1.0, "x"): (0.8, 1.0), ("a", 1.0, "y"): (0.7, 0.7), ("b", 1.0, "x"): 0.5, ("b", 1.0, "y"): 0.505}


def test_regret_is_the_best_less_the_own_seed_by_seed():
    table = tabulate(plan(), outcomes(SHARES))
    own = table.results[Cell("a", 1.0, "y")]
    assert own.attainment.mean == pytest.approx(0.7)
    assert own.regret.mean == pytest.approx(0.2)
    # Differences 0.1 and 0.3: deviation 0.1414, over the root of 2 is 0.1; times 12.706 for one degree of freedom.
    assert own.regret.half_width == pytest.approx(1.2706, abs=1e-4)
    assert table.results[Cell("a", 1.0, "x")].regret.mean == 0
    assert own.worst_attainment.mean == pytest.approx(0.35)
    assert own.worst_workflow == "w"
    assert own.decision_s is None


def test_standings_count_who_is_within_a_point():
    first, second = standings(tabulate(plan(), outcomes(SHARES)))
    assert (first.policy, first.level, first.cells) == ("x", 2, 2)  # 0.5 is half a point behind 0.505
    assert first.mean_regret == pytest.approx(0.0025)
    assert (first.worst_regret, first.worst_at) == (pytest.approx(0.005), Cell("b", 1.0, "x"))
    assert (second.policy, second.level) == ("y", 1)
    assert second.mean_regret == pytest.approx(0.1)
    assert (second.worst_regret, second.worst_at) == (pytest.approx(0.2), Cell("a", 1.0, "y"))


@pytest.mark.parametrize(
    "failure", [Outcome(status="too slow", limit_s=5.0), Outcome(status="error", reason="it raised")]
)
def test_a_cell_without_figures_counts_as_nothing_in_time(failure):
    table = tabulate(plan(), outcomes({**SHARES, ("a", 1.0, "x"): (0.8, failure)}))
    cell = table.results[Cell("a", 1.0, "x")]
    assert (cell.status, cell.attainment, cell.is_best) == (failure.status, None, False)
    assert table.failed == [cell]
    assert cell.reason == (failure.reason or "a run took longer than 5 s")
    own = next(one for one in standings(table) if one.policy == "x")
    assert (own.failed, own.worst_regret) == (1, pytest.approx(0.7))  # the best is now y
    assert table.results[Cell("a", 1.0, "y")].regret.mean == 0


def test_cells_that_are_not_complete_are_left_out():
    found = outcomes(SHARES)
    del found[Cell("a", 1.0, "x"), 1]
    assert Cell("a", 1.0, "x") not in tabulate(plan(), found).results


def test_rows_in_which_nobody_answers_are_named():
    table = tabulate(plan(), outcomes({**SHARES, ("b", 1.0, "x"): 0.0, ("b", 1.0, "y"): 0.004}))
    assert table.empty_rows == [("b", 1.0)]
    assert all(one.is_best for one in table.row("b", 1.0))


def test_a_policy_breaks_at_the_first_load_that_it_does_not_hold():
    loads = (0.5, 1.0, 2.0)
    shares = {
        **{("a", load, "x"): share for load, share in zip(loads, (1.0, 0.95, 0.5), strict=True)},
        **{("a", load, "y"): share for load, share in zip(loads, (0.94, 1.0, 1.0), strict=True)},
    }
    x, y = breaks(tabulate(plan(loads, ("a",)), outcomes(shares)), "a")
    assert (x.policy, x.highest, x.fails_at) == ("x", 1.0, 2.0)
    assert (y.policy, y.highest, y.fails_at) == ("y", None, 0.5)
