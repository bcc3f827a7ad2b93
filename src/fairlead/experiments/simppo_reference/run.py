"""Let our learner and stable-baselines3's PPO learn the reference world, and compare both with the best return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fairlead.errors import MissingExtraError
from fairlead.experiments.cases import Progress, each, origin, read_settings
from fairlead.experiments.claims import Claim, at_least, decide, sampled
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, select
from fairlead.report.figure import line_figure

if TYPE_CHECKING:
    from fairlead.experiments.simppo_reference.contestants import Found, Task

Results = Mapping[str, Sequence["Found"]]


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Shares of the optimum, and learning curves.

    Raises:
        MissingExtraError: PyTorch, Gymnasium or stable-baselines3 is not installed.
    """
    try:
        from fairlead.experiments.simppo_reference.contestants import compete  # noqa: PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("torch", "gymnasium", "stable_baselines3"):
            raise
        needs = "PyTorch, Gymnasium and stable-baselines3"
        raise MissingExtraError("The experiment simppo-reference", needs, "learn") from error
    settings = read_settings(__package__)
    tasks = _tasks(settings, quick)
    parts: dict[int, list[Found]] = {}
    for position, found in each(compete, tasks, in_parallel=True):
        parts[position] = found
        progress(len(parts) / len(tasks), tasks[position].name)
    results: dict[str, list[Found]] = {name: [] for name in settings["contestants"]}
    for position, task in enumerate(tasks):
        results[task.name] += parts[position]
    seeds = tasks[0].seeds
    return Reproduction(
        name="simppo-reference",
        title="PPO in a world whose best return is known: ours and stable-baselines3's",
        rows=tuple(
            {
                "contestant": name,
                "seed": seed,
                "steps": tasks[0].steps,
                "share": round(one.share, 4),
                "share_all_starts": round(one.share_all_starts, 4),
                "best_share": round(max(share for _, share in one.curve), 4),
            }
            for name, found in results.items()
            for seed, one in enumerate(found)
        ),
        figures=(_figure(results),),
        notes=(
            origin(seeds),
            f"{tasks[0].steps:,} steps of each seed. A share is the return of the likeliest actions over 200 steps by "
            "the enumerated optimum, averaged over 8 arrival rates and the starts "
            f"{' and '.join(str(start) for start in settings['starts'])}; training begins at these starts as well. "
            "`share_all_starts` is the same over 0 to 20 containers, most of which were never a start.",
            "stable-baselines3 does not normalise values; its wrapper that divides rewards by the running deviation of "
            "returns is the nearest that it has.",
            "Training is chaotic: another processor or version of PyTorch gives other figures for a seed.",
        ),
    )


def _tasks(settings: Mapping[str, Any], quick: bool) -> list[Task]:
    """What to run, the longest first: ours with all seeds in one task, theirs one by one."""
    from fairlead.experiments.simppo_reference.contestants import Task  # noqa: PLC0415 - as above

    seeds = tuple(range(settings["quick_seeds" if quick else "seeds"]))
    found = []
    for name, how in settings["contestants"].items():
        groups = [seeds] if how["who"] == "ours" else [(seed,) for seed in seeds]
        found += [
            Task(
                name=name,
                who=how["who"],
                preset=how["preset"],
                changes=how.get("changes", {}),
                seeds=group,
                steps=settings["quick_steps" if quick else "steps"],
                curve_every=settings["curve_every"],
                starts=tuple(settings["starts"]),
            )
            for group in groups
        ]
    return sorted(found, key=lambda task: task.preset != "paper")


def judge(rows: Rows) -> Iterator[Claim]:
    """Shares of the optimum, and beside those of stable-baselines3; the bars are ours."""
    settings = read_settings(__package__)
    shares = {name: [float(r["share"]) for r in select(rows, contestant=name)] for name in settings["contestants"]}
    least = settings["least_share"]
    for name, how in settings["contestants"].items():
        if how["who"] == "ours":
            yield decide(
                f"Our learner, {name}: mean share of the enumerated optimum",
                at_least(least),
                sampled(shares[name]),
                paper=f"at least {least} (our own demand; none is published)",
                ours=f"{fmean(shares[name]):.3f} (seeds {_spread(shares[name])})",
                kind="own",
                note=None
                if fmean(shares[name]) >= least
                else f"After {rows[0]['steps']:,} steps it has not learnt enough.",
            )
    for ours, theirs in settings["pairs"].items():
        worst = min(shares[theirs])
        yield decide(
            f"Our learner, {ours}: mean share within the spread of the seeds of {theirs}, or above",
            at_least(worst, f"mean at least the worst seed of theirs ({worst:.3f})"),
            sampled(shares[ours]),
            paper=f"{_spread(shares[theirs])}, mean {fmean(shares[theirs]):.3f}",
            ours=f"{fmean(shares[ours]):.3f} (seeds {_spread(shares[ours])})",
            kind="own",
        )


def _spread(shares: Sequence[float]) -> str:
    return f"{min(shares):.3f} to {max(shares):.3f}"


def _figure(results: Results) -> Figure:
    title = "Share of the optimum against steps learnt, mean over seeds"
    lines = {
        name: [(float(steps), fmean(one.curve[i][1] for one in found)) for i, (steps, _) in enumerate(found[0].curve)]
        for name, found in results.items()
    }
    svg = line_figure(title, lines, x_label="steps of each seed", y_label="share of the optimum, greedy")
    return Figure(name="simppo-reference-curves", title=title, svg=svg)
