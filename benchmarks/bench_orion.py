"""What Orion pays per state, in steps of a brute-force search: the default of `steps_per_state`.

A step of modelled decision time is one path of a brute-force search (docs/policies/orion.md). Both are compiled and run
on the same core here: a path of three stages with 256 options each, and the 95th percentile of the latency of a state,
by convolution of the histograms of its stages. Run: `python benchmarks/bench_orion.py`
"""

import time
from collections.abc import Callable

import numpy as np
from numba import njit

from fairlead.model import Workflow
from fairlead.planning.search import Search
from fairlead.policy.kit.options import all_options
from fairlead.policy.orion.distribution import Histogram, of_times
from fairlead.policy.orion.latency import Relative, likely_times
from fairlead.testing import site_of
from fairlead.workload import load_scenario

SCENARIO = "esg-strict-light"
BINS = 250  # up to the objective, as in the policy
STATES = 2000
REPEATS = 5


@njit(cache=True)
def percentile(first, shares, start, state):
    """The 95th percentile of the sum of the stages' times: convolutions as they are written in a textbook."""
    size = 1
    for option in state:
        size += start[option + 1] - start[option]
    total, longer = np.zeros(size), np.zeros(size)
    total[0] = 1.0
    count, low = 1, 0
    for option in state:
        longer[:] = 0.0
        for i in range(start[option], start[option + 1]):
            for j in range(count):
                longer[i - start[option] + j] += shares[i] * total[j]
        count += start[option + 1] - start[option] - 1
        low += first[option]
        total, longer = longer, total
    below = 0.0
    for i in range(count):
        below += total[i]
        if below >= 0.95:
            return low + i
    return low + count


@njit(cache=True)
def percentiles(first, shares, start, states):
    """All of these states, one after the other."""
    found = 0
    for i in range(len(states)):
        found += percentile(first, shares, start, states[i])
    return found


def best_s(work: Callable[[], object]) -> float:
    """The least of several times, after one that compiles."""
    work()
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def state_s(workflow: Workflow, histograms: dict[str, list[Histogram]]) -> tuple[float, float]:
    """The time per state, and how many bins a stage's histogram has on average."""
    parts = [histogram for stage in workflow.stages for histogram in histograms[stage.function]]
    options = [len(histograms[stage.function]) for stage in workflow.stages]
    begin = np.cumsum([0, *options[:-1]])
    states = np.random.default_rng(0).integers(0, options, (STATES, len(options))) + begin
    first = np.array([part.first for part in parts])
    start = np.cumsum([0, *(len(part.share) for part in parts)])
    shares = np.concatenate([part.share for part in parts])
    return best_s(lambda: percentiles(first, shares, start, states)) / STATES, len(shares) / len(parts)


def path_s() -> float:
    """The time per path of a compiled brute force over 256^3 of them."""
    rng = np.random.default_rng(0)
    search = Search([[(float(s), float(usd)) for s, usd in rng.random((256, 2))] for _ in range(3)])
    return best_s(lambda: search.run(1.0, 5, "brute-force")) / 256**3


def main() -> None:
    """Print the time per path, and per workflow that of a state and their ratio."""
    scenario = load_scenario(SCENARIO)
    site = site_of(scenario)
    per_path_s = path_s()
    print(f"brute force: {per_path_s * 1e9:.2f} ns per path")
    known = all_options(site)
    for name, workflow in scenario.workflows.items():
        histograms = {
            function: [
                of_times(likely_times(site.profiles[function], c, Relative()), workflow.slo.latency_s / BINS, 4 * BINS)
                for c in known[function].configurations
                if c.batch == 1
            ]
            for function in workflow.functions
        }
        per_state_s, bins = state_s(workflow, histograms)
        print(
            f"{name}: {len(workflow.stages)} stages of {bins:.0f} bins, {per_state_s * 1e6:.2f} us per state, "
            f"{per_state_s / per_path_s:.0f} paths"
        )


if __name__ == "__main__":
    main()
