"""Run a shipped scenario once, and look at what happened."""

import polars as pl

from fairlead import simulate
from fairlead.report import summarise
from fairlead.workload import load_scenario

scenario = load_scenario("quickstart")
recording = simulate(scenario, "least-loaded", seed=0)
summary = summarise(recording)

print(f"{scenario.name}: {scenario.description}")
print(f"requests   {summary.requests} counted, {summary.completed} completed")
print(f"in time    {summary.slo_attainment:.1%} within {scenario.workflows['photos'].slo.latency_s} s")
print(f"latency    median {summary.latency_s.p50:.3f} s, p95 {summary.latency_s.p95:.3f} s")
print(f"cost       ${summary.cost_usd:.4f}")

# The recording holds every request, invocation and instance as a table.
by_function = (
    recording.invocations.group_by("function", maintain_order=True)
    .agg(
        invocations=pl.len(),
        mean_wait_s=(pl.col("start") - pl.col("ready")).mean().round(4),
        cold=pl.col("is_cold").sum(),
    )
    .sort("mean_wait_s", descending=True)
)
print("\nWhere invocations wait:")
for row in by_function.iter_rows(named=True):
    name, count, wait_s, cold = row.values()
    print(f"  {name:8} {count:5} invocations, mean wait {wait_s:.4f} s, {cold} cold starts")
