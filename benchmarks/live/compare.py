"""Two versions of Fairlead under the same load, interleaved: is the new one slower?

Both run with this Python, the sources of their own checkout and its default policy; the app and the load generator are
this checkout's.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gates import p50_s, rate_rps
from rows import CLOSED, LIGHT, Row
from systems import BATCHED, HERE, NOOP, System, fairlead_command

NEW, BASELINE = "new", "baseline"
SHARES = (1.3, 3.0)  # of the capacity that the same version has shown just before
WITHIN = 0.05


@dataclass(frozen=True)
class Measure:
    """One row of the comparison."""

    name: str
    stage: str
    load: str
    read: Callable[[Row], float | None]
    unit: str
    scale: float
    is_less_better: bool = False


def goodput_rps(row: Row) -> float:
    return row.result.goodput_rps


MEASURES = (
    Measure("no-op p50", NOOP, LIGHT, p50_s, "ms", 1e3, is_less_better=True),
    Measure("no-op closed loop", NOOP, CLOSED, rate_rps, "/s", 1),
    Measure("batched stage, capacity", BATCHED, CLOSED, rate_rps, "/s", 1),
    Measure("goodput at 130 %", BATCHED, "130%", goodput_rps, "/s", 1),
    Measure("goodput at 300 %", BATCHED, "300%", goodput_rps, "/s", 1),
)


@dataclass(frozen=True)
class Ratio:
    """A measure of the new version over that of the baseline: of the medians, and of each pair of runs."""

    measure: Measure
    new: float
    baseline: float
    lowest: float
    highest: float

    @property
    def value(self) -> float:
        return self.new / self.baseline

    @property
    def verdict(self) -> str:
        better_by = (1 - self.value) if self.measure.is_less_better else (self.value - 1)
        if better_by < -WITHIN:
            return "WORSE"
        return "better" if better_by > WITHIN else f"within {WITHIN:.0%}"


def versions(baseline: Path) -> list[System]:
    """The new version and the baseline, which must be a checkout."""
    found = []
    for name, root in ((NEW, HERE.parents[1]), (BASELINE, baseline.resolve())):
        source = root / "src"
        used = subprocess.run(
            [sys.executable, "-c", "import fairlead; print(fairlead.__file__)"],
            env={"PYTHONPATH": str(source), "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
        if not used or not Path(used).is_relative_to(source):
            sys.exit(f"--baseline {root}: is no checkout of Fairlead; {source}/fairlead cannot be imported from there.")
        found.append(
            System(
                name=name,
                label=f"{name} ({root})",
                commands={stage: fairlead_command(stage) for stage in (NOOP, BATCHED)},
                paths={stage: f"/v1/workflows/{stage}" for stage in (NOOP, BATCHED)},
                environment={"PYTHONPATH": str(source)},
            )
        )
    return found


def interleaved(pair: Sequence[System], repeats: int) -> list[tuple[int, System]]:
    """A B, B A, A B, ...: what drifts over the run hits both alike."""
    return [(number, system) for number in range(repeats) for system in (pair if number % 2 == 0 else pair[::-1])]


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """Every measure that both versions have."""
    found = []
    for measure in MEASURES:
        values = {
            name: [
                value
                for row in rows
                if (row.system, row.stage, row.load) == (name, measure.stage, measure.load)
                and (value := measure.read(row))
            ]
            for name in (NEW, BASELINE)
        }
        new, baseline = values[NEW], values[BASELINE]
        if new and baseline:
            pairs = [one / other for one, other in zip(new, baseline, strict=False)]
            found.append(Ratio(measure, median(new), median(baseline), min(pairs), max(pairs)))
    return found


def ratio_table(found: Sequence[Ratio]) -> str:
    """The comparison as Markdown."""
    lines = [
        "| measure | new | baseline | new / baseline | lowest to highest pair | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for ratio in found:
        one = ratio.measure
        figures = [
            f"{value * one.scale:,.3g} {one.unit}" if one.unit == "ms" else f"{value:,.0f}{one.unit}"
            for value in (ratio.new, ratio.baseline)
        ]
        spread = f"{ratio.lowest:.3f} to {ratio.highest:.3f}"
        lines.append(f"| {one.name} | {figures[0]} | {figures[1]} | {ratio.value:.3f} | {spread} | {ratio.verdict} |")
    return "\n".join(lines)
