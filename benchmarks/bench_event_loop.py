"""How fast the Python engine is, against two bare programs in the same run on one core, and how its cost grows.

Prints stage invocations per second of CPU time (best of several, all in one process, pinned to one core), and how the
cost of an event grows with the number of finished requests and with the number of nodes; `bench.py --only python` runs
it too.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from math import log2
from statistics import mean
from time import process_time

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from workload_b import STAGES, Drawn, Draws, run_heapq, run_simpy

from fairlead.engine import simulate

Answer = tuple[int, float]


def run_fairlead(draws: Draws) -> Answer:
    """Workload B through the real engine, with `fifo` and with recording."""
    recording = simulate(draws.scenario, "fifo", physics=Drawn(draws.scenario, draws))
    latency = recording.requests["end"] - recording.requests["arrival"]
    return int(recording.invocations["is_cold"].sum()), float(latency.mean())


def rate(run: Callable[[Draws], Answer], draws: Draws) -> tuple[float, Answer]:
    """Stage invocations per CPU second, once, and what came out."""
    draws.scenario, draws.services  # noqa: B018 - made now, apart from what is measured
    before = process_time()
    answer = run(draws)
    return STAGES * len(draws.arrivals) / (process_time() - before), answer


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="requests of workload B (default: 20,000)")
    parser.add_argument("--repeats", type=int, default=5, help="alternating repetitions (default: 5)")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    options = parser.parse_args(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    console = Console(width=100)
    programs = {"fairlead (fifo, recording)": run_fairlead, "SimPy": run_simpy, "bare heapq": run_heapq}
    requests = 4_000 if options.quick else options.requests
    sizes = (4_000, 20_000) if options.quick else (10_000, 1_000_000)
    nodes = (16, 1024) if options.quick else (16, 4096)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("Measuring", total=options.repeats * len(programs) + 4)
        draws = Draws(requests)
        rates: dict[str, list[float]] = {name: [] for name in programs}
        answers: dict[str, Answer] = {}
        for _ in range(options.repeats):
            for name, program in programs.items():
                measured, answers[name] = rate(program, draws)
                rates[name].append(measured)
                progress.advance(bar)
        small = Draws(sizes[0])
        rates_small = [rate(run_fairlead, small)[0] for _ in range(5)]
        progress.advance(bar)
        large = rate(run_fairlead, Draws(sizes[1]))[0]
        progress.advance(bar)
        rates_small += [rate(run_fairlead, small)[0] for _ in range(5)]  # before and after: the machine drifts
        by_size = [mean(rates_small), large]
        by_nodes = []
        for count in nodes:  # as many requests per node, so that as many starts are cold
            scaled = Draws(100 * count, count)
            repeats = max(1, 16_000 // (100 * count))
            by_nodes.append(max(rate(run_fairlead, scaled)[0] for _ in range(repeats)))
            progress.advance(bar)
    return report(console, rates, answers, requests, sizes, by_size, nodes, by_nodes)


def report(console, rates, answers, requests, sizes, by_size, nodes, by_nodes) -> int:
    ours, simpy, bare = ((max(values), values) for values in rates.values())
    table = Table(title=f"Workload B, {requests:,} requests, one core")
    for column in ("program", "stage invocations/s (best)", "range", "cold starts", "mean latency"):
        table.add_column(column, justify="left" if column == "program" else "right")
    for name, values in rates.items():
        cold, mean = answers[name]
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        table.add_row(name, f"{max(values):,.0f}", spread, str(cold), f"{mean:.9f} s")
    console.print(table)
    agree = len({(cold, round(mean, 9)) for cold, mean in answers.values()}) == 1
    growth = by_nodes[0] / by_nodes[1]
    allowed = log2(nodes[1]) / log2(nodes[0])
    checks = [
        ("all three programs agree", agree, "cold starts and mean latency to 1e-9"),
        ("at least 1.3x SimPy", ours[0] >= 1.3 * simpy[0], f"{ours[0] / simpy[0]:.2f}x"),
        ("within 4x of bare heapq", ours[0] * 4 >= bare[0], f"{bare[0] / ours[0]:.2f}x slower"),
        (
            f"cost per event, {sizes[1]:,} against {sizes[0]:,} requests, no higher",
            by_size[0] / by_size[1] <= 1.15,
            f"{by_size[0] / by_size[1]:.2f}x ({by_size[0]:,.0f} and {by_size[1]:,.0f} per s)",
        ),
        (
            f"cost per event, {nodes[1]:,} against {nodes[0]} nodes, at most log n ({allowed:.1f}x)",
            growth <= allowed,
            f"{growth:.2f}x ({by_nodes[0]:,.0f} and {by_nodes[1]:,.0f} per s)",
        ),
    ]
    for claim, met, figure in checks:
        console.print(f"{'[green]met   [/]' if met else '[red]missed[/]'} {claim}: {figure}", highlight=False)
    return 0 if all(met for _, met, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
