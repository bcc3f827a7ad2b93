"""Let our learner and stable-baselines3's PPO learn the reference world, and compare both with the best return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fairlead.errors import MissingExtraError
from fairlead.experiments.cases import Progress, each, origin, read_settings
from fairlead.experiments.reproduction import Claim, Figure, Reproduction
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
        claims=tuple(_claims(settings, results)),
        rows=tuple(
            {
                "contestant": name,
                "seed": seed,
                "steps": tasks[0].steps,
                "share": round(one.share, 4),
                "share_all_starts": round(one.share_all_starts, 4),
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


def _claims(settings: Mapping[str, Any], results: Results) -> list[Claim]:
    shares = {name: [one.share for one in found] for name, found in results.items()}
    least = settings["least_share"]
    claims = []
    for name, how in settings["contestants"].items():
        if how["who"] == "ours":
            own = shares[name]
            claims.append(
                Claim(
                    claim=f"Our learner, {name}: mean share of the enumerated optimum",
                    paper=f"at least {least} (our own demand; none is published)",
                    ours=f"{fmean(own):.3f} (seeds {_spread(own)})",
                    met=fmean(own) >= least,
                    note=None if fmean(own) >= least else _why(results[name], least),
                )
            )
    for ours, theirs in settings["pairs"].items():
        mean, other = fmean(shares[ours]), shares[theirs]
        claims.append(
            Claim(
                claim=f"Our learner, {ours}: mean share within the spread of the seeds of {theirs}, or above",
                paper=f"{_spread(other)}, mean {fmean(other):.3f}",
                ours=f"{mean:.3f} (seeds {_spread(shares[ours])})",
                met=mean >= min(other),
                note=f"Above all of its seeds by {mean - max(other):.3f} or more." if mean > max(other) else None,
            )
        )
    return claims


def _spread(shares: Sequence[float]) -> str:
    return f"{min(shares):.3f} to {max(shares):.3f}"


def _why(found: Sequence[Found], least: float) -> str:
    best = [max(share for _, share in one.curve) for one in found]
    reached = sum(share >= least for share in best)
    steps = found[0].curve[-1][0]
    return f"After {steps:,} steps it has not learnt enough: {reached} of {len(found)} seeds were above at some point."


def _figure(results: Results) -> Figure:
    title = "Share of the optimum against steps learnt, mean over seeds"
    lines = {
        name: [(float(steps), fmean(one.curve[i][1] for one in found)) for i, (steps, _) in enumerate(found[0].curve)]
        for name, found in results.items()
    }
    svg = line_figure(title, lines, x_label="steps of each seed", y_label="share of the optimum, greedy")
    return Figure(name="simppo-reference-curves", title=title, svg=svg)
