"""`fairlead league`: every policy on every scenario, or on an app of one's own."""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from shlex import join
from typing import Annotated

import typer

from fairlead.app.load import split_address
from fairlead.app.scenario import profile_beside
from fairlead.cli.choices import admit_own, open_source, whole_number
from fairlead.cli.errors import FAILED, INTERRUPTED, UsageError
from fairlead.cli.league_live import live_league
from fairlead.cli.league_tables import show_league
from fairlead.cli.outputs import STDOUT, check_files, check_folder, write_json
from fairlead.cli.progress import ShareProgress
from fairlead.league import Cache, Done, Entrant, Plan, catalogue, default_folder, make_plan, run_league, tabulate
from fairlead.league.cache import FOLDER_VARIABLE
from fairlead.league.document import league_json
from fairlead.league.page import describe_failures, heat_map_file, render_league
from fairlead.league.plan import (
    app_entrant,
    check_policies,
    core_scenarios,
    file_entrant,
    full_scenarios,
    shipped_entrant,
    unregistered,
)
from fairlead.league.workers import cores
from fairlead.workload import load_scenario, shipped_names


def league(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SCENARIO|APP]",
            show_default=False,
            help="Shipped scenarios, YAML files, or app files. Without any: the core league.",
        ),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME",
            callback=admit_own,
            help="A policy that competes, by name or as my.module:Class; repeatable. Default: all general ones.",
        ),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(
            metavar="L,L,...",
            help="Loads, as factors of the scenario's arrivals or, for an app, of its estimated capacity. "
            "Default: 0.5,1,3; for an app 0.25,0.5,0.75,1,1.5,2,3.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(parser=whole_number(1), metavar="N", help="Seeds of every cell. Default: 3.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", parser=whole_number(1), metavar="N", help="Worker processes. Default: all cores."),
    ] = None,
    is_full: Annotated[
        bool, typer.Option("--full", help="Every shipped scenario, and specialised policies where they apply.")
    ] = False,
    limit_s: Annotated[
        float | None,
        typer.Option(
            "--limit-s", metavar="S", help="Wall-clock limit of one run; beyond, it is too slow. Default: 120."
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help=f"Where finished runs are kept. Default: ${FOLDER_VARIABLE}, or ~/.cache."),
    ] = None,
    is_uncached: Annotated[bool, typer.Option("--no-cache", help="Do every run, and keep none.")] = False,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON; - for standard output.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with a heat map (HTML).")] = None,
    heatmap: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the heat map alone (SVG).")] = None,
    is_live: Annotated[
        bool,
        typer.Option(
            "--live", help="Serve apps for real, one policy after the other, beside what simulation predicts."
        ),
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", help="With --live: seconds of load counted per cell. Default: 20.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(parser=whole_number(0), metavar="N", help="With --live: of the arrivals. Default: 0.")
    ] = None,
    capacity: Annotated[
        float | None,
        typer.Option(metavar="RPS", help="With --live: requests per second at load 1. Default: measured for each app."),
    ] = None,
    is_profiled: Annotated[
        bool, typer.Option("--profile", help="With --live: first measure the machine and the apps anew.")
    ] = False,
    is_resumed: Annotated[
        bool, typer.Option("--resume", help="With --live and --json FILE: go on with the cells that FILE lacks.")
    ] = False,
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Compare policies on every scenario, or on an app: which one keeps its objectives, and at which load it breaks.

    Finished runs are kept: the same command again does only what is new, and goes on where it was interrupted.

    With --live, apps are served by real processes under the same arrivals for every policy, at 0.5, 1 and 2 times their
    capacity, and every figure stands beside the simulator's prediction of it.
    """
    check_files({"--json": json_to, "--report": report, "--heatmap": heatmap})
    live_only = {"--seconds": seconds, "--seed": seed, "--capacity": capacity}
    live_only |= {"--profile": is_profiled or None, "--resume": is_resumed or None}
    sim_only = {"--seeds": seeds, "--jobs": jobs, "--limit-s": limit_s, "--cache": cache, "--heatmap": heatmap}
    sim_only |= {"--full": is_full or None, "--no-cache": is_uncached or None}
    _refuse(sim_only if is_live else live_only, is_live=is_live)
    if is_live:
        live_league(
            targets or [],
            policies or [],
            _read_loads(load),
            seconds=seconds,
            seed=seed or 0,
            capacity_rps=capacity,
            is_profiled=is_profiled,
            is_resumed=is_resumed,
            json_to=json_to,
            report=report,
            is_quiet=is_quiet,
        )
        return
    if is_full and targets:
        raise UsageError("--full takes every shipped scenario; leave out the names, or leave out --full.")
    store = _open_cache(cache, is_uncached)
    most_s = _read_limit(limit_s)
    plan = plan_league(targets or [], policies or [], _read_loads(load), seeds, is_full=is_full)
    done = Done()
    try:
        with ShareProgress(f"League: {len(plan.runs)} runs", is_quiet=is_quiet) as progress:
            run_league(plan, store, jobs=jobs or cores(), limit_s=most_s, progress=progress.reach, done=done)
    except KeyboardInterrupt:
        kept = (
            "are kept; the same command goes on from there" if store.folder else "are lost, since --no-cache was given"
        )
        typer.echo(f"Interrupted: {len(done.outcomes)} of {len(plan.runs)} runs {kept}.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    table = tabulate(plan, done.outcomes)
    wrote = [path for path in (report, heatmap) if path is not None]
    if report is not None:
        _write(report, render_league(table, _command(targets or [], policies or [], load, seeds, is_full)))
    if heatmap is not None:
        _write(heatmap, heat_map_file(table))
    if json_to is not None:
        write_json(league_json(table, done, most_s), json_to)
        wrote += [] if json_to == STDOUT else [Path(json_to)]
    if not is_quiet and json_to != STDOUT:
        show_league(table, done, targets or [])
        for path in wrote:
            typer.echo(f"Wrote {path}")
    for failure in describe_failures(table):
        typer.echo(failure, err=True)
    if table.failed:
        raise typer.Exit(FAILED)


def plan_league(
    targets: Sequence[str],
    policies: Sequence[str],
    loads: Sequence[float] | None = None,
    seeds: int | None = None,
    *,
    is_full: bool = False,
) -> Plan:
    """The plan of what was asked for. Raises before anything runs if a name or a file is wrong."""
    chosen = catalogue()
    check_policies(policies)
    who = list(dict.fromkeys(policies)) or list(chosen.general())
    notes: list[str] = []
    names = list(dict.fromkeys(targets))
    if not names:
        names, notes = full_scenarios(chosen) if is_full else core_scenarios(chosen)
    notes += [] if policies else unregistered(chosen)
    shipped = shipped_names()
    entrants: list[Entrant] = []
    for name in names:
        path, _ = split_address(name)
        if path.suffix == ".py":
            if not profile_beside(name):
                notes.append(
                    f"{name} is not measured, so its times are assumed; fairlead profile {name} measures them."
                )
            entrants.append(
                app_entrant(load_scenario(open_source(name, is_served=False)), who, loads or chosen.app_loads, chosen)
            )
        elif name in shipped and not path.exists():
            is_open = is_full and not policies
            entrants.append(shipped_entrant(name, who, loads or chosen.loads, chosen, is_full=is_open))
        else:
            entrants.append(file_entrant(load_scenario(open_source(name, is_served=False)), who, loads or chosen.loads))
    twice = {one.name for one in entrants if [each.name for each in entrants].count(one.name) > 1}
    if twice:
        raise UsageError(f"Several scenarios are named {', '.join(sorted(twice))}; a league needs different names.")
    return make_plan(entrants, seeds or chosen.seeds, notes)


def _read_loads(text: str | None) -> list[float] | None:
    if text is None:
        return None
    loads = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = 0.0
        if not 0 < value < inf:
            raise UsageError(f"--load must be positive numbers such as 0.5,1,3; got {part.strip()!r} in {text!r}.")
        loads.append(value)
    return sorted(set(loads))


def _refuse(options: Mapping[str, object], *, is_live: bool) -> None:
    """Raise for options that were given and belong to the other kind of league."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        one = len(given) == 1
        why = "is for simulated leagues, without --live" if is_live else "needs --live"
        why = why if one else why.replace("is for", "are for").replace("needs", "need")
        raise UsageError(f"{', '.join(given)} {why}.")


def _read_limit(given: float | None) -> float:
    if given is None:
        return catalogue().limit_s
    if not 0 < given < inf:
        raise UsageError(f"--limit-s must be a positive number of seconds; got {given:g}.")
    return given


def _open_cache(folder: Path | None, is_uncached: bool) -> Cache:
    if is_uncached:
        if folder is not None:
            raise UsageError("--cache and --no-cache exclude each other; leave one out.")
        return Cache(None)
    chosen = folder or default_folder()
    check_folder("--cache", chosen)
    return Cache(chosen)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}.") from error


def _command(
    targets: Sequence[str], policies: Sequence[str], load: str | None, seeds: int | None, is_full: bool
) -> str:
    """What to type to get the same results."""
    words = ["fairlead", "league", *targets, *(["--full"] if is_full else [])]
    for policy in policies:
        words += ["--policy", policy]
    words += ["--load", load] if load is not None else []
    words += ["--seeds", str(seeds)] if seeds is not None else []
    return join(words)
