"""The comparison of two versions: in turn, by medians, and worse only beyond 5 %."""

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

LIVE = Path(__file__).parents[2] / "benchmarks" / "live"


@pytest.fixture(scope="module")
def compare():
    before = set(sys.modules)
    sys.path.insert(0, str(LIVE))
    try:
        yield import_module("compare")
    finally:
        sys.path.remove(str(LIVE))
        for name in ("compare", "gates", "rows", "systems"):
            if name not in before:
                sys.modules.pop(name, None)


def rows(system: str, *rates: float) -> list[SimpleNamespace]:
    """Closed loops of a no-op that got these answers per second."""
    return [
        SimpleNamespace(system=system, stage="noop", load="closed", result=SimpleNamespace(answered_rps=rate))
        for rate in rates
    ]


def test_versions_run_in_turn_and_each_goes_first_sometimes(compare):
    order = "".join(system for _, system in compare.interleaved(["A", "B"], 3))
    assert order == "ABBAAB"


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [((100, 96, 10), "within 5%"), ((94, 94, 200), "WORSE"), ((106, 106, 10), "better")],
    ids=["one-outlier-is-none", "six-percent-less", "six-percent-more"],
)
def test_the_median_of_three_decides(compare, rates, verdict):
    (found,) = compare.ratios([*rows("new", *rates), *rows("baseline", 100, 100, 100)])
    assert found.verdict == verdict
    assert (found.lowest, found.highest) == (min(rates) / 100, max(rates) / 100)
    assert found.measure.name in compare.ratio_table([found])


def test_a_shorter_time_is_better(compare):
    def light(system: str, p50: float) -> SimpleNamespace:
        result = SimpleNamespace(latency=SimpleNamespace(p50_s=p50))
        return SimpleNamespace(system=system, stage="noop", load="light", result=result)

    (found,) = compare.ratios([light("new", 0.9), light("baseline", 1.0)])
    assert found.verdict == "better"


def test_a_folder_that_is_no_checkout_is_refused(compare, tmp_path):
    with pytest.raises(SystemExit, match="is no checkout"):
        compare.versions(tmp_path)
