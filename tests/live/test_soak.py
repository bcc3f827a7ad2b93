"""The soak, shortened: nothing grows in a quarter of a minute, and what does grow is found."""

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "live" / "soak.py"


@pytest.fixture(scope="module")
def slopes():
    spec = spec_from_file_location("slopes", SOAK.with_name("slopes.py"))
    module = module_from_spec(spec)
    sys.modules["slopes"] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["slopes"]


def minutes(count: int) -> list[float]:
    return [60.0 * n for n in range(count)]


def test_a_straight_line_has_its_own_slope_and_is_growth_beyond_what_is_allowed(slopes):
    values = [100 + 2.0 * n for n in range(20)]
    found = slopes.trend("x", minutes(20), values, slopes.Tolerance(0, 2))
    assert (found.slope.value, found.slope.low) == (pytest.approx(2), pytest.approx(2))
    assert found.growth == 30  # from the middle of the first five, 104, to that of the last five, 134
    assert not found.is_flat
    assert slopes.trend("x", minutes(20), values, slopes.Tolerance(0, 31)).is_flat
    assert not slopes.trend("x", minutes(20), values, slopes.Tolerance(0, 31, is_strict=True)).is_flat


def test_a_slope_that_is_certain_and_tiny_is_flat(slopes):
    values = [100 + 0.01 * n for n in range(20)]
    found = slopes.trend("x", minutes(20), values, slopes.Tolerance(0, 2, is_strict=True))
    assert found.slope.low > 0
    assert found.is_flat  # 0.01 per minute, where a hundredth of 2 is negligible


def test_noise_a_constant_and_a_falling_series_are_flat(slopes):
    noise = [100, 103, 98, 101, 99, 102, 100, 104, 99, 101]
    for values in (noise, [7] * 10, list(range(10, 0, -1))):
        assert slopes.trend("x", minutes(10), values, slopes.Tolerance(0, 3)).is_flat


def test_a_series_that_remembers_itself_has_a_wider_interval(slopes):
    waves = [0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 2, 1, 0]
    mixed = [0, 3, 1, 2, 0, 3, 2, 1, 1, 2, 3, 0, 2, 1, 3, 0]
    wide, narrow = (slopes.fit(range(16), values) for values in (waves, mixed))
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
    assert wide.contains_zero


def test_three_points_prove_nothing(slopes):
    assert slopes.fit(range(3), [1, 2, 3]).contains_zero


def test_a_bin_has_the_median_of_its_values(slopes):
    assert slopes.by_bin([0, 20, 40, 60, 200], [1, 9, 2, 5, 7], 60) == ([30, 90, 210], [2, 5, 7])


@pytest.mark.slow
def test_a_short_soak_shows_no_growth(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "FAIRLEAD_TOKEN"}
    # The latency of a machine that runs other tests too says nothing: the load leaves room for them.
    command = [sys.executable, str(SOAK), "--minutes", "0.2", "--window", "1.2", "--load", "0.5", "--churn", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors" in done.stdout
    assert "GROWS" not in done.stdout
