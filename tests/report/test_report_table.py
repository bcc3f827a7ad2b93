"""Tables and the numbers in them."""

from io import StringIO

import pytest
from report_frames import recording, request, small
from rich.console import Console

from fairlead.report import Estimate, comparison_table, result_tables, summarise, sweep_table
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
    assert "40.0 %" in shown
    assert "$10.5" in shown
    assert "±" not in shown


def test_a_comparison_over_seeds_has_half_widths():
    runs = [recording([request(0, 0.0, 1.0 + seed)], seed=seed) for seed in (0, 1)]
    shown = text(comparison_table([summarise(run) for run in runs]))
    assert "1.50 ±6.35 s" in shown  # 12.706 x 0.7071 / sqrt(2)
    assert "over 2 seeds" in shown


def test_what_is_the_same_for_every_seed_is_a_whole_number():
    assert show_estimate(Estimate(mean=80.0, half_width=0.0, count=2), "count") == "80 ± 0"
    assert show_estimate(Estimate(mean=80.5, half_width=6.4, count=2), "count") == "80.5 ± 6.4"


@pytest.mark.parametrize("seeds", [1, 5])
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_comparison_fits_its_width_with_names_and_numbers_whole(width, seeds):
    names = ("fifo", "kaas-round-robin", "earliest-deadline")
    runs = [small(policy=name, seed=seed, decision_s=(0.1,)) for name in names for seed in range(seeds)]
    shown = text(comparison_table([summarise(run) for run in runs], width=width), width=width)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in shown
    assert [line.split()[0] for line in lines if line.startswith(names)] == list(names)
    assert "goodput" in shown


def test_at_80_columns_goodput_and_latency_come_before_cost():
    names = ("fifo", "kaas-round-robin", "earliest-deadline")
    runs = [small(policy=name, seed=seed) for name in names for seed in range(3)]
    shown = text(comparison_table([summarise(run) for run in runs], width=80), width=80)
    heading = " ".join(shown.splitlines()[1].split())
    assert heading.startswith("policy time /s p50")  # above: in, goodput, latency; each is a mean and a half-width
    assert "mean wait, cost, cold starts" in " ".join(shown.split())
    wide = text(comparison_table([summarise(run) for run in runs[:1]], width=80), width=80)
    assert wide.splitlines()[1].split()[:6] == ["policy", "time", "/s", "p50", "p95", "p99"]


def test_what_has_no_room_is_named():
    runs = [small(policy="kaas-round-robin", seed=seed) for seed in (0, 1)]
    narrow = text(comparison_table([summarise(run) for run in runs], width=80), width=80)
    assert "No room here for:" in narrow
    assert "mean wait, cost" in " ".join(narrow.split())
    assert "No room" not in text(comparison_table([summarise(run) for run in runs], width=200), width=200)


def test_a_long_list_of_parameters_wraps_between_words():
    runs = [small(parameters={"reserve_per_function": value, "queue_limit": value * 1000}) for value in (1, 2)]
    shown = text(comparison_table([summarise(run) for run in runs], width=60), width=60)
    assert max(map(len, shown.splitlines())) <= 60
    assert "(reserve_per_function=2," in shown
    assert "queue_limit=2000)" in shown


def test_outcomes_that_never_happen_have_no_column():
    shown = text(comparison_table([summarise(small())], width=100))
    assert "unfinished" in shown
    assert "rejected" in shown
    assert "dropped" not in shown
    assert "rejected" not in text(comparison_table([summarise(recording([request(0, 0.0, 1.0)]))], width=200))


def test_a_column_of_nothing_but_all_gives_way_to_a_sentence():
    runs = [recording([request(0, 0.0, 1.0)], policy=name) for name in ("fifo", "kaas-round-robin")]
    shown = text(comparison_table([summarise(run) for run in runs], width=70), width=70)
    assert "Every request was answered in time." in shown
    assert "100.0 %" not in shown


def test_runs_that_differ_in_a_parameter_are_rows_that_name_it():
    runs = [
        small(policy="kaas-srtf", seed=seed, parameters={"mode": mode, "limit": 3})
        for mode in ("fixed", "compat")
        for seed in (0, 1)
    ]
    shown = text(comparison_table([summarise(run) for run in [*runs, small(seed=0), small(seed=1)]]))
    assert "kaas-srtf (mode=fixed)" in shown
    assert "kaas-srtf (mode=compat)" in shown
    assert "limit" not in shown
    assert "over 2 seeds" in shown


def test_a_parameter_that_is_swept_is_told_by_the_point_only():
    runs = [small(parameters={"headroom": share}, point={"policy.headroom": share}) for share in (0.1, 0.2)]
    shown = text(sweep_table([summarise(run) for run in runs]))
    assert "(headroom" not in shown


@pytest.mark.parametrize(("width", "count"), [(80, 3), (40, 1)], ids=["side-by-side", "row-by-row"])
def test_policies_of_a_sweep_stand_side_by_side_where_they_fit(width, count):
    names = ("fifo", "kaas-round-robin", "earliest-deadline")
    runs = [small(policy=name, point={"rate": rate}) for name in names for rate in (10, 20)]
    tables = result_tables([summarise(run) for run in runs], title="small", width=width)
    assert len(tables) == count
    assert "kaas-round-robin" in text(tables[0], width=width)


def test_rows_of_one_point_are_together():
    runs = [small(policy=name, point={"rate": rate}) for name in ("fifo", "esg") for rate in (10, 20)]
    lines = text(comparison_table([summarise(run) for run in runs])).splitlines()
    assert [line.split()[:2] for line in lines if line[:2] in ("10", "20")] == [
        ["10", "fifo"],
        ["10", "esg"],
        ["20", "fifo"],
        ["20", "esg"],
    ]


def test_points_are_rows_and_policies_columns_of_a_sweep():
    runs = [small(policy=name, point={"rate": rate}) for name in ("fifo", "esg") for rate in (10, 20)]
    lines = text(sweep_table([summarise(run) for run in runs], "latency_s.p50")).splitlines()
    assert any("fifo" in line and "esg" in line for line in lines)
    assert [line.split() for line in lines if "4.00 s" in line] == [
        ["10", "4.00", "s", "4.00", "s"],
        ["20", "4.00", "s", "4.00", "s"],
    ]


def test_names_are_not_taken_for_markup():
    assert "[red]x" in text(comparison_table([summarise(small(policy="[red]x"))]))
