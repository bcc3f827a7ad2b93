"""How predictions are compared with live runs."""

import pytest
from live_leagues import cell, figures, league, live_cell

from fairlead.league.live.compare import Tally, judge, kendall, off, order
from fairlead.league.live.document import Cell


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 2, 4, 3], 4 / 6),  # five pairs agree, one does not
        ([1, 1, 2], [1, 2, 3], 2 / 6**0.5),  # two pairs agree; two untied in the first, three in the second
        ([1, 1, 1], [1, 2, 3], None),
        ([1], [1], None),
    ],
    ids=["same", "reversed", "one-swap", "a-tie", "no-order", "one-thing"],
)
def test_kendall(first, second, tau):
    assert kendall(first, second) == pytest.approx(tau)


def test_a_prediction_is_off_by_points_and_by_parts_of_the_latencies():
    found = off(cell("fifo", 0.5, 0.52, p50_s=0.008, p99_s=0.04))  # predicted 10 and 20 ms
    assert found.points == pytest.approx(0.02)
    assert (found.p50, found.p99) == (pytest.approx(0.25), pytest.approx(-0.5))


def test_p99_counts_from_300_answers_on():
    assert off(cell("fifo", 0.5, 0.5, requests=300)).p99 is not None
    assert off(cell("fifo", 0.5, 0.5, requests=299)).p99 is None


def test_answers_of_which_none_was_predicted_are_a_miss():
    silent = Cell(
        app="shop",
        load=1.0,
        policy="fifo",
        live=live_cell("shop", "fifo", figures(0.5)),
        predicted=figures(0.0, p50_s=None, p99_s=None),
    )
    assert off(silent).p50 == -1.0
    assert judge(league(silent)).p50 == Tally(0, 1)


def test_the_verdict_counts_all_cells_and_those_in_the_middle():
    verdict = judge(
        league(
            cell("a", 0.50, 0.53),  # just within
            cell("b", 0.60, 0.64),
            cell("c", 1.00, 1.00),
            cell("d", 0.02, 0.10),
            Cell(app="shop", load=1.0, policy="e", failure="did not start"),
        )
    )
    assert (verdict.share, verdict.middle) == (Tally(2, 4), Tally(1, 2))
    assert (verdict.p50, verdict.p99, verdict.failed, verdict.marked) == (Tally(4, 4), Tally(4, 4), 1, 0)
    assert str(verdict.share) == "2 of 4 (50%)"


def test_only_policies_over_five_points_apart_have_an_order():
    found = order("shop", 1.0, [cell("a", 0.90, 0.80), cell("b", 0.86, 0.85), cell("c", 0.50, 0.82)])
    assert (found.apart, found.wrong) == (2, (("a", "c"),))  # a and b are four points apart
    assert found.tau == pytest.approx(-1 / 3)  # of three pairs, only b and c agree


def test_a_live_difference_that_is_predicted_as_none_is_wrong():
    assert order("shop", 1.0, [cell("a", 0.9, 1.0), cell("b", 0.8, 1.0)]).wrong == (("a", "b"),)


def test_policies_below_fifo_at_half_load_are_named_and_no_others():
    verdict = judge(
        league(
            cell("fifo", 0.98, 1.0, load=0.5),
            cell("level", 0.97, 1.0, load=0.5),
            cell("behind", 0.96, 1.0, load=0.5),
            cell("fifo", 0.9, 1.0, load=2.0),
            cell("overloaded", 0.1, 1.0, load=2.0),
        )
    )
    assert [(one.policy, one.share, one.fifo_share) for one in verdict.behind] == [("behind", 0.96, 0.98)]
