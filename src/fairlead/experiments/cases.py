"""Many runs at once: cases, each with several seeds, on two processes where that pays.

Every run is a pure function of its case and seed, so results do not depend on how the work is spread.
"""

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml

from fairlead.engine import simulate
from fairlead.report import Estimate, Summary, aggregate, summarise
from fairlead.workload import load_scenario

Progress = Callable[[float, str], None]
Settings = Mapping[str, Any]

T = TypeVar("T")
R = TypeVar("R")

_WORKERS = 2
_WORTH_IT = 60  # runs; below, starting a second process takes longer than it saves


@dataclass(frozen=True)
class Case:
    """A scenario with overrides, the policy among them, and a name that is used in progress and results."""

    name: str
    scenario: str
    overrides: Mapping[str, object]


def read_settings(package: str) -> Settings:
    """The experiment.yaml of an experiment's package."""
    settings = yaml.safe_load((files(package) / "experiment.yaml").read_text(encoding="utf-8"))
    assert isinstance(settings, dict)
    return settings


@dataclass(frozen=True)
class Runs:
    """All seeds of one case."""

    summaries: Sequence[Summary]

    @property
    def estimates(self) -> Mapping[str, Estimate]:
        """The means over the seeds, with 95 % intervals, by the path of a figure."""
        return aggregate(self.summaries)[0].estimates

    def by_seed(self, path: str) -> list[float]:
        """The figure of every seed."""
        return [aggregate([one])[0].estimates[path].mean for one in self.summaries]


def measure(cases: Sequence[Case], seeds: Sequence[int], progress: Progress) -> dict[str, Runs]:
    """The runs of every case, by its name."""
    found: dict[str, list[Summary]] = {}
    in_parallel = len(cases) * len(seeds) >= _WORTH_IT
    for position, summaries in each(partial(run_case, seeds=tuple(seeds)), cases, in_parallel=in_parallel):
        found[cases[position].name] = summaries
        progress(len(found) / len(cases), cases[position].name)
    return {case.name: Runs(found[case.name]) for case in cases}


def run_case(case: Case, seeds: Sequence[int]) -> list[Summary]:
    """One summary per seed. A refused action or an unfinished request would make the figures worthless."""
    scenario = load_scenario(case.scenario, overrides=case.overrides)
    summaries = []
    for seed in seeds:
        recording = simulate(scenario, seed=seed)
        summary = summarise(recording)
        assert not recording.refusals, (case, seed, recording.refusals[0])
        assert summary.completed == summary.requests, (case, seed)
        summaries.append(summary)
    return summaries


def origin(seeds: Sequence[int]) -> str:
    """Which version and seeds a result comes from."""
    try:
        release = version("fairlead")
    except PackageNotFoundError:  # run from a checkout
        release = "of this checkout"
    few = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}, means with 95 % intervals"
    return f"Fairlead {release}, {few}."


def each(work: Callable[[T], R], items: Sequence[T], *, in_parallel: bool) -> Iterator[tuple[int, R]]:
    """What `work` makes of every item, with the item's position, as it is done and in any order.

    In parallel, `work` must be a function of a module, and everything else values that can be sent to a process.
    """
    done: set[int] = set()
    if in_parallel and multiprocessing.cpu_count() > 1 and _can_spawn():
        try:
            for position, result in _spread(work, items):
                done.add(position)
                yield position, result
        except BrokenProcessPool:
            pass  # a worker could not start, as in a script without a main guard: go on alone
    for position, item in enumerate(items):
        if position not in done:
            yield position, work(item)


def _can_spawn() -> bool:
    """Whether another process can import the main module: not if that was typed in or piped."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    return main is None or Path(main).exists()


def _spread(work: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
    # Spawned, not forked: Polars keeps threads, whose locks a forked process would inherit.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(_WORKERS, multiprocessing.cpu_count()), mp_context=context) as pool:
        futures: dict[Future[R], int] = {pool.submit(work, item): i for i, item in enumerate(items)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
