"""The compiled core leaves the same records as the Python engine: every column, every row, to the last bit."""

import json
import os
import secrets
import subprocess
import sys
from dataclasses import replace
from math import nextafter
from pathlib import Path

import polars as pl
import pytest
from agreement import assert_same
from run_agreement import COMPARED, TELLS_BOUNDS
from run_checked import CHECKED
from world_features import REQUIRED

from fairlead.engine import simulate
from fairlead.model import Refusal
from fairlead.testing import cluster, declared, scenario

RUNNER = Path(__file__).with_name("run_agreement.py")
LEAST = 3  # of 300 runs, as many must show each feature


def compared(*, examples, seed, timeout_s, is_checked=True):
    """What the runner tried, with or without bounds checks; its complaint is the test's."""
    command = [sys.executable, "-W", "error", str(RUNNER), "--examples", str(examples), "--seed", str(seed)]
    environment = {**os.environ, **CHECKED} if is_checked else None
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return json.loads(done.stdout.splitlines()[-1])


def check(tally, examples, *, is_checked=True):
    assert bool(tally[TELLS_BOUNDS]) is is_checked, "NUMBA_BOUNDSCHECK had no effect"
    assert tally[COMPARED] >= examples
    least = LEAST if examples >= 300 else 0
    few = {feature: tally.get(feature, 0) for feature in REQUIRED if tally.get(feature, 0) < least}
    assert not few, f"the random runs hardly try these: {few}"


def test_random_runs_agree_to_the_last_bit():
    check(compared(examples=50, seed=0, timeout_s=600, is_checked=False), 50, is_checked=False)


@pytest.mark.slow
def test_random_runs_with_bounds_checks_agree_to_the_last_bit():
    check(compared(examples=300, seed=0, timeout_s=600), 300)


@pytest.mark.slow
def test_many_random_runs_agree_to_the_last_bit(capsys):
    seed = secrets.randbits(31)  # another one each time; a failure tells it
    tally = compared(examples=5000, seed=seed, timeout_s=3600)
    check(tally, 5000)
    with capsys.disabled():
        listed = "\n".join(f"{count:6} {feature}" for feature, count in sorted(tally.items()))
        sys.stdout.write(f"\n5000 runs from seed {seed}, and how many had what:\n{listed}\n")


# --- that the comparison sees what it should -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording():
    function = declared(0.5, cold_start_s=0.25, keep_alive_s=1)
    where = scenario(function, arrivals=(0, 0, 0, 1, 4), on=cluster(1, vcpus=2), slo_s=2, duration_s=8)
    return simulate(where, "fifo", engine="python")


def with_value(recording, table, column, row, value):
    """The recording with one value changed."""
    frame = getattr(recording, table)
    values = frame[column].to_list()
    values[row] = value
    return replace(recording, **{table: frame.with_columns(pl.Series(column, values, dtype=frame[column].dtype))})


def test_a_recording_is_the_same_as_itself_run_elsewhere(recording):
    assert_same(recording, replace(recording, engine="compiled", decision_s=(), run_wall_s=99.0))


@pytest.mark.parametrize(
    ("table", "column", "row"),
    [
        ("requests", "end", 4),
        ("requests", "cost_usd", 0),
        ("invocations", "start", 2),
        ("invocations", "end", 0),
        ("instances", "busy_s", 0),
    ],
)
def test_one_unit_in_the_last_place_is_a_difference(recording, table, column, row):
    value = getattr(recording, table)[column][row]
    other = with_value(recording, table, column, row, nextafter(value, 1e9))
    with pytest.raises(AssertionError, match=f"{table}: row {row} of .* differs in {column}"):
        assert_same(recording, other)


@pytest.mark.parametrize(
    ("table", "column", "row", "value"),
    [
        ("requests", "outcome", 0, "rejected"),
        ("requests", "reason", 1, ""),  # there is none: null is not nothing
        ("requests", "end", 2, None),
        ("invocations", "cold_s", 4, -0.0),
        ("invocations", "node", 1, "n1"),
        ("invocations", "is_cold", 0, False),
        ("instances", "cause", 0, None),
        ("instances", "stopped", 0, None),
    ],
)
def test_any_other_value_is_a_difference(recording, table, column, row, value):
    assert getattr(recording, table)[column][row] != value or value == 0
    other = with_value(recording, table, column, row, value)
    with pytest.raises(AssertionError, match=f"{table}: row {row} of .* differs in {column}"):
        assert_same(recording, other)


def test_the_first_difference_is_shown_in_full_with_both_rows(recording):
    start = recording.invocations["start"][1]
    late = with_value(recording, "invocations", "start", 1, start + 0.5)
    late = with_value(late, "invocations", "start", 3, 9.0)
    with pytest.raises(AssertionError) as caught:
        assert_same(recording, late)
    text = str(caught.value)
    assert f"start: {start!r} by python, {start + 0.5!r} by the compiled core (apart by 0.5)" in text
    assert str(recording.invocations.row(1, named=True)) in text
    assert str(late.invocations.row(1, named=True)) in text


@pytest.mark.parametrize("table", ["requests", "invocations", "instances"])
def test_rows_in_another_order_are_a_difference(recording, table):
    frame = getattr(recording, table)
    assert frame.height > 1
    with pytest.raises(AssertionError, match=f"{table}: row 0 "):
        assert_same(recording, replace(recording, **{table: frame.reverse()}))


@pytest.mark.parametrize("table", ["requests", "invocations", "instances"])
def test_a_row_less_is_a_difference(recording, table):
    frame = getattr(recording, table)
    with pytest.raises(AssertionError, match=f"{table}: {frame.height} rows by python, {frame.height - 1} by"):
        assert_same(recording, replace(recording, **{table: frame.head(-1)}))


def test_a_column_of_another_type_is_a_difference(recording):
    other = replace(recording, requests=recording.requests.with_columns(pl.col("request").cast(pl.Int32)))
    with pytest.raises(AssertionError, match="requests: types"):
        assert_same(recording, other)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("end_s", 7.25),
        ("seed", 1),
        ("policy", "least-loaded"),
        ("stale_events", 1),
        ("refusals", (Refusal(now=0.0, action="Wake(at=0.0)", reason="too late"),)),
        ("parameters", {}),
    ],
)
def test_what_is_beside_the_tables_counts_too(recording, field, value):
    with pytest.raises(AssertionError, match=f"^{field}: "):
        assert_same(recording, replace(recording, **{field: value}))
