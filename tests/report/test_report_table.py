"""Tables and the numbers in them."""

from io import StringIO

import pytest
from report_frames import recording, request, small
from rich.console import Console

from fairlead.report import Estimate, comparison_table, summarise, sweep_table
from fairlead.report.numbers import show, show_estimate


def text(table, width=100):
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(table)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (0.9704, "share", "97.0 %"),
        (0.99996, "share", "99.99 %"),
        (1.0, "share", "100.0 %"),
        (0.0001, "share", "<0.1 %"),
        (0.0004123, "seconds", "412 µs"),
        (0.29, "seconds", "290 ms"),
        (0.99999, "seconds", "1.00 s"),
        (1234.5, "seconds", "1,234 s"),
        (0.0, "seconds", "0 s"),
        (0.8312, "usd", "$0.831"),
        (0.000123, "usd", "$0.000123"),
        (1234567.0, "count", "1,234,567"),
        (24.13, "rate", "24.1"),
        (None, "rate", "–"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(value, kind, expected):
    assert show(value, kind) == expected


def test_an_estimate_has_one_unit_and_as_many_places_as_its_mean():
    assert show_estimate(Estimate(mean=0.412, half_width=0.0134, count=3), "seconds") == "412 ± 13 ms"
    assert show_estimate(Estimate(mean=0.412, half_width=None, count=1), "seconds") == "412 ms"


def test_policies_are_rows_of_a_comparison():
    shown = text(comparison_table([summarise(small(policy=name)) for name in ("fifo", "esg")], width=100))
    assert "fifo" in shown
    assert "esg" in shown
    assert "40.0%" in shown
    assert "$10.5" in shown
    assert "±" not in shown


def test_a_comparison_over_seeds_has_half_widths():
    runs = [recording([request(0, 0.0, 1.0 + seed)], seed=seed) for seed in (0, 1)]
    shown = text(comparison_table([summarise(run) for run in runs]))
    assert "1.50" in shown
    assert "±6.35s" in shown  # 12.706 x 0.7071 / sqrt(2)
    assert "over 2 seeds" in shown


def test_the_usual_columns_fit_a_narrow_terminal():
    runs = [recording([request(0, 0.0, 1.0)], policy=name) for name in ("fifo", "clockwork")]
    shown = text(comparison_table([summarise(run) for run in runs]), width=80)
    assert "…" not in shown
    assert "clockwork" in shown


def test_outcomes_that_never_happen_have_no_column():
    shown = text(comparison_table([summarise(small())]))
    assert "unfinished" in shown
    assert "dropped" not in shown


def test_points_are_rows_and_policies_columns_of_a_sweep():
    runs = [small(policy=name, point={"rate": rate}) for name in ("fifo", "esg") for rate in (10, 20)]
    lines = text(sweep_table([summarise(run) for run in runs], "latency_s.p50")).splitlines()
    assert any("fifo" in line and "esg" in line for line in lines)
    assert [line.split() for line in lines if "4.00s" in line] == [["10", "4.00s", "4.00s"], ["20", "4.00s", "4.00s"]]


def test_names_are_not_taken_for_markup():
    assert "[red]x" in text(comparison_table([summarise(small(policy="[red]x"))]))
