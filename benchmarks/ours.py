"""The two engines on the common draws, and the three ways to hand one's own placement to the compiled one."""

from typing import Literal, Protocol

import numpy as np
import polars as pl
from measure import Answer

from fairlead.engine import simulate
from fairlead.engine.sim import Physics
from fairlead.engine.sim.compiled import CompiledRun, Placement, placement, python_placement
from fairlead.policy import Policy
from fairlead.workload import Scenario
from fairlead.workload.chunks import Chunk

Keeps = Literal["nothing", "records", "tables"]


class Draws(Protocol):
    """Arrivals, and one factor per stage of each."""

    times: np.ndarray
    factors: np.ndarray

    @property
    def scenario(self) -> Scenario: ...


def run_python(scenario: Scenario, policy: Policy, physics: Physics) -> Answer:
    """The readable engine; it records everything."""
    recording = simulate(scenario, policy, physics=physics)
    return answer(recording.requests, recording.invocations)


def run_compiled(draws: Draws, policy: Policy | Placement, keeps: Keeps) -> Answer:
    """The compiled engine, from arrays to totals, with or without records, or to the tables that `simulate` gives."""
    arrivals = Chunk(draws.times, np.zeros(len(draws.times), np.int32), draws.factors)
    run = CompiledRun(draws.scenario, policy, arrivals=[arrivals], record="none" if keeps == "nothing" else "all")
    run.go()
    if keeps == "tables":
        requests, invocations, _ = run.tables()
        return answer(requests, invocations)
    totals = run.totals()
    return Answer(cold_starts=totals.cold_starts, latency_mean_s=totals.latency_mean_s, rejected=totals.rejected)


def answer(requests: pl.DataFrame, invocations: pl.DataFrame) -> Answer:
    """Cold starts and mean latency of the completed requests, from the records."""
    completed = requests.filter(pl.col("outcome") == "completed")
    return Answer(
        cold_starts=int(invocations["is_cold"].sum()),
        latency_mean_s=float((completed["end"] - completed["arrival"]).mean()),
        rejected=int((requests["outcome"] == "rejected").sum()),
    )


# --- one's own placement: `free` in thousandths of a vCPU per node, `warm` in idle instances of the function per node


def warm_first(now, function, deadline, free, warm):
    """The warm node with the most free vCPUs, else the emptiest: the rule of workload B, to be compiled."""
    best, most = -1, 0
    for node in range(free.size):
        if free[node] >= 1000:
            score = free[node] + (1_000_000 if warm[node] else 0)
            if score > most:
                most, best = score, node
    return best


def warm_first_python(now, function, deadline, free, warm):
    """The same rule for the interpreter, which is quicker with lists than with arrays."""
    free, warm = free.tolist(), warm.tolist()
    best, most = -1, 0
    for node in range(len(free)):
        score = free[node]
        if score >= 1000:
            if warm[node]:
                score += 1_000_000
            if score > most:
                most, best = score, node
    return best


def emptiest(now, function, deadline, free, warm):
    """The one-liner: the node with the most free vCPUs, warm or not."""
    return free.argmax()


OWN = {
    "njit": lambda: placement(warm_first),
    "loop": lambda: python_placement(warm_first_python),
    "line": lambda: python_placement(emptiest),
}
"""These three as policies for the compiled engine."""
