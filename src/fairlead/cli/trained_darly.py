"""What training an agent of Darly brought, as it is shown and written: a table, JSON, the checkpoint, the curve."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fairlead.cli.outputs import STDOUT, write_json
from fairlead.cli.tables import NOTHING, fit_table
from fairlead.cli.trained import write_curve, writing
from fairlead.report.learning_figure import Learning, Listing
from fairlead.report.metrics import json_values

if TYPE_CHECKING:
    from fairlead.learn.darly.plan import Learnt, Score

_WIDEST = 96
_BLOCKS = 50  # points of the learning curve, at most
_HEADS = ("", "steps", "met %", "loose %", "strict %", "reward per step", "refused %")
_NOTE = (
    "Met: shares of the requests within their objective, and of those with the looser (35 s) and the stricter one "
    "(26 s). Learning: with what it tried out. Served, or with nothing moved: once through the same schedule (any: "
    "through deployments that were not trained on), always taking the action that is valued most."
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """What was trained, how long it took, and what to type."""

    learnt: "Learnt"
    preset: str
    seconds: float
    is_interrupted: bool
    checkpoint: Path
    command: str
    next_command: str

    @property
    def steps(self) -> int:
        """How many there were."""
        return len(self.learnt.outcomes)

    @property
    def finding(self) -> str:
        """How it went, in a sentence."""
        served, kept = self.learnt.scores[-2:]
        until = "when training was interrupted" if self.is_interrupted else "as many as were asked for"
        steps = f"{self.steps:,} step{'s' if self.steps != 1 else ''}"
        return (
            f"darly-{self.learnt.plan.scheduler} meets {100 * served.met:.1f} % of the objectives after {steps}, "
            f"{until}; {100 * kept.met:.1f} % are met where nothing is ever moved."
        )

    @property
    def facts(self) -> Mapping[str, str]:
        """How it was done."""
        plan = self.learnt.plan
        shared = {"seed": str(plan.seed), "took": f"{self.seconds:.1f} s"}
        if plan.scheduler == "any":
            made = "a chain, a fork or a map of two to five functions on three to six nodes"
            return {"learnt on": f"{plan.episodes} deployments drawn at random: {made}", **shared}
        return {
            "learnt on": "the video workflow on the cluster of Darly, 16 frames",
            "objectives and pressure": plan.schedule,
            "pressure curves": plan.curves,
            "counters": "laid over each other, as published" if plan.is_as_published else "each in its place",
            "preset": self.preset,
            **shared,
        }

    def to_json(self) -> dict[str, object]:
        """The outcome as plain values; the keys are stable."""
        plan = self.learnt.plan
        is_any = plan.scheduler == "any"
        return {
            "policy": f"darly-{plan.scheduler}",
            "scheduler": plan.scheduler,
            "schedule": None if is_any else plan.schedule,
            "pressure_curves": None if is_any else plan.curves,
            "is_as_published": plan.is_as_published,
            "preset": None if is_any else self.preset,
            "seed": plan.seed,
            "episodes": plan.episodes if is_any else None,
            "steps": self.steps,
            "is_interrupted": self.is_interrupted,
            "scores": [asdict(one) for one in self.learnt.scores],
            "rewards": [outcome.reward for outcome in self.learnt.outcomes],
            "is_met": [bool(outcome.is_met) for outcome in self.learnt.outcomes],
            "seconds": self.seconds,
            "checkpoint": str(self.checkpoint),
        }

    def to_learning(self) -> Learning:
        """What the learning curve shows."""
        from fairlead.learn.darly.plan import rewards_by_block  # noqa: PLC0415 - needs the extra

        block = max(1, -(-self.steps // _BLOCKS))
        plan = self.learnt.plan
        return Learning(
            title=f"darly-{plan.scheduler} learning",
            rewards=rewards_by_block(self.learnt.outcomes, block)[:, None],
            functions=(),
            facts=self.facts,
            finding=self.finding,
            command=self.command,
            next_command=self.next_command,
            unit=f"{block}-step block" if block > 1 else "step",
            scale="the higher, the better; -5 and below for a request that was late",
            listing=Listing(
                heading="How it does",
                note=_NOTE,
                heads=_HEADS,
                rows=[row_of(one) for one in self.learnt.scores],
            ),
        )


def row_of(score: "Score") -> tuple[str, ...]:
    """A score as words under the heads of the table."""
    shares = (_percent(value) for value in (score.met, score.loose, score.strict))
    return (score.name, f"{score.steps:,}", *shares, f"{score.reward:.2f}", _percent(score.refused))


def _percent(share: float) -> str:
    return NOTHING if isnan(share) else f"{100 * share:.1f}"


def write_training(training: Training, out: Path, figures: Path | None, json_to: str | None) -> list[Path]:
    """Write the checkpoint, and what else was asked for; return where."""
    from fairlead.policy.darly.checkpoint import write_checkpoint  # noqa: PLC0415 - help does not need its library

    with writing(out):
        write_checkpoint(training.learnt.checkpoint, out)
        wrote = [out, *(write_curve(training.to_learning(), figures) if figures is not None else ())]
    if json_to is not None:
        write_json(json_values(training.to_json()), json_to)
        wrote += [] if json_to == STDOUT else [Path(json_to)]
    return wrote


def show_training(training: Training) -> None:
    """Print the table, and how it went."""
    console = Console(highlight=False)
    lines = [[Text(word) for word in row_of(one)] for one in training.learnt.scores]
    title = f"darly-{training.learnt.plan.scheduler}, seed {training.learnt.plan.seed}"
    table = fit_table(_HEADS, lines, min(console.width, _WIDEST), title)
    console.print(table or "(The terminal is too narrow for a table; --json has it.)")
    console.print(Text(training.finding))
    console.print(Text(f"{training.steps:,} steps, {training.seconds:.1f} s."))
