"""`fairlead train`: policies that learn, each by a command of its own; what they learnt is a file that serves them."""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from shlex import quote
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairlead.cli.choices import open_source, whole_number
from fairlead.cli.compiling import load_engine
from fairlead.cli.errors import INTERRUPTED, UsageError, guarded
from fairlead.cli.interruption import Interruption
from fairlead.cli.outputs import STDOUT, check_files, check_folder
from fairlead.cli.progress import ShareProgress
from fairlead.cli.retyping import retyped
from fairlead.cli.train_darly import darly
from fairlead.cli.trained import Training, show_training, write_training
from fairlead.errors import MissingExtraError, UncoveredError
from fairlead.policy.simppo.observation import Encoding, Others, Own
from fairlead.policy.simppo.reward import SLO_WEIGHT
from fairlead.workload import Scenario, load_scenario

if TYPE_CHECKING:
    from fairlead.learn.simppo.plan import Plan
    from fairlead.learn.simppo.training import Progress
    from fairlead.policy.simppo.checkpoint import Checkpoint

train = typer.Typer(
    name="train",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Preset = Literal["modern", "paper"]

_TENANTS = 12
_FIRST = "agents.safetensors"


@train.callback()
def about() -> None:
    """Train a policy that learns, in the simulator, and write what it learnt to a file that serves it.

    Needs the extra `learn`.
    """


@train.command()
@guarded
def simppo(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            show_default="the twelve tenants",
            help="A YAML file, or the name of a shipped scenario, whose functions get an agent each.",
        ),
    ] = None,
    functions: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(1),
            metavar="N",
            show_default=str(_TENANTS),
            help="Without a scenario: how many tenants; the thirteenth is like the first, and so on.",
        ),
    ] = None,
    episodes: Annotated[
        int,
        typer.Option(parser=whole_number(1), metavar="N", help="The most episodes; fewer once the reward is steady."),
    ] = 300,
    periods: Annotated[
        int, typer.Option(parser=whole_number(1), metavar="N", help="Control periods of an episode.")
    ] = 200,
    stops: Annotated[
        bool, typer.Option("--stop/--no-stop", help="Whether training ends once the reward is steady.")
    ] = True,
    preset: Annotated[
        Preset,
        typer.Option(
            metavar="NAME",
            help="Hyper-parameters: modern, or paper: those of the authors' code, where actions out of bounds are "
            "punished instead of left out.",
        ),
    ] = "modern",
    own: Annotated[
        Own | None,
        typer.Option(metavar="NAME", show_default="seven", help="What an agent sees of its function: seven or six."),
    ] = None,
    others: Annotated[
        Others | None,
        typer.Option(
            metavar="NAME",
            show_default="global4",
            help="What it sees of the others: none, global4, global4+var, meanfield, meanfield+actions or concat.",
        ),
    ] = None,
    is_shared: Annotated[
        bool | None,
        typer.Option("--shared/--separate", show_default="separate", help="One network for all agents, or one each."),
    ] = None,
    is_apart: Annotated[
        bool, typer.Option("--apart", help="Each function alone in the cluster: single-agent learning.")
    ] = False,
    is_workflow_aware: Annotated[
        bool | None,
        typer.Option(
            "--workflow-aware/--unaware",
            show_default="unaware",
            help="Show and reward a function's place in its workflow and how late requests are there.",
        ),
    ] = None,
    slo_weight: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="W", help="Of SLO preservation in the reward; the rest is utilisation."),
    ] = SLO_WEIGHT,
    seed: Annotated[
        int, typer.Option(parser=whole_number(0), metavar="K", help="Of weights, actions and arrivals.")
    ] = 0,
    begin_with: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Begin with these agents; what they see and share is taken over."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the trained agents go.")] = Path(
        _FIRST
    ),
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the learning curve: learning.svg, .png and .html.")
    ] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the outcome as JSON; - for standard output.")
    ] = None,
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Train agents that scale functions: one per function, each seeing all others as one (SIMPPO).

    Ctrl-C ends training after the update at hand, and what was learnt is kept.
    """
    check_files({"--out": out, "--json": json_to})
    check_files({"--out": out.with_name(f"{out.name}.partial")})  # the file comes about under this name
    if figures is not None:
        check_folder("--figures", figures)
    _check_extra(has_figures=figures is not None)
    first = _read(begin_with) if begin_with is not None else None
    scenario = _scenario(source, functions, is_apart=is_apart)
    encoding = _encoding(scenario, own, others, is_workflow_aware, first, begin_with)
    load_engine(is_quiet=is_quiet)
    plan = _plan(
        scenario,
        encoding,
        preset,
        first,
        is_shared=is_shared,
        is_apart=is_apart,
        episodes=episodes,
        periods=periods,
        stops=stops,
        seed=seed,
        slo_weight=slo_weight,
    )
    commands = Commands(
        train=retyped(
            ["fairlead", "train", "simppo"],
            ["", source, None],
            ["--functions", functions, None],
            ["--episodes", episodes, 300],
            ["--periods", periods, 200],
            ["--no-stop", not stops, False],
            ["--preset", preset, "modern"],
            ["--own", own, None],
            ["--others", others, None],
            ["--shared" if is_shared else "--separate", is_shared is not None, False],
            ["--apart", is_apart, False],
            ["--workflow-aware" if is_workflow_aware else "--unaware", is_workflow_aware is not None, False],
            ["--slo-weight", slo_weight, SLO_WEIGHT],
            ["--seed", seed, 0],
            ["--from", begin_with, None],
            ["--out", out, Path(_FIRST)],
        ),
        simulate=f"fairlead simulate {quote(source or 'simppo-12')} --policy least-loaded --scaler simppo "
        f"--set {quote(f'scaler.checkpoint={out}')}",
    )
    training = _train(plan, commands, out, is_quiet=is_quiet)
    wrote = write_training(training, out, figures, json_to)
    if not is_quiet and json_to != STDOUT:
        show_training(training)
        for path in wrote:
            typer.echo(f"Wrote {path}")
        typer.echo(f"Try it: {commands.simulate}")
    if training.is_interrupted:
        raise typer.Exit(INTERRUPTED)


train.command()(guarded(darly))


@dataclass(frozen=True, kw_only=True)
class Commands:
    """What to type: to train again, and to use what was trained."""

    train: str
    simulate: str


def _train(plan: "Plan", commands: Commands, out: Path, *, is_quiet: bool) -> Training:
    from fairlead.learn.simppo.plan import teach  # noqa: PLC0415 - needs the extra
    from fairlead.learn.simppo.trial import try_out  # noqa: PLC0415 - needs the extra

    count = len(plan.scenario.functions)
    title = f"Training {count} agent{'s' if count != 1 else ''}"
    began = perf_counter()
    with Interruption() as interruption, ShareProgress(title, is_quiet=is_quiet) as progress:

        def tell(reached: "Progress") -> bool:
            rate = reached.steps / max(reached.environment_s, 1e-9)
            doing = f"{reached.episodes}/{plan.episodes}: reward {reached.reward:.3f}, {rate:,.0f} steps/s"
            progress.reach(reached.episodes / plan.episodes, doing)
            return interruption.is_wished

        try:
            outcome = teach(plan, tell)
        except UncoveredError as error:  # its advice is for runs, which have another engine
            raise UsageError(f"{plan.scenario.name} cannot be trained in: {error.reason}.") from error
        is_whole = outcome.curve.is_steady or len(outcome.curve.rewards) >= plan.episodes
        is_interrupted = interruption.is_wished and not is_whole
        trial = try_out(outcome.world, outcome.learner, seed=plan.seed + 1, is_masked=plan.is_masked)
    return Training(
        outcome=outcome,
        trial=trial,
        seconds=perf_counter() - began,
        is_interrupted=is_interrupted,
        checkpoint=out,
        command=commands.train,
        next_command=commands.simulate,
    )


def _check_extra(*, has_figures: bool) -> None:
    needed = {"torch": "PyTorch"}
    if has_figures:
        needed["matplotlib"] = "matplotlib"
    for module, name in needed.items():
        if find_spec(module) is None:
            what = "--figures" if module == "matplotlib" else "`fairlead train simppo`"
            raise MissingExtraError(what, name, "learn")


def _read(path: Path) -> "Checkpoint":
    from fairlead.policy.simppo.checkpoint import read_checkpoint  # noqa: PLC0415 - help does not need its library

    return read_checkpoint(path)


def _scenario(source: str | None, functions: int | None, *, is_apart: bool) -> Scenario:
    """What to train in, once it is clear that every function can have an agent."""
    if source is None:
        worlds = import_module("fairlead.learn.functions.tenants")
        scenario: Scenario = worlds.tenants_scenario(functions or _TENANTS)
        return scenario
    if functions is not None:
        raise UsageError("--functions is for training without a SCENARIO; leave one of them out.")
    scenario = load_scenario(open_source(source, is_served=False))
    for name, profile in scenario.profiles.items():
        if not any(c.batch == 1 and not c.vgpus for c in profile.configurations):
            raise UsageError(
                f"{source}: function {name} runs only on GPUs or in batches; agents scale vCPUs and memory."
            )
    with_slo = [one for one in scenario.workflows.values() if isfinite(one.slo.latency_s)]
    for name in scenario.functions:
        own = [one for one in with_slo if name in one.functions]
        if not own:
            raise UsageError(f"{source}: function {name} is in no workflow with an SLO, so its agent has no objective.")
        if is_apart and not any(set(one.functions) == {name} for one in own):
            raise UsageError(f"{source}: --apart: no workflow uses {name} alone.")
    if not scenario.arrivals:
        raise UsageError(f"{source}: has no arrivals, so there is nothing to learn from.")
    return scenario


def _encoding(
    scenario: Scenario,
    own: Own | None,
    others: Others | None,
    is_workflow_aware: bool | None,
    first: "Checkpoint | None",
    path: Path | None,
) -> Encoding:
    """What agents see: as asked for, else as those of the file, who cannot see otherwise, else the usual."""
    usual = Encoding() if first is None else first.description.encoding
    chosen = others or usual.others
    slots = 0
    if chosen == "concat":
        slots = usual.slots or max(1, len(scenario.functions) - 1)
    found = Encoding(
        own=own or usual.own,
        others=chosen,
        slots=slots,
        is_workflow_aware=usual.is_workflow_aware if is_workflow_aware is None else is_workflow_aware,
    )
    if first is not None and found != usual:
        raise UsageError(f"--from {path}: its agents see {_told(usual)}, and cannot see {_told(found)}.")
    if slots and slots < len(scenario.functions) - 1:
        raise UsageError(
            f"--from {path}: its agents see at most {slots} others one by one; "
            f"{scenario.name} has {len(scenario.functions)} functions."
        )
    return found


def _told(encoding: Encoding) -> str:
    aware = ", workflow-aware" if encoding.is_workflow_aware else ""
    return f"{encoding.own} of their own and {encoding.others} of the others{aware}"


def _plan(
    scenario: Scenario,
    encoding: Encoding,
    preset: Preset,
    first: "Checkpoint | None",
    *,
    is_shared: bool | None,
    is_apart: bool,
    episodes: int,
    periods: int,
    stops: bool,
    seed: int,
    slo_weight: float,
) -> "Plan":
    from fairlead.learn.simppo.plan import Plan  # noqa: PLC0415 - needs the extra
    from fairlead.learn.simppo.settings import MODERN, PAPER  # noqa: PLC0415 - its package needs the extra
    from fairlead.learn.simppo.training import StopRule  # noqa: PLC0415 - needs the extra

    settings = PAPER if preset == "paper" else MODERN
    if first is not None:
        hidden = tuple(int(layer.weight.shape[2]) for layer in first.actor[:-1])
        if hidden != settings.hidden or first.description.activation != settings.activation:
            raise UsageError(
                f"--from: its networks have hidden layers {hidden} with {first.description.activation}; those of "
                f"the preset {preset} have {settings.hidden} with {settings.activation}."
            )
        if is_shared and not first.description.is_shared:
            raise UsageError("--from: its agents have a network each; --shared cannot begin with them.")
        is_shared = first.description.is_shared if is_shared is None else is_shared
    return Plan(
        scenario=scenario,
        encoding=encoding,
        settings=settings,
        preset=preset,
        is_shared=bool(is_shared),
        is_apart=is_apart,
        is_masked=preset != "paper",
        episodes=episodes,
        periods=periods,
        stop=StopRule() if stops else None,
        seed=seed,
        slo_weight=slo_weight,
        has_memory=first is None or first.description.actions == 7,
        first=first,
    )
