"""Agents of functions in workflows, with and without their place in it and the lateness of requests there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from fairlead.experiments.cases import Progress, each, read_settings
from fairlead.experiments.claims import Claim, above, decide
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, columns, difference, pick
from fairlead.experiments.simppo_bench import Served, judge_agents, judge_scaler, taught
from fairlead.policy import make_policy

AWARE, UNAWARE = "simppo, workflow-aware", "simppo"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """End-to-end attainment of four workflows of twelve functions."""
    settings = read_settings(__package__)
    seeds: Sequence[int] = settings["quick_seeds" if quick else "seeds"]
    labels = (AWARE, UNAWARE, "threshold", "hpa")
    jobs = [(label, seed) for seed in seeds for label in labels]
    found: dict[tuple[str, int], Served] = {}
    for position, served in each(partial(_work, settings=settings, quick=quick), jobs, in_parallel=True):
        found[jobs[position]] = served
        progress(len(found) / len(jobs), f"{jobs[position][0]}, seed {jobs[position][1]}")
    rows = []
    for label in labels:
        runs = [found[label, seed] for seed in seeds]
        rows.append(
            {
                "scaler": label,
                **columns("attainment", [one.mean_attainment for one in runs], 4),
                **columns("vcpu_hours", [one.vcpu_hours for one in runs], 2),
                **{
                    f"attainment of {name}": round(fmean(one.attainment[name] for one in runs), 4)
                    for name in runs[0].attainment
                },
            }
        )
    return Reproduction(
        name="simppo-workflows",
        title="SIMPPO, workflow-aware: end-to-end attainment",
        rows=tuple(rows),
        notes=(
            "Aware agents see the shares of the objective meant for what comes before and after them, and how late "
            "requests are when they leave, against all that is meant for them up to there; their reward counts that "
            "lateness in place of their own share of the objective. All else is the same.",
            f"Seeds {', '.join(map(str, seeds))} of training and of judging; ± is the 95 % interval over them.",
        ),
    )


def _work(job: tuple[str, int], *, settings: Mapping[str, Any], quick: bool) -> Served:
    from fairlead.learn.functions.tenants import chains_scenario  # noqa: PLC0415 - an extra
    from fairlead.learn.simppo.plan import Plan  # noqa: PLC0415 - an extra
    from fairlead.policy.simppo.observation import Encoding  # noqa: PLC0415 - beside the extra

    label, seed = job
    scenario = chains_scenario(load=settings["load"], slo_factor=settings["slo_factor"])
    span_s: float = settings["quick_duration_s" if quick else "duration_s"]
    if label not in (AWARE, UNAWARE):
        return judge_scaler(scenario, make_policy(label), seed, duration_s=span_s)
    outcome = taught(
        Plan(
            scenario=scenario,
            encoding=Encoding(is_workflow_aware=label == AWARE),
            is_shared=True,
            episodes=settings["quick_episodes" if quick else "episodes"],
            seed=seed,
        )
    )
    return judge_agents(scenario, outcome.checkpoint, seed, duration_s=span_s)


def judge(rows: Rows) -> Iterator[Claim]:
    """Whether it helps to know the workflow: not published, and open in the slides."""
    aware, unaware = (pick(rows, scaler=label) for label in (AWARE, UNAWARE))
    more = difference(aware, unaware, "attainment")
    yield decide(
        "workflow-aware agents have a higher end-to-end attainment than unaware ones",
        above(0, "higher, seed by seed"),
        more,
        paper="open in the slides",
        ours=f"{aware['attainment']:.1%} against {unaware['attainment']:.1%}; difference {more.text(1, 100)} points",
        kind="own",
    )
