"""Claims are decided by intervals: the rules, by hand-checkable numbers and by properties."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.experiments import EXPERIMENTS, committed_experiment
from fairlead.experiments.claims import (
    NO_INTERVAL,
    Measured,
    Rule,
    Tally,
    above,
    around,
    at_least,
    at_most,
    below,
    between,
    conjunction,
    decide,
    decide_all,
    equal,
    exact,
    fact,
    paired,
    paired_ratio,
    sampled,
    tally,
    within,
)
from fairlead.experiments.rows import by_seed, columns, difference, from_csv, measured, quotient, to_csv

NUMBERS = st.floats(-1e6, 1e6)
WIDTHS = st.floats(0, 1e5)


@pytest.mark.parametrize(
    ("rule", "figure", "verdict"),
    [
        (at_least(0.9), around(0.95, 0.04), "met"),  # 0.91 to 0.99
        (at_least(0.9), around(0.95, 0.06), "not decided"),  # 0.89 to 1.01
        (at_least(0.9), around(0.8, 0.05), "not met"),
        (at_most(3), around(-0.7, 1.6), "met"),
        (at_most(3), around(2.0, 1.6), "not decided"),
        (above(0), exact(0), "not met"),
        (at_least(0), exact(0), "met"),
        (below(10), exact(10), "not met"),
        (between(0.75, 1.0), around(0.85, 0.05), "met"),
        (between(0.75, 1.0), around(0.98, 0.05), "not decided"),
        (between(0.75, 1.0), around(1.2, 0.1), "not met"),
        (within(0.2, 80.65), around(6.84, 1.48), "not met"),  # 64.5 to 96.8
        (within(0.2, 80.65), around(80, 10), "met"),
        (equal(3), exact(3), "met"),
        (equal(3), exact(4), "not met"),
        (equal(3), around(3, 0.1), "not decided"),
    ],
)
def test_a_claim_is_met_if_the_whole_interval_is_accepted_and_not_met_if_none_of_it_is(rule, figure, verdict):
    assert rule.verdict(figure) == verdict


@pytest.mark.parametrize("rule", [at_least(0), at_most(0), between(-1, 1), above(5), equal(1)])
def test_one_run_of_a_noisy_figure_decides_nothing(rule):
    assert rule.verdict(sampled([1.0])) == "not decided"
    assert rule.verdict(Measured(nan, nan, nan)) == "not decided"


def test_an_undecided_claim_without_an_interval_says_what_is_needed():
    claim = decide("faster", above(0), sampled([1.0]), paper="yes")
    assert (claim.verdict, claim.interval, claim.note) == ("not decided", None, NO_INTERVAL)


def test_intervals_are_students():
    # 1, 2, 3: mean 2, deviation 1, t(2) = 4.302653, over the root of 3.
    found = sampled([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.high - found.mean == pytest.approx(4.302653 / 3**0.5)


def test_pairs_of_the_same_seed_are_told_apart_where_the_two_means_are_not():
    ours, theirs = [1.0, 5.0, 9.0], [0.9, 4.8, 8.7]  # 0.1, 0.2 and 0.3 apart
    assert above(-0.1).verdict(paired(ours, theirs)) == "met"
    assert above(-0.1).verdict(sampled(ours).minus(sampled(theirs))) == "not decided"


def test_a_lead_by_a_factor_is_judged_as_a_difference():
    # 0.9 - 1.36 x 0.6 = 0.084 and 0.92 - 1.36 x 0.6 = 0.104
    found = paired([0.9, 0.92], [0.6, 0.6], 1.36)
    assert found.mean == pytest.approx(0.094)
    assert paired([0.9, 0.9], [0.0, 0.0], 1.36).mean == pytest.approx(0.9)  # a rival at zero is no trouble


def test_half_widths_of_independent_figures_add_up_as_squares():
    found = around(10, 3).minus(around(1, 2), 2)  # 3 and 2 x 2
    assert (found.mean, found.low, found.high) == (8, 3, 13)


def test_a_quotient_has_an_interval_too():
    found = around(10, 1).over(around(2, 0.2))  # 10 % each: 14.1 % of 5
    assert found.mean == 5
    assert found.high - found.mean == pytest.approx(5 * 0.1 * 2**0.5)
    assert around(10, 1).over(around(0.1, 0.2)).interval is None  # the divisor may be zero
    assert paired_ratio([2.0, 4.0], [1.0, 2.0]) == exact(2)
    # 3 / 2, and each pair off its line by 0.5 and -0.5, over 2.
    assert paired_ratio([2.0, 4.0], [1.0, 3.0]).mean == 1.5
    assert paired_ratio([2.0, 4.0], [1.0, 3.0]) == sampled([1.75, 1.25])
    assert paired_ratio([1.0], [0.0]).interval is None


def test_an_order_is_met_only_if_every_rival_is_beaten_and_not_met_if_one_is_ahead():
    won, lost, open_ = around(1, 0.5), around(-1, 0.5), around(0.1, 0.5)
    rule = above(0, "above every rival")
    assert decide("first", rule, won, won, paper="").verdict == "met"
    assert decide("first", rule, won, open_, paper="").verdict == "not decided"
    assert decide("first", rule, won, open_, lost, paper="").verdict == "not met"


def test_the_interval_shown_is_of_the_part_that_decides():
    claim = decide("first", above(0), around(5, 1), around(2, 1), paper="yes", ours="both")
    assert (claim.verdict, claim.interval, claim.ours) == ("met", (1, 3), "both")  # the narrower lead
    parts = [(at_least(0.95), around(0.99, 0.01)), (at_least(0.75), around(0.7, 0.1))]
    claim = decide_all("loose and strict", "at least 0.95 and 0.75", parts, paper="95 and 75 %", kind="fit")
    assert (claim.verdict, claim.kind, claim.ours) == ("not decided", "fit", 0.7)
    assert claim.interval == pytest.approx((0.6, 0.8))


def test_a_deterministic_result_that_is_no_number_is_met_or_not():
    assert fact("trace", "equal", True, paper="a b", ours="a b").verdict == "met"
    assert fact("trace", "equal", False, paper="a b", ours="b a").verdict == "not met"


def test_verdicts_are_counted():
    claims = [fact("", "", is_so, paper=1, ours=1) for is_so in (True, True, False)]
    claims.append(decide("", above(0), sampled([1.0]), paper=1))
    assert tally(claims) == Tally(met=2, not_met=1, not_decided=1)
    assert tally(claims).claims == 4


@given(NUMBERS, NUMBERS, WIDTHS)
def test_turning_the_sign_of_everything_changes_no_verdict(bar, mean, half):
    turned = around(-mean, half)
    assert at_least(bar).verdict(around(mean, half)) == at_most(-bar).verdict(turned)
    assert above(bar).verdict(around(mean, half)) == below(-bar).verdict(turned)


@given(NUMBERS, NUMBERS, WIDTHS, WIDTHS)
def test_a_wider_interval_never_turns_a_verdict_around(bar, mean, half, more):
    narrow, wide = (at_least(bar).verdict(around(mean, width)) for width in (half, half + more))
    assert wide in (narrow, "not decided")


@given(NUMBERS, NUMBERS)
def test_an_exact_figure_is_always_decided(bar, value):
    for rule in (at_least(bar), at_most(bar), above(bar), below(bar), equal(bar)):
        assert rule.verdict(exact(value)) != "not decided"


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=6))
def test_swapping_the_two_sides_of_a_comparison_swaps_met_and_not_met(pairs):
    ours, theirs = (list(side) for side in zip(*pairs, strict=True))
    swapped = {"met": "not met", "not met": "met", "not decided": "not decided"}
    assert above(0).verdict(paired(ours, theirs)) == swapped[at_least(0).verdict(paired(theirs, ours))]


@given(st.lists(st.sampled_from(["met", "not met", "not decided"]), min_size=1))
def test_a_conjunction_is_as_bad_as_its_worst_part(verdicts):
    order = ["not met", "not decided", "met"]
    assert conjunction(verdicts) == min(verdicts, key=order.index)


def test_a_rule_without_ends_accepts_everything_that_is_known():
    assert Rule("anything", -inf, inf).verdict(around(3, 100)) == "met"


# --- rows -----------------------------------------------------------------------------------------------------------


def test_rows_come_back_from_a_table_with_their_types():
    rows = [{"a": 1, "b": 2.5, "c": "x", "d": True}, {"a": None, "e": "1:2"}]
    assert from_csv(to_csv(rows)) == [
        {"a": 1, "b": 2.5, "c": "x", "d": True, "e": None},
        {"a": None, "b": None, "c": None, "d": None, "e": "1:2"},
    ]


def test_a_figure_of_a_row_has_the_interval_of_its_seeds_or_the_one_that_is_written():
    (seeds, half, alone) = from_csv(
        to_csv([columns("wait", [1, 2, 3], 2), {"wait": 2, "wait_interval": 1}, {"wait": 2}])
    )
    assert measured(seeds, "wait") == sampled([1.0, 2.0, 3.0])
    assert measured(half, "wait") == around(2, 1)
    assert measured(alone, "wait").interval is None
    assert measured(from_csv(to_csv([columns("wait", [2.0], 2)]))[0], "wait").interval is None


def test_rows_are_compared_seed_by_seed_where_both_have_seeds():
    ours, theirs = {"x_by_seed": by_seed([2, 4])}, {"x_by_seed": by_seed([1, 2])}
    assert difference(ours, theirs, "x") == paired([2, 4], [1, 2])
    assert quotient(ours, theirs, "x") == exact(2)
    one, other = {"x": 3, "x_half_width": 3}, {"x": 1, "x_half_width": 4}
    assert difference(one, other, "x") == around(2, 5)


# --- every experiment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_committed_rows_are_judged_without_running_anything(name):
    result = committed_experiment(name)
    assert result.rows
    assert result.claims
    for claim in result.claims:
        assert claim.rule
        assert claim.kind in ("reproduction", "fit", "own")
        assert claim.note or claim.verdict == "met" or claim.interval is not None or claim.kind == "own", claim
