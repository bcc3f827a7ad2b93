"""Runs to do and runs done: one after the other, or in worker processes, with the same results."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from ctypes import Array, c_double
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

from fairlead.cli.crowding import room_warnings
from fairlead.cli.errors import FAILED, Failure, warn
from fairlead.cli.progress import RunProgress
from fairlead.cli.run_files import file_name
from fairlead.engine import simulate
from fairlead.engine.sim.simulate import Engine
from fairlead.errors import ConfigError, PolicyError
from fairlead.model import Recording, Refusal
from fairlead.report import Summary, summarise, write_run
from fairlead.report.labels import point_label, policy_label
from fairlead.workload import Scenario

FAILED_RUNS = Path("runs")
"""Where the records of a run that failed go when no folder was named."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run to do: a scenario whose own policy decides, and a seed.

    `out` is the folder that gets the folder of the run; `keeps_recording` is whether its records are needed afterwards.
    """

    scenario: Scenario
    seed: int
    point: Mapping[str, object]
    engine: Engine = "auto"
    out: Path | None = None
    keeps_recording: bool = False

    @property
    def label(self) -> str:
        """Who decides, where in the sweep, and the seed."""
        return ", ".join(part for part in (self._who, point_label(self.point), f"seed {self.seed}") if part)

    @property
    def duration_s(self) -> float:
        """Until arrivals stop."""
        return self.scenario.duration_s

    @property
    def folder_name(self) -> str:
        """The name of the run's own folder."""
        return file_name(self._who, self.point, self.seed)

    @property
    def _who(self) -> str:
        scaler = self.scenario.scaler
        return policy_label(self.scenario.policy.name, scaler.name if scaler else None)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one task: a summary, or a failure."""

    label: str
    summary: Summary | None = None
    recording: Recording | None = None
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Finished:
    """All that was finished, in the order of the tasks, and what stopped the rest, if anything."""

    outcomes: tuple[Outcome, ...]
    failure: Failure | None = None
    is_interrupted: bool = False

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """The summaries, in order."""
        return tuple(outcome.summary for outcome in self.outcomes if outcome.summary is not None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know about the runs, with the label of the first run that it is about."""
        by_policy: dict[tuple[str, str | None], str] = {}
        for outcome in self.outcomes:
            if outcome.summary is not None and outcome.warnings:
                key = (outcome.summary.policy, outcome.summary.scaler)
                by_policy.setdefault(key, f"{' '.join(outcome.warnings)} ({outcome.label})")
        return tuple(by_policy.values())

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """The recordings that were kept, in order."""
        return tuple(outcome.recording for outcome in self.outcomes if outcome.recording is not None)


def run_all(tasks: Sequence[Task], progress: RunProgress, jobs: int = 1) -> Finished:
    """Do every task. The first failure, or an interrupt, ends it; what was finished by then is kept."""
    done: dict[int, Outcome] = {}
    failure: Failure | None = None
    is_interrupted = False
    run = _run_here if jobs == 1 or len(tasks) == 1 else _run_in_processes
    try:
        with _sure_interrupts() as check, progress:
            for index, outcome in run(tasks, progress, jobs):
                progress.finish(index)
                if outcome.failure is not None:
                    failure = outcome.failure
                    break
                done[index] = outcome
                check()
    except KeyboardInterrupt:
        is_interrupted = True
    except BrokenProcessPool:
        message = "A worker process was ended from outside, perhaps for want of memory. Try --jobs 1."
        failure = Failure(message=message, code=FAILED, traceback="")
    return Finished(outcomes=tuple(done[i] for i in sorted(done)), failure=failure, is_interrupted=is_interrupted)


def warn_of_refusals(outcomes: Sequence[Outcome]) -> None:
    """One warning per policy whose actions were refused, with the first reason."""
    by_policy: dict[str, list[tuple[str, Refusal]]] = {}
    for outcome in outcomes:
        if outcome.summary is not None:
            who = policy_label(outcome.summary.policy, outcome.summary.scaler)
            by_policy.setdefault(who, []).extend((outcome.label, refusal) for refusal in outcome.refusals)
    for who, refused in by_policy.items():
        if refused:
            label, first = refused[0]
            count = f"{len(refused):,} actions were" if len(refused) > 1 else "1 action was"
            warn(f"{who}: {count} refused; the first at {first.now:g} s ({label}): {first.action}: {first.reason}")


def run_task(task: Task, progress: Callable[[float], None]) -> Outcome:
    """Do one task. Whatever is raised becomes the outcome's failure, which any process can pass on."""
    try:
        recording = simulate(task.scenario, seed=task.seed, engine=task.engine, point=task.point, progress=progress)
        if task.out is not None:
            write_run(recording, task.out / task.folder_name)
        summary = summarise(recording)
        return Outcome(
            label=task.label,
            summary=summary,
            warnings=room_warnings(task.scenario, recording, summary),
            recording=recording if task.keeps_recording else None,
            refusals=recording.refusals,
        )
    except PolicyError as error:
        failure = Failure.of(error)
        message = f"{failure.message} ({task.label})\n{_keep_records(task, error.recording)}"
        return Outcome(label=task.label, failure=replace(failure, message=message))
    except Exception as error:
        failure = Failure.of(error)
        return Outcome(label=task.label, failure=replace(failure, message=f"{failure.message} ({task.label})"))


def _keep_records(task: Task, recording: Recording | None) -> str:
    if recording is None:
        return "Nothing was recorded until then."
    name = task.folder_name if task.out is not None else f"{task.scenario.name}-{task.folder_name}"
    try:
        folder = write_run(recording, (task.out or FAILED_RUNS) / f"failed-{name}")
    except ConfigError as error:  # the policy's own error matters more
        return f"The records until then could not be kept: {error}"
    return f"The records until then are in {folder}."


def _run_here(tasks: Sequence[Task], progress: RunProgress, jobs: int) -> Iterator[tuple[int, Outcome]]:
    for index, task in enumerate(tasks):
        progress.reach_time(index, 0.0)
        yield index, run_task(task, lambda now, index=index: progress.reach_time(index, now))  # type: ignore[misc]


def _run_in_processes(tasks: Sequence[Task], progress: RunProgress, jobs: int) -> Iterator[tuple[int, Outcome]]:
    context = get_context("spawn")  # a fork would copy the locks of the table library's threads
    clocks = context.RawArray("d", len(tasks))
    others = set(active_children())
    executor = ProcessPoolExecutor(
        min(jobs, len(tasks)), mp_context=context, initializer=_Worker.begin, initargs=(clocks, tasks)
    )
    try:
        with _deaf_to_interrupts():
            futures: dict[Future[Outcome], int] = {executor.submit(_work, i): i for i in range(len(tasks))}
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            for index, now in enumerate(clocks):
                if now > 0:
                    progress.reach_time(index, now)
            for future in sorted(done, key=futures.__getitem__):
                yield futures[future], future.result()
        executor.shutdown()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in set(active_children()) - others:  # after a failure or an interrupt: they are busy for nothing
            child.terminate()


@contextmanager
def _sure_interrupts() -> Iterator[Callable[[], None]]:
    """An interrupt may come in the callback of a library that ignores exceptions: what this gives raises it again."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        raise KeyboardInterrupt

    def check() -> None:
        if noted:
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or current_thread() is not main_thread():
        yield check
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started in here are deaf to interrupts from their first instruction on: it is for us to end them.

    An interrupt that comes meanwhile is heard afterwards, so that no process is left half started.
    """
    noted: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is started inherits this
    before = signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))  # other threads are not blocked
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if noted:
        raise KeyboardInterrupt


class _Worker:
    """What a worker process is given at its start.

    The tasks among it: a queue of numbers never fills the pipe that it goes through, so its end blocks on nothing.
    """

    clocks: "Array[c_double]"
    tasks: Sequence[Task]

    @classmethod
    def begin(cls, clocks: "Array[c_double]", tasks: Sequence[Task]) -> None:
        cls.clocks, cls.tasks = clocks, tasks


def _work(index: int) -> Outcome:
    def reach(now: float) -> None:
        _Worker.clocks[index] = now

    return run_task(_Worker.tasks[index], reach)
