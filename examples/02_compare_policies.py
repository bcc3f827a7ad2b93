"""Compare policies on the same requests and the same luck, over several seeds."""

from rich.console import Console

from fairlead import simulate
from fairlead.report import comparison_table, summarise
from fairlead.workload import load_scenario

POLICIES = ("fifo", "least-loaded", "earliest-deadline")
SEEDS = range(3)

# A shorter run, at four fifths of the shipped rate. Any setting of the file can be overridden by its dotted path.
scenario = load_scenario("quickstart", overrides={"duration_s": 20, "rate_scale": 0.8})
summaries = [summarise(simulate(scenario, policy, seed=seed)) for policy in POLICIES for seed in SEEDS]

Console(highlight=False).print(comparison_table(summaries, title="quickstart at 80 % of its rate"))

# The n-th request draws the same noise under every policy, so differences between runs are differences of policy.
for seed in SEEDS:
    same_seed = [summary for summary in summaries if summary.seed == seed]
    best = max(same_seed, key=lambda summary: (summary.slo_attainment or 0.0, -summary.cost_usd))
    print(f"seed {seed}: {best.policy} answers most in time ({best.slo_attainment:.1%})")
