"""The soak, shortened: nothing grows in a quarter of a minute, and what does grow is found."""

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "live" / "soak.py"


@pytest.fixture(scope="module")
def soak():
    spec = spec_from_file_location("soak", SOAK)
    module = module_from_spec(spec)
    sys.modules["soak"] = module  # dataclasses look their module up
    before = sys.path[:]
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = before
        del sys.modules["soak"]


def test_a_straight_line_has_its_own_slope_and_is_growth_beyond_the_tolerance(soak):
    times, values = range(10), [100 + 2 * n for n in range(10)]
    found = soak.trend("x", times, values, soak.Tolerance(0.1, 1))
    assert (found.level, found.rise) == (109, 18)  # 9 steps of 2
    assert found.is_growth  # 18 is more than a tenth of 109
    assert not soak.trend("x", times, values, soak.Tolerance(0.1, 20)).is_growth


def test_noise_and_one_outlier_are_no_growth(soak):
    values = [100, 103, 98, 101, 99, 102, 100, 500, 99, 101]
    found = soak.trend("x", range(10), values, soak.Tolerance(0, 1))
    assert not found.is_rising
    assert abs(found.rise) < 3


def test_a_falling_series_is_no_growth(soak):
    assert not soak.trend("x", range(10), range(10, 0, -1), soak.Tolerance(0, 0)).is_growth


def test_a_few_points_prove_nothing(soak):
    assert not soak.trend("x", range(3), [1, 2, 3], soak.Tolerance(0, 0)).is_growth


@pytest.mark.slow
def test_a_short_soak_shows_no_growth(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "FAIRLEAD_TOKEN"}
    # The latency of a machine that runs other tests too says nothing: the load leaves room for them.
    command = [sys.executable, str(SOAK), "--minutes", "0.2", "--window", "1.2", "--load", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors" in done.stdout
    assert "GROWS" not in done.stdout
