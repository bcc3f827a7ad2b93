"""How long a configuration search takes: 256 configurations of three functions, and how it grows with either.

The profiles are those of `fairlead reproduce esg-overhead`: 256 = 16 batch sizes x 4 vCPU x 4 vGPU sizes, times by a
power law whose exponents are drawn for each function, recalled execution times and prices. Budgets go from the least
latency that is possible to half as much again as the cheapest path takes: from nothing to choose to no constraint.

Times are CPU time of this process, one thread, the garbage collector off, after everything was compiled. The time by
the clock is printed beside them: it is longer where others use the machine.
"""

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from fairlead.experiments.cases import read_settings
from fairlead.experiments.esg_overhead.profiles import draw_profiles
from fairlead.planning import Search
from fairlead.planning.search import METHODS, Method
from fairlead.report.figure import line_figure

SETTINGS = read_settings("fairlead.experiments.esg_overhead")
GROUPS = list(SETTINGS["groups"].values())
TIMES_S = (0.086, 0.293, 0.147, 0.319, 0.828, 1.047)  # the six functions, in turn, for other numbers of stages
K = 5
FRONTIER_P99_MS, DUAL_P99_MS, LEAST_RATIO = 0.5, 10.0, 200.0
PUBLISHED_BRUTE_MS = 7258.0
PATIENCE_S = 3.0  # of a method, per search; what took longer is not tried with more


def timed(search: Search, budget_s: float, method: Method) -> tuple[float, float, int]:
    """CPU milliseconds, milliseconds by the clock, and steps of one search."""
    clock, before = perf_counter(), process_time()
    found = search.run(budget_s, K, method)
    return (process_time() - before) * 1e3, (perf_counter() - clock) * 1e3, found.steps


def prepared(tables: Sequence[np.ndarray]) -> tuple[Search, float]:
    """A search that is ready for any budget, and the CPU milliseconds that took."""
    before = process_time()
    search = Search(tables)
    search.run(0.0, K)
    return search, (process_time() - before) * 1e3


def budgets(search: Search, tables: Sequence[np.ndarray], count: int) -> np.ndarray:
    """From the least latency to half as much again as the cheapest path takes."""
    relaxed_s = 1.5 * sum(table[table[:, 1].argmin(), 0] for table in tables)
    return np.linspace(search.fastest_s, relaxed_s, count)


def speed(draws: int, console: Console) -> bool:
    """The three methods at 256 configurations and three stages; whether what is asked of them is met."""
    samples: dict[Method, list[tuple[float, float, int]]] = {method: [] for method in METHODS}
    preparation_ms = []
    for draw in range(draws):
        for number, execution_s in enumerate(GROUPS):
            tables = draw_profiles(SETTINGS, execution_s, np.random.default_rng([draw, number]))
            search, took_ms = prepared(tables)
            preparation_ms.append(took_ms)
            for budget_s in budgets(search, tables, 100):
                samples["frontier"].append(timed(search, budget_s, "frontier"))
            for budget_s in budgets(search, tables, 10):
                samples["dual-blade"].append(timed(search, budget_s, "dual-blade"))
            if draw < 2:
                for budget_s in budgets(search, tables, 4)[1:3]:
                    samples["brute-force"].append(timed(search, budget_s, "brute-force"))
    table = Table(title=f"256 configurations x 3 stages, k = {K}, {draws} draws of {len(GROUPS)} groups")
    for column in ("method", "searches", "CPU p50", "CPU p99", "clock p50", "clock p99", "steps p50", "steps p99"):
        table.add_column(column, justify="left" if column == "method" else "right")
    p50, p99 = {}, {}
    for method, each in samples.items():
        cpu, clock, steps = (np.percentile(column, [50, 99]) for column in zip(*each, strict=True))
        p50[method], p99[method] = cpu
        times = (f"{ms:.3f} ms" for ms in (*cpu, *clock))
        table.add_row(method, f"{len(each):,}", *times, *(f"{count:,.0f}" for count in steps))
    console.print(table)
    console.print(
        f"Preparation for frontier, once per group: {np.median(preparation_ms):.2f} ms, "
        f"{max(preparation_ms):.2f} ms at most",
        highlight=False,
    )
    ratio = p50["brute-force"] / p50["frontier"]
    published = PUBLISHED_BRUTE_MS / p50["frontier"]
    demands = [
        (p99["frontier"] <= FRONTIER_P99_MS, f"frontier p99 {p99['frontier']:.3f} ms <= {FRONTIER_P99_MS} ms"),
        (ratio >= LEAST_RATIO, f"brute force / frontier, medians: {ratio:,.0f} >= {LEAST_RATIO:.0f}"),
        (p99["dual-blade"] <= DUAL_P99_MS, f"dual-blade p99 {p99['dual-blade']:.2f} ms <= {DUAL_P99_MS:.0f} ms"),
    ]
    for is_met, what in demands:
        console.print(("[green]met   [/] " if is_met else "[red]missed[/] ") + what, highlight=False)
    console.print(
        f"       the paper's brute force ({PUBLISHED_BRUTE_MS:,.0f} ms) / frontier: {published:,.0f}", highlight=False
    )
    return all(is_met for is_met, _ in demands)


def growth(console: Console) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Median time and steps at budgets of 0.8, 1 and 1.2 L, over stages and over configurations."""
    table = Table(title="Growth: medians over budgets of 0.8, 1 and 1.2 L")
    for column in ("stages", "configurations", "method", "preparation", "CPU", "steps"):
        table.add_column(column, justify="left" if column == "method" else "right")
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {"stages": {}, "configurations": {}}
    points = [("stages", stages, batches) for batches in (4, 16) for stages in range(1, 11)]
    points += [("configurations", 3, batches) for batches in (1, 2, 4, 8, 16, 32, 63)]
    given_up: set[tuple[str, Method, int]] = set()
    for axis, stages, batches in points:
        settings = {**SETTINGS, "configurations": {**SETTINGS["configurations"], "batch": list(range(1, batches + 1))}}
        execution_s = [TIMES_S[i % len(TIMES_S)] for i in range(stages)]
        tables = draw_profiles(settings, execution_s, np.random.default_rng(0))
        search, took_ms = prepared(tables)
        size = len(tables[0])
        for method in ("frontier", "dual-blade"):
            series = (axis, method, batches if axis == "stages" else 0)
            name = f"{method}, {size}" if axis == "stages" else method
            x = stages if axis == "stages" else size
            shown = f"{took_ms:.1f} ms" if method == "frontier" else ""
            if series in given_up:
                continue
            repeats = 20 if method == "frontier" else 3
            try:
                found = [
                    timed(search, factor * sum(execution_s), method)
                    for factor in (0.8, 1.0, 1.2)
                    for _ in range(repeats)
                ]
            except ValueError:
                given_up.add(series)
                table.add_row(
                    str(stages), f"{size:,}", method, shown, "would keep too many paths; no more is tried", ""
                )
                continue
            cpu_ms, _, steps = (float(np.median(column)) for column in zip(*found, strict=True))
            table.add_row(str(stages), f"{size:,}", method, shown, f"{cpu_ms:.3f} ms", f"{steps:,.0f}")
            lines[axis].setdefault(name, []).append((x, cpu_ms))
            if cpu_ms > PATIENCE_S * 1e3:
                given_up.add(series)
    console.print(table)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10, help="of the exponents, for each group (default: 10)")
    parser.add_argument("--figure", type=Path, metavar="FOLDER", help="write the growth as SVG files")
    options = parser.parse_args()
    console = Console(width=120)
    for method in METHODS:
        Search([[(1.0, 1.0), (2.0, 0.5)]] * 3).run(9.0, K, method)
    gc.disable()
    met = speed(options.draws, console)
    lines = growth(console)
    if options.figure is not None:
        for axis, label in (
            ("stages", "stages, of 64 and 256 configurations"),
            ("configurations", "configurations of each of three stages"),
        ):
            svg = line_figure(
                f"Configuration search: time over the number of {axis}",
                lines[axis],
                x_label=label,
                y_label="CPU milliseconds",
                is_log_x=axis == "configurations",
                is_log_y=True,
            )
            path = options.figure / f"search-{axis}.svg"
            path.write_text(svg, encoding="utf-8", newline="\n")
            console.print(f"Wrote {path}", highlight=False)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
