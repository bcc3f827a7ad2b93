"""Trials: a workflow run a few times, unloaded and warm, in the declared model of its functions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Configuration, Stage, Workflow

Array = NDArray[np.float64]

P95_DEVIATIONS = 1.644854  # how far above the mean the 95th percentile of a normal distribution lies
_LEAST_SHARE = 0.05  # of the mean: a normal time may not be negative
_PERCENTILE = 0.95


@dataclass(frozen=True)
class Option:
    """One configuration of a function: mean and deviation of a batch's time, cost per invocation in a full batch."""

    configuration: Configuration
    mean_s: float
    deviation_s: float
    cost_usd: float


@dataclass(frozen=True)
class Subject:
    """What is tried: a workflow, and the options of each of its functions, in the order of `workflow.functions`."""

    workflow: Workflow
    options: tuple[tuple[Option, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """What some runs took: the 95th percentile of their latencies and their mean cost."""

    latency_s: float
    cost_usd: float


def run(subject: Subject, choice: tuple[int, ...], samples: int, rng: np.random.Generator) -> Outcome:
    """Run a workflow so many times with these configurations; nobody waits for anything but predecessors.

    Each branch takes one arm; a stage of a map lasts as long as its slowest item; of copies that race the quickest
    counts, and all are paid.
    """
    workflow = subject.workflow
    options = {name: subject.options[i][choice[i]] for i, name in enumerate(workflow.functions)}
    arms = _arms(workflow, samples, rng)
    items = _items(workflow, samples, rng)
    ends: dict[str, Array] = {}
    is_run: dict[str, NDArray[np.bool_]] = {}
    cost_usd = np.zeros(samples)
    for stage in workflow.stages:
        before = [is_run[name] for name in stage.after]
        taken = np.logical_or.reduce(before) if before else np.ones(samples, dtype=bool)
        is_run[stage.name] = taken = taken & arms.get(stage.name, True)
        region = workflow.regions[stage.name]
        count = items[region] if region is not None else np.ones(samples, dtype=np.intp)
        seconds, paid_s = _times(stage, options[stage.function], count, rng)
        option = options[stage.function]
        cost_usd += taken * option.cost_usd * (paid_s / option.mean_s if option.mean_s else count * stage.compete)
        begin = np.maximum.reduce([ends[name] for name in stage.after]) if stage.after else np.zeros(samples)
        ends[stage.name] = begin + taken * seconds
    latency_s = np.maximum.reduce(list(ends.values()))
    return Outcome(float(np.quantile(latency_s, _PERCENTILE)), float(cost_usd.mean()))


def _times(stage: Stage, option: Option, count: NDArray[np.intp], rng: np.random.Generator) -> tuple[Array, Array]:
    """For each run the time until a stage is over and the time that is paid, with so many items."""
    drawn = rng.normal(option.mean_s, option.deviation_s, (len(count), int(count.max()), stage.compete))
    drawn = np.maximum(drawn, _LEAST_SHARE * option.mean_s)
    is_item = np.arange(drawn.shape[1])[None, :] < count[:, None]
    longest: Array = (drawn.min(axis=2) * is_item).max(axis=1)
    paid: Array = (drawn.sum(axis=2) * is_item).sum(axis=1)
    return longest, paid


def _arms(workflow: Workflow, samples: int, rng: np.random.Generator) -> dict[str, NDArray[np.bool_]]:
    """For each arm of a branch in which runs it is taken; of the arms after a stage one at most."""
    found: dict[str, NDArray[np.bool_]] = {}
    drawn: dict[str, Array] = {}
    reached: dict[str, float] = {}
    for stage in workflow.stages:
        if stage.when is not None:
            (source,) = stage.after
            if source not in drawn:
                drawn[source], reached[source] = rng.random(samples), 0.0
            low, high = reached[source], reached[source] + stage.when
            found[stage.name] = (drawn[source] >= low) & (drawn[source] < high)
            reached[source] = high
    return found


def _items(workflow: Workflow, samples: int, rng: np.random.Generator) -> dict[str, NDArray[np.intp]]:
    """For each map how many items it has in each run."""
    return {
        stage.name: rng.integers(stage.map[0], stage.map[1], samples, dtype=np.intp, endpoint=True)
        for stage in workflow.stages
        if stage.map is not None
    }
