"""Train the same agents with every way of seeing the others, and with weights of their own, and judge them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from fairlead.experiments.cases import Progress, each, read_settings
from fairlead.experiments.claims import Claim, above, decide
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, columns, difference, pick
from fairlead.experiments.simppo_bench import judge_agents, taught
from fairlead.report.figure import line_figure

SEPARATE = "global4, separate weights"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Reward, attainment and held vCPUs by what agents see of each other."""
    settings = read_settings(__package__)
    seeds: Sequence[int] = settings["quick_seeds" if quick else "seeds"]
    variants = [*settings["quick_variants" if quick else "variants"], SEPARATE]
    jobs = [(variant, seed) for variant in variants for seed in seeds]
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for position, result in each(partial(_work, settings=settings, quick=quick), jobs, in_parallel=True):
        found[jobs[position]] = result
        progress(len(found) / len(jobs), f"{jobs[position][0]}, seed {jobs[position][1]}")
    rows = []
    for variant in variants:
        runs = [found[variant, seed] for seed in seeds]
        row: dict[str, object] = {"others": variant}
        for what, digits in (("reward", 4), ("attainment", 4), ("vcpu_hours", 2), ("episodes", 0)):
            row |= columns(what, [float(one[what]) for one in runs], digits)
        rows.append(row)
    return Reproduction(
        name="simppo-ablation",
        title="SIMPPO: the value of seeing the others",
        rows=tuple(rows),
        figures=_figures(variants, found, seeds),
        notes=(
            f"Seeds {', '.join(map(str, seeds))}; ± is the 95 % interval over them. Reward per step of agents that "
            "take the likeliest action, in episodes that they were not trained on; attainment and vCPU hours by "
            "`simulate`.",
            "`none` are independent agents; `concat` is the joint state (multi-agent PPO), whose networks grow with "
            "the number of functions and must be made anew when that changes.",
        ),
    )


def _work(job: tuple[str, int], *, settings: Mapping[str, Any], quick: bool) -> Mapping[str, Any]:
    from fairlead.learn.functions.tenants import tenants_scenario  # noqa: PLC0415 - an extra
    from fairlead.learn.simppo.plan import Plan  # noqa: PLC0415 - an extra
    from fairlead.learn.simppo.training import evaluate  # noqa: PLC0415 - an extra
    from fairlead.policy.simppo.observation import Encoding, Others  # noqa: PLC0415 - beside the extra

    variant, seed = job
    others: Others = "global4" if variant == SEPARATE else variant  # type: ignore[assignment] # checked by Encoding
    scenario = tenants_scenario(settings["functions"], load=settings["load"])
    slots = settings["functions"] - 1 if others == "concat" else 0
    outcome = taught(
        Plan(
            scenario=scenario,
            encoding=Encoding(others=others, slots=slots),
            is_shared=variant != SEPARATE,
            episodes=settings["quick_episodes" if quick else "episodes"],
            seed=seed,
        )
    )
    span_s = settings["quick_duration_s" if quick else "duration_s"]
    served = judge_agents(scenario, outcome.checkpoint, seed, duration_s=span_s)
    rewards = evaluate(outcome.world, outcome.learner, episodes=3 if quick else 10, seed=10_000 + seed)
    return {
        "reward": float(rewards.mean()),
        "attainment": served.mean_attainment,
        "vcpu_hours": served.vcpu_hours,
        "episodes": len(outcome.curve.rewards),
        "curve": outcome.curve.mean.tolist(),
    }


def judge(rows: Rows) -> Iterator[Claim]:
    """Whether it is worth anything to see the others."""
    seen, none = (pick(rows, others=others) for others in ("global4", "none"))
    yield decide(
        "agents that see the others (global4) earn more than those that do not",
        above(0, "a higher reward, seed by seed"),
        difference(seen, none, "reward"),
        paper="yes (figure)",
        ours=f"{seen['reward']:.3f} against {none['reward']:.3f}",
    )


def _figures(
    variants: Sequence[str], found: Mapping[tuple[str, int], Mapping[str, Any]], seeds: Sequence[int]
) -> tuple[Figure, ...]:
    lines = {}
    for variant in variants:
        curves = [found[variant, seed]["curve"] for seed in seeds]
        shortest = min(map(len, curves))
        means = [fmean(curve[i] for curve in curves) for i in range(shortest)]
        lines[variant] = [
            (float(i + 1), fmean(means[max(0, i - 4) : i + 5])) for i in range(0, shortest, max(1, shortest // 60))
        ]
    svg = line_figure("Reward per step while training", lines, x_label="episodes", y_label="reward per step")
    return (Figure(name="learning", title="Learning curves", svg=svg),)
