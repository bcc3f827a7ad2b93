"""Agents of N functions, steady; one function more: how much reward is lost, and how many episodes until it is back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from fairlead.experiments.cases import Progress, each, read_settings
from fairlead.experiments.claims import Claim, above, at_most, decide, paired, sampled
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Row, Rows, select
from fairlead.experiments.simppo_bench import taught
from fairlead.report.figure import line_figure


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Reward drop and episodes to recover, by the number of functions."""
    settings = read_settings(__package__)
    sizes: Sequence[int] = settings["quick_functions" if quick else "functions"]
    seeds: Sequence[int] = settings["quick_seeds" if quick else "seeds"]
    jobs = [(functions, seed) for functions in sorted(sizes, reverse=True) for seed in seeds]
    rows: dict[tuple[int, int], Row] = {}
    for position, row in each(partial(_work, settings=settings, quick=quick), jobs, in_parallel=True):
        rows[jobs[position]] = row
        progress(len(rows) / len(jobs), f"{row['functions']} functions, seed {row['seed']}")
    ordered = [rows[functions, seed] for functions in sizes for seed in seeds]
    return Reproduction(
        name="simppo-incremental",
        title="SIMPPO: one function more, with 5 to 110 functions",
        rows=tuple(ordered),
        figures=_figures(sizes, ordered),
        notes=(
            "Reward drop (ours; the paper's definition is not public): mean reward per step of all agents in the last "
            f"{settings['window']} episodes before the change, less that in the first {settings['window']} after it, "
            "over the former. Episodes: until the mean of the last 10 differs by less than 2 % from the 10 before and "
            "its deviation is below 5 %; 20 are the least that this rule can give.",
            "Agents of N functions have separate weights, which all begin as one network trained on twelve "
            f"functions, and settle first. Episodes have {settings['periods']} periods of 10 s; agents learn every "
            f"{settings['steps']} periods. Preset modern, global4. The newcomer begins as the most alike agent; the "
            "nodes stay as they are.",
        ),
    )


def _work(job: tuple[int, int], *, settings: Mapping[str, Any], quick: bool) -> Row:
    from fairlead.learn.functions.tenants import tenants_scenario  # noqa: PLC0415 - an extra
    from fairlead.learn.simppo.incremental import add_function  # noqa: PLC0415 - an extra
    from fairlead.learn.simppo.plan import Plan  # noqa: PLC0415 - an extra
    from fairlead.learn.simppo.settings import MODERN  # noqa: PLC0415 - an extra
    from fairlead.learn.simppo.training import StopRule  # noqa: PLC0415 - an extra

    functions, seed = job
    stop = StopRule(window=settings["window"])
    twelve = taught(
        Plan(
            scenario=tenants_scenario(12, load=settings["load"]),
            episodes=settings["quick_first_episodes" if quick else "first_episodes"],
            periods=settings["periods"],
            is_shared=True,
            stop=None,
            seed=seed,
        )
    )
    scenario = tenants_scenario(functions, load=settings["load"])
    settled = taught(
        Plan(
            scenario=scenario,
            settings=replace(MODERN, steps=settings["steps"], minibatch=settings["steps"] // 2),
            episodes=settings["settle_episodes"],
            periods=settings["periods"],
            stop=stop,
            least_episodes=2 * settings["window"],
            seed=seed,
            first=twelve.checkpoint,
        )
    )
    more = tenants_scenario(functions + 1, nodes=len(scenario.cluster.nodes))
    change = add_function(settled, more, episodes=settings["change_episodes"], stop=stop)
    curve = change.curve
    return {
        "functions": functions,
        "seed": seed,
        "reward_before": round(change.before, 4),
        "reward_after": round(change.after, 4),
        "reward_of_others_after": round(change.others_after, 4),
        "reward_recovered": round(change.recovered, 4),
        "drop_percent": round(100 * change.drop, 2),
        "episodes": change.episodes,
        "is_steady": change.is_steady,
        "environment_steps_per_s": round(curve.steps / curve.environment_s),
        "learner_steps_per_s": round(curve.steps / curve.learner_s),
    }


def _mean(rows: Sequence[Row], functions: int, what: str) -> float:
    return fmean(float(row[what]) for row in rows if row["functions"] == functions)


def judge(rows: Rows) -> Iterator[Claim]:
    """The slides' curve over the number of functions, and its end."""
    printed = read_settings(__package__)["printed"]
    sizes = sorted({row["functions"] for row in rows})
    drops = {n: [float(row["drop_percent"]) for row in select(rows, functions=n)] for n in sizes}
    largest, peak = max(sizes, key=lambda n: fmean(drops[n])), printed["peak_functions"]
    yield decide(
        "the reward drop first rises, then falls: largest near 20 functions",
        above(0, f"larger at {peak} than at {sizes[0]} and at {sizes[-1]}, seed by seed"),
        *(paired(drops[peak], drops[n]) for n in (sizes[0], sizes[-1]) if n != peak),
        paper=f"largest at {peak}",
        ours=f"largest at {largest} ({fmean(drops[largest]):.1f} %); {fmean(drops[peak]):.1f} % at {peak}",
        note=None if sizes[0] < largest < sizes[-1] else "No hump here; see the curve.",
    )
    if sizes[-1] == 110:
        drop = 100 * printed["drop_at_110"]
        what = "reward drop at 110 functions (%)"
        yield decide(what, at_most(drop, "at most the printed"), sampled(drops[110]), paper=drop)
        most = printed["episodes_at_110"]
        yield decide(
            "episodes of retraining at 110 functions",
            at_most(most, "at most the printed"),
            sampled([float(row["episodes"]) for row in select(rows, functions=110)]),
            paper=most,
            note="20 is the least that our stop rule can give, and a newcomer begins with the networks of the agent "
            "most alike. The newcomers of this bench are copies of functions that are there: there is little to learn.",
        )


def _figures(sizes: Sequence[int], rows: Sequence[Row]) -> tuple[Figure, ...]:
    def figure(name: str, title: str, what: str, label: str) -> Figure:
        line = [(float(functions), _mean(rows, functions, what)) for functions in sizes]
        return Figure(
            name=name, title=title, svg=line_figure(title, {"ours": line}, x_label="functions", y_label=label)
        )

    return (
        figure("drop", "Reward drop when one function is added", "drop_percent", "per cent"),
        figure("episodes", "Episodes until the reward is steady again", "episodes", "episodes"),
    )
