"""What a training brought, as it is shown and written: a table, JSON, the checkpoint, the learning curve."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fairlead.cli.errors import UsageError
from fairlead.cli.outputs import STDOUT, write_json
from fairlead.cli.tables import fit_table
from fairlead.report.learning_figure import WINDOW, Learned, Learning, learning_page, learning_png, learning_svg
from fairlead.report.metrics import json_values

if TYPE_CHECKING:
    from fairlead.learn.simppo.plan import Outcome
    from fairlead.learn.simppo.trial import Trial

_WIDEST = 96


@dataclass(frozen=True, kw_only=True)
class Training:
    """What was trained, how the agents do now, how long it took, and what to type."""

    outcome: "Outcome"
    trial: "Trial"
    seconds: float
    is_interrupted: bool
    checkpoint: Path
    command: str
    next_command: str

    @property
    def episodes(self) -> int:
        """How many there were."""
        return len(self.outcome.curve.rewards)

    @property
    def environment_steps_per_s(self) -> float:
        """Control periods of all functions together, per second spent in the environment."""
        return self.outcome.curve.steps / max(self.outcome.curve.environment_s, 1e-9)

    @property
    def learner_steps_per_s(self) -> float:
        """Control periods of all functions together, per second spent learning from them."""
        return self.outcome.curve.steps / max(self.outcome.curve.learner_s, 1e-9)

    @cached_property
    def functions(self) -> tuple[Learned, ...]:
        """By function: what its agent came to."""
        means, deviations = self.outcome.curve.converged(WINDOW)
        return tuple(
            Learned(
                function=name,
                reward=float(means[i]),
                reward_deviation=float(deviations[i]),
                slo_preservation=float(self.trial.slo_preservation[i]),
                utilisation=float(self.trial.utilisation[i]),
            )
            for i, name in enumerate(self.outcome.world.functions)
        )

    @property
    def reward(self) -> float:
        """Per step, over all agents and the last episodes."""
        return float(self.outcome.curve.mean[-WINDOW:].mean())

    @property
    def finding(self) -> str:
        """How it went, in a sentence."""
        count = len(self.functions)
        who = f"{count} agents have" if count != 1 else "1 agent has"
        if self.is_interrupted:
            why = "when training was interrupted"
        elif self.outcome.curve.is_steady:
            why = "where it is steady"
        else:
            why = "the most that were allowed; it is not known to be steady"
        episodes = f"{self.episodes} episode{'s' if self.episodes != 1 else ''}"
        return f"{who} a reward of {self.reward:.3f} per step after {episodes}, {why}."

    @property
    def facts(self) -> Mapping[str, str]:
        """How it was done."""
        plan, curve = self.outcome.plan, self.outcome.curve
        encoding = plan.encoding
        nodes = len(plan.scenario.cluster.nodes)
        first = plan.first.description.scenario if plan.first is not None else None
        return {
            "scenario": f"{plan.scenario.name}: {len(self.functions)} functions on {nodes} nodes"
            + (", each alone" if plan.is_apart else ""),
            "episodes": f"{self.episodes} of {plan.periods} control periods of {plan.scenario.control_period_s:g} s",
            "an agent sees": f"{encoding.own} of its own, {encoding.others} of the others"
            + (", and its place in the workflow" if encoding.is_workflow_aware else ""),
            "weights": "one network for all" if plan.is_shared else "a network each",
            "begun with": "new networks" if first is None else f"agents trained on {first}",
            "preset": plan.preset + ("" if plan.is_masked else ", actions out of bounds allowed and punished"),
            "reward": f"{plan.slo_weight:g} x SLO preservation + {1 - plan.slo_weight:g} x utilisation",
            "seed": str(plan.seed),
            "environment": f"{self.environment_steps_per_s:,.0f} steps/s ({curve.environment_s:.1f} s)",
            "learner": f"{self.learner_steps_per_s:,.0f} steps/s ({curve.learner_s:.1f} s)",
            "took": f"{self.seconds:.1f} s",
        }

    def to_json(self) -> dict[str, object]:
        """The outcome as plain values; the keys are stable."""
        plan, curve = self.outcome.plan, self.outcome.curve
        return {
            "policy": "simppo",
            "scenario": plan.scenario.name,
            "preset": plan.preset,
            "own": plan.encoding.own,
            "others": plan.encoding.others,
            "is_shared": plan.is_shared,
            "is_apart": plan.is_apart,
            "is_workflow_aware": plan.encoding.is_workflow_aware,
            "slo_weight": plan.slo_weight,
            "seed": plan.seed,
            "periods": plan.periods,
            "episodes": self.episodes,
            "steps": curve.steps,
            "is_steady": curve.is_steady,
            "is_interrupted": self.is_interrupted,
            "reward": self.reward,
            "by_function": {
                one.function: {
                    "reward": one.reward,
                    "reward_deviation": one.reward_deviation,
                    "slo_preservation": one.slo_preservation,
                    "utilisation": one.utilisation,
                }
                for one in self.functions
            },
            "curve": [float(value) for value in curve.mean],
            "environment_steps_per_s": self.environment_steps_per_s,
            "learner_steps_per_s": self.learner_steps_per_s,
            "seconds": self.seconds,
            "checkpoint": str(self.checkpoint),
        }

    def to_learning(self) -> Learning:
        """What the learning curve shows."""
        return Learning(
            title=f"simppo learning on {self.outcome.plan.scenario.name}",
            rewards=self.outcome.curve.rewards,
            functions=self.functions,
            facts=self.facts,
            finding=self.finding,
            command=self.command,
            next_command=self.next_command,
        )


def write_training(training: Training, out: Path, figures: Path | None, json_to: str | None) -> list[Path]:
    """Write the checkpoint, and what else was asked for; return where."""
    from fairlead.policy.simppo.checkpoint import write_checkpoint  # noqa: PLC0415 - help does not need its library

    with writing(out):
        write_checkpoint(training.outcome.checkpoint, out)
        wrote = [out, *(write_curve(training.to_learning(), figures) if figures is not None else ())]
    if json_to is not None:
        write_json(json_values(training.to_json()), json_to)
        wrote += [] if json_to == STDOUT else [Path(json_to)]
    return wrote


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turns what keeps files from being written into a message."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{error.filename or out}: cannot be written: {error.strerror or error}.") from error


def write_curve(learning: Learning, folder: Path) -> list[Path]:
    """Write a learning curve as SVG, PNG and a page; return where."""
    svg, png, page = (folder / f"learning.{kind}" for kind in ("svg", "png", "html"))
    svg.write_text(learning_svg(learning), encoding="utf-8", newline="\n")
    png.write_bytes(learning_png(learning))
    page.write_text(learning_page(learning), encoding="utf-8", newline="\n")
    return [svg, png, page]


def show_training(training: Training) -> None:
    """Print the table by function, and how it went."""
    console = Console(highlight=False)
    lines = [
        [
            Text(one.function),
            Text(f"{one.reward:.3f}"),
            Text(f"{one.reward_deviation:.3f}"),
            Text(f"{100 * one.slo_preservation:.1f}"),
            Text(f"{100 * one.utilisation:.1f}"),
        ]
        for one in training.functions
    ]
    headings = ["function", "reward per step", "deviation", "SLO preserved %", "utilisation %"]
    title = f"{training.outcome.plan.scenario.name}, seed {training.outcome.plan.seed}"
    table = fit_table(headings, lines, min(console.width, _WIDEST), title)
    console.print(table or "(The terminal is too narrow for a table; --json has it.)")
    console.print(Text(training.finding))
    curve = training.outcome.curve
    console.print(
        Text(
            f"Environment {training.environment_steps_per_s:,.0f} steps/s, learner {training.learner_steps_per_s:,.0f} "
            f"steps/s (a step is a control period of all functions); {curve.steps:,} steps, {training.seconds:.1f} s."
        )
    )
