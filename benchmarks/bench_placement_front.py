"""How long a placement front takes and how large it is: 40 stages of 4 types, in families of graphs and of prices.

The first table is exact (series-parallel graphs); the last column of the second says how far off the others may be.
"""

import argparse
import sys
from collections.abc import Callable
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from fairlead.planning import placement_front

STAGES, TYPES = 40, 4
ASKED_S = 2.0

Graph = list[list[int]]
Options = list[list[tuple[float, float]]]


def chain(rng: np.random.Generator) -> Graph:
    return [[i - 1] if i else [] for i in range(STAGES)]


def fork_join(rng: np.random.Generator) -> Graph:
    """A stage, then two halves side by side, then a stage; each half the same."""

    def build(first: int, count: int, before: list[int]) -> list[int]:
        if count <= 3:
            for stage in range(first, first + count):
                graph[stage] = before
                before = [stage]
            return before
        graph[first] = before
        left = (count - 2) // 2
        ends = build(first + 1, left, [first]) + build(first + 1 + left, count - 2 - left, [first])
        graph[first + count - 1] = ends
        return [first + count - 1]

    graph: Graph = [[] for _ in range(STAGES)]
    build(0, STAGES, [])
    return graph


def layers(rng: np.random.Generator) -> Graph:
    """Eight layers of five; every stage after all of the layer before."""
    return [[j for j in range(i) if j // 5 == i // 5 - 1] for i in range(STAGES)]


def series_parallel(rng: np.random.Generator) -> Graph:
    """Random cuts, each in series or in parallel."""

    def build(first: int, count: int, before: list[int]) -> list[int]:
        if count == 1:
            graph[first] = before
            return [first]
        left = int(rng.integers(1, count))
        if rng.random() < 0.5:
            return build(first + left, count - left, build(first, left, before))
        return build(first, left, before) + build(first + left, count - left, before)

    graph: Graph = [[] for _ in range(STAGES)]
    build(0, STAGES, [])
    return graph


def two_blocks(rng: np.random.Generator) -> Graph:
    """Two chains of ten side by side, then the same again: the product of two large fronts."""
    return [[i - 1] if i % 10 else ([9, 19] if i >= 20 else []) for i in range(STAGES)]


def random_graph(rng: np.random.Generator, reach: int, share: float) -> Graph:
    return [[j for j in range(max(0, i - reach), i) if rng.random() < share] for i in range(STAGES)]


def independent(rng: np.random.Generator) -> Options:
    return [list(zip(*rng.random((2, TYPES)).tolist(), strict=True)) for _ in range(STAGES)]


def opposed(rng: np.random.Generator) -> Options:
    """Cost falls with latency, with noise."""
    latency = rng.random((STAGES, TYPES))
    cost = np.abs(1 - latency + rng.normal(0, 0.1, latency.shape))
    return np.stack([latency, cost], axis=2).tolist()


def inverse(rng: np.random.Generator) -> Options:
    """Cost is inverse to latency, exactly: no option beats another."""
    latency = rng.random((STAGES, TYPES))
    return np.stack([latency, 1 / (latency + 0.1)], axis=2).tolist()


def concave(rng: np.random.Generator) -> Options:
    """The middle options are bad bargains, but none beats another."""
    latency = rng.random((STAGES, TYPES))
    return np.stack([latency, np.sqrt(1 - latency)], axis=2).tolist()


def priced(rng: np.random.Generator) -> Options:
    """Four types up to eight times as fast and fifteen times as dear per second."""
    base = rng.lognormal(0, 0.5, (STAGES, 1))
    latency = base / (np.array([1, 2, 4, 8]) * rng.lognormal(0, 0.3, (STAGES, TYPES)))
    return np.stack([latency, latency * np.array([1, 2.5, 6, 15])], axis=2).tolist()


def linear(rng: np.random.Generator) -> Options:
    """Cost is one minus latency: no placement beats another, and there are 4^40."""
    latency = rng.random((STAGES, TYPES))
    return np.stack([latency, 1 - latency], axis=2).tolist()


GRAPHS = (chain, fork_join, layers, series_parallel, two_blocks)
PRICES = (independent, priced, opposed, inverse, concave, linear)


def measure(graph: Callable[[np.random.Generator], Graph], options: Callable, seeds: int) -> tuple[float, int, float]:
    """The longest time, the largest front and the largest bound over the seeds."""
    times, sizes, bounds = [], [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        declared, offered = graph(rng), options(rng)
        before = process_time()
        front = placement_front(declared, offered)
        times.append(process_time() - before)
        sizes.append(len(front))
        bounds.append(front.epsilon)
    return max(times), max(sizes), max(bounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="random graphs and prices per row (default: 10)")
    seeds = parser.parse_args().seeds
    console = Console(width=100)
    sparse = {
        f"random, {share:.0%} of {reach} before": (lambda rng, r=reach, s=share: random_graph(rng, r, s))
        for reach, share in ((3, 0.5), (6, 0.3), (39, 0.05), (39, 0.1))
    }
    met = True
    exact = {each.__name__: each for each in GRAPHS}
    for title, graphs, count in (
        ("Series-parallel", exact, seeds),
        ("Others", sparse, min(seeds, 3)),
    ):  # these are slow
        table = Table(title=f"{title}: {STAGES} stages, {TYPES} types, worst of {count}, CPU time")
        for column in ("graph", "prices", "time", "members", "epsilon"):
            table.add_column(column, justify="left" if column in ("graph", "prices") else "right")
        for name, graph in graphs.items():
            for options in PRICES:
                time_s, size, bound = measure(graph, options, count)
                table.add_row(
                    name, options.__name__, f"{time_s:.3f} s", f"{size:,}", f"{bound:.2g}" if bound else "exact"
                )
                if graph in GRAPHS and options is not linear:
                    met &= time_s < ASKED_S and bound == 0
        console.print(table)
    verdict = "[green]met   [/]" if met else "[red]missed[/]"
    console.print(
        f"{verdict} every series-parallel front but the linear ones: exact, in under {ASKED_S:g} s", highlight=False
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
