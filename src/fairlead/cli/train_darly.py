"""`fairlead train darly`: an agent that moves functions from node to node."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairlead.cli.choices import whole_number
from fairlead.cli.errors import INTERRUPTED, UsageError
from fairlead.cli.interruption import Interruption
from fairlead.cli.outputs import STDOUT, check_files, check_folder
from fairlead.cli.progress import ShareProgress
from fairlead.cli.retyping import retyped
from fairlead.cli.trained_darly import Training, show_training, write_training
from fairlead.errors import MissingExtraError

if TYPE_CHECKING:
    from fairlead.learn.darly.plan import Plan, Reached

Trained = Literal["fullmap", "custom", "kubernetes", "oracle", "any"]
Pressure = Literal["published", "logged", "random"]
Curves = Literal["logs", "chapter-4"]
Preset = Literal["published", "ours"]

STEPS = {"published": 500, "ours": 8000}
EPISODES = 400
_OUT = Path("agent.safetensors")
_SOME = 10  # steps between two updates of the progress bar


def darly(
    scheduler: Annotated[
        Trained,
        typer.Option(
            metavar="NAME",
            help="What the agent may do: fullmap, custom, kubernetes or oracle on the cluster of Darly; or any: moves "
            "on any workflow and cluster, learnt on many that are drawn at random.",
        ),
    ] = "fullmap",
    steps: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(1),
            metavar="N",
            show_default=f"{STEPS['published']}, or {STEPS['ours']} with --preset ours",
            help="Requests, one after each action.",
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(1),
            metavar="N",
            show_default=str(EPISODES),
            help="With --scheduler any: how many workflows and clusters, with 48 requests each.",
        ),
    ] = None,
    schedule: Annotated[
        Pressure | None,
        typer.Option(
            metavar="NAME",
            show_default="published, or random with --preset ours",
            help="Objectives and pressure: published, logged (the last phase as the authors' logs show it) or random.",
        ),
    ] = None,
    curves: Annotated[
        Curves | None,
        typer.Option(
            "--pressure-curves",
            metavar="NAME",
            show_default="logs",
            help="What pressure costs: logs, as seen in the authors' training, or chapter-4, as in their measurements.",
        ),
    ] = None,
    is_as_published: Annotated[
        bool,
        typer.Option(
            "--as-published", help="Counters of different nodes laid over each other, as in the authors' code."
        ),
    ] = False,
    preset: Annotated[
        Preset | None,
        typer.Option(
            metavar="NAME",
            show_default="published",
            help="Hyper-parameters: published, or ours: longer and slower, under pressure at random.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(parser=whole_number(0), metavar="K", help="Of weights, actions, noise and what is drawn.")
    ] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the trained agent goes.")] = _OUT,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the learning curve: learning.svg, .png and .html.")
    ] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the outcome as JSON; - for standard output.")
    ] = None,
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Train an agent that moves functions from node to node, away from pressure (Darly).

    Ctrl-C ends training after the step at hand, and what was learnt is kept.
    """
    options = {
        "--steps": steps,
        "--schedule": schedule,
        "--pressure-curves": curves,
        "--as-published": is_as_published or None,
        "--preset": preset,
    }
    _check_options(scheduler, episodes, options)
    check_files({"--out": out, "--json": json_to})
    check_files({"--out": out.with_name(f"{out.name}.partial")})  # the file comes about under this name
    if figures is not None:
        check_folder("--figures", figures)
    _check_extra(has_figures=figures is not None)
    plan = _plan(
        _Asked(
            scheduler=scheduler,
            steps=steps,
            episodes=episodes,
            schedule=schedule,
            curves=curves,
            is_as_published=is_as_published,
            preset=preset,
            seed=seed,
        )
    )
    again = retyped(
        ["fairlead", "train", "darly"],
        ["--scheduler", scheduler, "fullmap"],
        ["--episodes", episodes, None],
        *([name, value, None] for name, value in options.items()),
        ["--seed", seed, 0],
        ["--out", out, _OUT],
    )
    slots = " --set scaler.slots=4" if scheduler == "any" else ""
    use = f"fairlead simulate darly --scaler darly-{scheduler} --set {quote(f'scaler.checkpoint={out}')}{slots}"
    training = _train(plan, preset or "published", again, use, out, is_quiet=is_quiet)
    wrote = write_training(training, out, figures, json_to)
    if not is_quiet and json_to != STDOUT:
        show_training(training)
        for path in wrote:
            typer.echo(f"Wrote {path}")
        typer.echo(f"Try it: {use}")
    if training.is_interrupted:
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What was typed; None where it was not."""

    scheduler: Trained
    steps: int | None
    episodes: int | None
    schedule: Pressure | None
    curves: Curves | None
    is_as_published: bool
    preset: Preset | None
    seed: int


def _check_options(scheduler: Trained, episodes: int | None, options: Mapping[str, object]) -> None:
    if scheduler != "any":
        if episodes is not None:
            raise UsageError(f"--episodes is for --scheduler any; darly-{scheduler} learns by --steps.")
        return
    for name, value in options.items():
        if value is not None:
            instead = "; give --episodes" if name == "--steps" else ""
            raise UsageError(
                f"{name} is for the cluster of Darly; --scheduler any learns on workflows, clusters and pressure that "
                f"are drawn{instead}."
            )


def _check_extra(*, has_figures: bool) -> None:
    needed = {"torch": "PyTorch", "stable_baselines3": "Stable-Baselines3", "gymnasium": "Gymnasium"}
    if has_figures:
        needed["matplotlib"] = "matplotlib"
    for module, name in needed.items():
        if find_spec(module) is None:
            what = "--figures" if module == "matplotlib" else "`fairlead train darly`"
            raise MissingExtraError(what, name, "learn")


def _plan(asked: _Asked) -> "Plan":
    from fairlead.learn.darly.plan import Plan  # noqa: PLC0415 - needs the extra
    from fairlead.learn.darly.training import OURS, PUBLISHED  # noqa: PLC0415 - needs the extra

    preset = asked.preset or "published"
    return Plan(
        scheduler=asked.scheduler,
        steps=asked.steps or STEPS[preset],
        episodes=asked.episodes or EPISODES,
        schedule=asked.schedule or ("random" if preset == "ours" else "published"),
        curves=asked.curves or "logs",
        is_as_published=asked.is_as_published,
        settings=OURS if preset == "ours" else PUBLISHED,
        seed=asked.seed,
    )


def _train(plan: "Plan", preset: Preset, again: str, use: str, out: Path, *, is_quiet: bool) -> Training:
    from fairlead.learn.darly.plan import teach  # noqa: PLC0415 - needs the extra

    began = perf_counter()
    title = f"Training darly-{plan.scheduler}"
    with Interruption() as interruption, ShareProgress(title, is_quiet=is_quiet) as progress:

        def tell(reached: "Reached") -> bool:
            if reached.steps % _SOME == 0 or plan.scheduler == "any":
                doing = f"{reached.steps:,}/{plan.requests:,}: {reached.met:.0%} met recently"
                progress.reach(reached.steps / plan.requests, doing)
            return interruption.is_wished

        learnt = teach(plan, tell)
    return Training(
        learnt=learnt,
        preset=preset,
        seconds=perf_counter() - began,
        is_interrupted=interruption.is_wished and not learnt.is_whole,
        checkpoint=out,
        command=again,
        next_command=use,
    )
