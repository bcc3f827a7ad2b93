"""`fairlead simulate`: a scenario under one or several policies, and what came of it."""

from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import Annotated

import typer
from rich.console import Console

from fairlead.cli.choices import NO_SCALER, admit_own, choose_scenarios, whole_number
from fairlead.cli.compiling import CompilingError, load_engine
from fairlead.cli.errors import INTERRUPTED, show_failure, warn
from fairlead.cli.machines import Machine, machine_of, warn_of_extrapolation
from fairlead.cli.outputs import STDOUT, check_files, check_folder, write_json
from fairlead.cli.progress import RunProgress
from fairlead.cli.run_files import write_traces
from fairlead.cli.runs import Finished, Task, run_all, warn_of_refusals
from fairlead.engine.sim.simulate import Engine, is_for_compiled
from fairlead.errors import UncoveredError
from fairlead.policy import make_policy
from fairlead.report import Summary, result_tables, results_json, write_html
from fairlead.report.labels import policy_label
from fairlead.workload import Scenario


def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            show_default=False,
            help="A YAML file, or the name of a shipped scenario. Without one, the shipped ones are listed.",
        ),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME",
            callback=admit_own,
            help="The policy that dispatches: a name or my.module:Class; repeat it to compare. "
            "Default: the scenario's own.",
        ),
    ] = None,
    scaler: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=admit_own,
            help=f"The policy that scales, or '{NO_SCALER}'. Default: the scenario's own.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Change a setting, such as arrivals.0.rate_rps=20 or policy.headroom=0.2; repeatable.",
        ),
    ] = None,
    machine: Machine = None,
    seeds: Annotated[
        int, typer.Option(parser=whole_number(1), metavar="N", help="How many seeds to run each policy with.")
    ] = 1,
    seed: Annotated[int, typer.Option(parser=whole_number(0), metavar="K", help="The first seed.")] = 0,
    engine: Annotated[
        Engine,
        typer.Option(
            metavar="NAME",
            help="The engine: python, compiled (machine code, for what it covers), or auto, which takes the compiled "
            "one where it covers a long run. Results do not depend on it.",
        ),
    ] = "auto",
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", parser=whole_number(1), metavar="N", help="Worker processes. Results do not depend on it."
        ),
    ] = 1,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON; - for standard output.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with charts, for the browser (HTML).")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a timeline for Perfetto (JSON); one per policy, of the first seed."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write every run's records; fairlead report reads them.")
    ] = None,
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Simulate a scenario under one or several policies."""
    check_files({"--json": json_to, "--report": report, "--trace": trace})
    if out is not None:
        check_folder("--out", out)
    chosen = choose_scenarios(scenario, policies or [], scaler, settings or [], machine_of(machine, scenario))
    used = ready_engine(engine, [one for _, one in chosen], is_quiet=is_quiet)
    tasks = [
        Task(
            scenario=one,
            seed=number,
            point=point,
            engine=used,
            out=out,
            keeps_recording=report is not None or trace is not None,
        )
        for point, one in chosen
        for number in range(seed, seed + seeds)
    ]
    name = tasks[0].scenario.name
    finished = run_all(tasks, RunProgress(f"Simulating {name}", tasks, is_quiet=is_quiet), jobs)
    command = _command(scenario or name, policies or [], scaler, settings or [], machine, seeds, seed, engine)
    wrote = _write(name, finished, command, json_to, report, trace)
    if out is not None and finished.outcomes:
        wrote.append(out)
    warn_of_refusals(finished.outcomes)
    for text in finished.warnings:
        warn(text)
    warn_of_extrapolation(scenario or name, machine, [one for _, one in chosen])
    if finished.summaries and not is_quiet and json_to != STDOUT:
        show_summaries(finished.summaries, f"{name}, seed {seed}" if seeds == 1 else name)
        show_engines(finished.summaries)
        for path in wrote:
            typer.echo(f"Wrote {path}")
    end(finished, len(tasks))


def show_summaries(summaries: Sequence[Summary], title: str) -> None:
    """Print the comparison: one table, or one per number where a sweep meets several policies."""
    console = Console(highlight=False)
    for table in result_tables(summaries, title=title, width=console.width):
        console.print(table)
        console.print()


def ready_engine(engine: Engine, scenarios: Sequence[Scenario], *, is_quiet: bool = False) -> Engine:
    """Load the compiled engine if it is needed: here, lest every worker process compile it. Gives the engine to use.

    Raises:
        UncoveredError: The compiled engine must do one of the runs and cannot: before the first of them.
    """
    if not any(is_for_compiled(one, engine) for one in scenarios):
        return engine
    try:
        load_engine(is_quiet=is_quiet)
    except CompilingError as error:
        if engine == "compiled":
            raise
        warn(f"{error} Until then the Python engine does all runs.")
        return "python"
    if engine == "compiled":
        _check_covered(scenarios)
    return engine


def _check_covered(scenarios: Sequence[Scenario]) -> None:
    from fairlead.engine.sim.compiled import coverage  # noqa: PLC0415 - loaded by now, and by none who need not

    for one in scenarios:
        scaler = make_policy(one.scaler.name, one.scaler.parameters) if one.scaler is not None else None
        reason = coverage(one, make_policy(one.policy.name, one.policy.parameters), scaler)
        if reason is not None:
            raise UncoveredError(one.name, reason)


def show_engines(summaries: Sequence[Summary]) -> None:
    """Say which runs the compiled engine did; the Python engine is taken for granted."""
    compiled, others = (
        {policy_label(one.policy, one.scaler): None for one in summaries if (one.engine == "compiled") is is_compiled}
        for is_compiled in (True, False)
    )
    if compiled:
        which = f": {', '.join(compiled)}. The Python engine did: {', '.join(others)}" if others else ""
        typer.echo(f"Run by the compiled engine{which}.")


def end(finished: Finished, count: int) -> None:
    """Say what stopped the runs, if anything did, and leave with its exit code."""
    kept = f"{len(finished.outcomes)} of {count} runs were finished and are kept."
    if finished.is_interrupted:
        typer.echo(f"Interrupted: {kept}", err=True)
        raise typer.Exit(INTERRUPTED)
    if finished.failure is not None:
        show_failure(finished.failure)
        if count > 1:
            typer.echo(kept, err=True)
        raise typer.Exit(finished.failure.code)


def _write(
    name: str, finished: Finished, command: str, json_to: str | None, report: Path | None, trace: Path | None
) -> list[Path]:
    """Write what was asked for, and return where."""
    wrote: list[Path] = []
    if not finished.summaries:
        return wrote
    if report is not None:
        wrote.append(write_html(finished.recordings, report, command=command))
    if trace is not None:
        wrote += write_traces(finished.recordings, trace)
    if json_to is not None:
        write_json(results_json(name, finished.summaries, warnings=finished.warnings), json_to)
        wrote += [] if json_to == STDOUT else [Path(json_to)]
    return wrote


def _command(
    scenario: str,
    policies: Sequence[str],
    scaler: str | None,
    settings: Sequence[str],
    machine: str | None,
    seeds: int,
    seed: int,
    engine: Engine,
) -> str:
    """What to type to get the same results."""
    words = ["fairlead", "simulate", scenario]
    for policy in policies:
        words += ["--policy", policy]
    words += ["--scaler", scaler] if scaler is not None else []
    for setting in settings:
        words += ["--set", setting]
    words += ["--machine", machine] if machine is not None else []
    words += ["--seeds", str(seeds)] if seeds != 1 else []
    words += ["--seed", str(seed)] if seed != 0 else []
    words += ["--engine", engine] if engine != "auto" else []
    return join(words)
