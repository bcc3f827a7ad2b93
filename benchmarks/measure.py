"""How everything here is measured: one core, CPU time, programs in turn, the best of several repetitions.

The cores of a shared machine are not ours, so the clock on the wall says little: every time is CPU time, of this
process or of a child. Programs that are compared take turns, so that a slow minute hits all of them.
"""

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time


class UnavailableError(Exception):
    """A program cannot run here; the message says what is missing and how to get it."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a program found out, to be compared with what the others did."""

    cold_starts: int
    latency_mean_s: float | None  # None where it is not told
    rejected: int = 0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One repetition."""

    cpu_s: float
    count: int
    answer: Answer | None = None


@dataclass(frozen=True)
class Program:
    """Something to measure. `repeats` caps its repetitions where one takes long."""

    name: str
    run: Callable[[], Sample]
    repeats: int = 99
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A program's repetitions; without any, `missing` says why."""

    name: str
    samples: tuple[Sample, ...] = ()
    note: str = ""
    missing: str = ""

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(sample.count / sample.cpu_s for sample in self.samples)

    @property
    def best(self) -> float | None:
        """Per second of CPU time, in the best repetition."""
        return max(self.rates, default=None)

    @property
    def answer(self) -> Answer | None:
        return self.samples[-1].answer if self.samples else None


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One demand. `figure` is None where something it needs was not measured."""

    name: str
    figure: float | None
    limit: float
    is_least: bool = True  # whether the limit is the least that will do, or the most
    detail: str = ""

    @property
    def is_met(self) -> bool | None:
        if self.figure is None:
            return None
        return self.figure >= self.limit if self.is_least else self.figure <= self.limit


def pin() -> int | None:
    """Stay on one core from now on, children too; gives its number, None where that cannot be done."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def timed(run: Callable[[], Answer | None], count: int) -> Sample:
    """One repetition in this process."""
    gc.collect()
    before = process_time()
    answer = run()
    return Sample(cpu_s=process_time() - before, count=count, answer=answer)


def in_turn(programs: Sequence[Program], repeats: int, advance: Callable[[str], None]) -> list[Row]:
    """Every program, again and again in turn. `advance` is told who is next."""
    samples: dict[str, list[Sample]] = {program.name: [] for program in programs}
    missing: dict[str, str] = {}
    for turn in range(repeats):
        for program in programs:
            if program.name not in missing and turn < program.repeats:
                advance(program.name)
                try:
                    samples[program.name].append(program.run())
                except UnavailableError as error:
                    missing[program.name] = str(error)
    return [
        Row(name=p.name, samples=tuple(samples[p.name]), note=p.note, missing=missing.get(p.name, "")) for p in programs
    ]


def ratio(figure: float | None, other: float | None) -> float | None:
    """None where either was not measured."""
    return figure / other if figure is not None and other else None


def agreement(name: str, rows: Sequence[Row], *, digits: float) -> Gate:
    """Whether all that ran found the same: counts exactly, means but for the order of their sums."""
    found = {row.name: row.answer for row in rows if row.answer is not None}
    detail = ""
    if found:
        reference = next(iter(found.values()))
        other = [name for name, answer in found.items() if not _is_same(answer, reference, digits)]
        detail = f"not so: {', '.join(other)}" if other else f"{len(found)} programs"
    verdict = None if len(found) < 2 else float(not other)
    return Gate(name=f"{name} agree, means to {digits:g}", figure=verdict, limit=1, detail=detail)


def _is_same(one: Answer, other: Answer, digits: float) -> bool:
    return (one.cold_starts, one.rejected) == (other.cold_starts, other.rejected) and abs(
        one.latency_mean_s - other.latency_mean_s
    ) <= digits * abs(other.latency_mean_s)
