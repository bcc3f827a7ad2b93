"""`fairlead league --live`: apps served for real under each policy, beside what the simulator predicts."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from shlex import join

import msgspec
import typer

from fairlead.cli.errors import FAILED, INTERRUPTED, UsageError, warn
from fairlead.cli.league_live_tables import show_live
from fairlead.cli.outputs import STDOUT, write_json
from fairlead.cli.profile import profile
from fairlead.cli.progress import ShareProgress
from fairlead.errors import FairleadError
from fairlead.league.catalogue import catalogue
from fairlead.league.live.app import LiveApp
from fairlead.league.live.compare import judge, off
from fairlead.league.live.document import League, read_league, write_league
from fairlead.league.live.page import failures, render_live
from fairlead.league.live.run import LiveLeague, unmeasured
from fairlead.league.plan import check_policies
from fairlead.profile.host import MachineProfile, machine_file, read_machine

LOADS = (0.5, 1.0, 2.0)
SECONDS = 20.0
MAX_SECONDS = 3600.0


def live_league(
    targets: Sequence[str],
    policies: Sequence[str],
    loads: Sequence[float] | None,
    *,
    seconds: float | None,
    seed: int,
    capacity_rps: float | None,
    is_profiled: bool,
    is_resumed: bool,
    json_to: str | None,
    report: Path | None,
    is_quiet: bool,
) -> None:
    """Run a live league, and show and write what came of it."""
    if not targets:
        raise UsageError("Name the apps to serve, such as: fairlead league app.py --live")
    seconds_ = SECONDS if seconds is None else seconds
    if not 0 < seconds_ <= MAX_SECONDS:
        raise UsageError(f"--seconds must be positive and at most {MAX_SECONDS:g}; got {seconds_:g}.")
    if capacity_rps is not None and not 0 < capacity_rps < inf:
        raise UsageError(f"--capacity must be a positive number of requests per second; got {capacity_rps:g}.")
    check_policies(policies)
    who = list(dict.fromkeys(policies)) or list(catalogue().general())
    file = None if json_to in (None, STDOUT) else Path(str(json_to))
    apps = _apps(targets)
    league = _begin(League(seconds=seconds_, seed=seed), file, capacity_rps, is_resumed=is_resumed)
    if is_profiled:
        _profile(apps, who, is_quiet=is_quiet)
    machine = _machine()
    host = machine.host if machine else None
    league = msgspec.structs.replace(league, machine=machine.cpu if machine else "")
    for app in apps:
        for note in unmeasured(app, who, host):
            warn(f"{app.name}: {note}")
    running = LiveLeague(apps, who, loads or LOADS, league, host=host, capacity_rps=capacity_rps)

    def keep(found: League) -> None:
        if file is not None:
            write_league(found, file, said_of(found))

    failure: FairleadError | None = None
    is_interrupted = False
    try:
        with ShareProgress(f"Live league: {running.count} cells", is_quiet=is_quiet) as progress:
            running.run(progress.reach, keep)
    except KeyboardInterrupt:
        is_interrupted = True
    except FairleadError as error:
        failure = error
    found = running.league
    keep(found)
    if report is not None and found.cells:
        command = _command(targets, policies, loads, seconds, seed, capacity_rps, report)
        report.write_text(render_live(found, command), encoding="utf-8", newline="\n")
    if json_to == STDOUT:
        write_json({**msgspec.to_builtins(found), **dict(said_of(found))}, STDOUT)
    elif not is_quiet:
        show_live(found)
        for path in (path for path in (report, file) if path is not None and found.cells):
            typer.echo(f"Wrote {path}")
    for failed in failures(found):
        typer.echo(failed, err=True)
    if is_interrupted:
        left = running.count - len(found.done() - league.done())
        how = f"; the same command with --resume runs the other {left}" if file else ""
        typer.echo(f"Interrupted; cells done: {len(found.done())}{how}.", err=True)
        raise typer.Exit(INTERRUPTED)
    if failure is not None:
        raise failure
    if any(cell.failure for cell in found.cells):
        raise typer.Exit(FAILED)


def said_of(league: League) -> list[tuple[str, object]]:
    """What the JSON file has besides the cells: how far each prediction is off, and the verdict."""
    offs = [
        {"app": cell.app, "load": cell.load, "policy": cell.policy, **msgspec.to_builtins(found)}
        for cell in league.cells
        if (found := off(cell)) is not None
    ]
    return [("off", offs), ("summary", msgspec.to_builtins(judge(league)))]


def _apps(targets: Sequence[str]) -> list[LiveApp]:
    apps = [LiveApp(target) for target in dict.fromkeys(targets)]
    names = [app.name for app in apps]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"Several apps are named {', '.join(twice)}; a league needs different names.")
    return apps


def _begin(asked: League, file: Path | None, capacity_rps: float | None, *, is_resumed: bool) -> League:
    """What was asked for or, to be resumed, what the file has of it."""
    if not is_resumed:
        return asked
    if file is None:
        raise UsageError("--resume needs --json FILE, which has the cells that are done.")
    if not file.exists() or not file.stat().st_size:
        return asked
    found = read_league(file)
    for option, now, then in (
        ("--seconds", asked.seconds, found.seconds),
        ("--seed", asked.seed, found.seed),
        ("the warm-up", asked.warm_up_s, found.warm_up_s),
    ):
        if now != then:
            raise UsageError(
                f"{file} was run with {option} {then:g}; got {now:g}. Say the same, or leave out --resume."
            )
    for app in found.apps:
        if capacity_rps not in (None, app.capacity_rps):
            raise UsageError(
                f"{file} was run with a capacity of {app.capacity_rps:g} for {app.name}; leave --capacity."
            )
    return found


def _profile(apps: Sequence[LiveApp], policies: Sequence[str], *, is_quiet: bool) -> None:
    """As `fairlead profile --host APP` does, the machine once."""
    for place, app in enumerate(apps):
        with app.environment():
            profile(app.path, is_host=place == 0, is_served=place > 0, policies=list(policies), is_silent=is_quiet)
        app.reload()


def _machine() -> MachineProfile | None:
    here = machine_file()
    return read_machine(here) if here.is_file() else None


def _command(
    targets: Sequence[str],
    policies: Sequence[str],
    loads: Sequence[float] | None,
    seconds: float | None,
    seed: int,
    capacity_rps: float | None,
    report: Path,
) -> str:
    """What to type to get such a page."""
    words = ["fairlead", "league", *targets, "--live"]
    for policy in policies:
        words += ["--policy", policy]
    words += ["--load", ",".join(f"{load:g}" for load in loads)] if loads is not None else []
    words += ["--seconds", f"{seconds:g}"] if seconds is not None else []
    words += ["--seed", str(seed)] if seed else []
    words += ["--capacity", f"{capacity_rps:g}"] if capacity_rps is not None else []
    return join([*words, "--report", report.name])
