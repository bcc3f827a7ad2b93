"""`fairlead stress`: pressure on a node, as third parties would put it there."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from fairlead.app.units import seconds
from fairlead.cli.errors import UsageError, warn
from fairlead.cli.places import LOCAL, check_names, places_of
from fairlead.errors import suggestion
from fairlead.stress import (
    BURNERS,
    Phase,
    Pressure,
    Schedule,
    draw_schedule,
    parse_share,
    read_schedule,
    run_schedule,
    write_schedule,
)
from fairlead.stress.burners import command

_PHASES = 5
_TERMINATED = 128 + signal.SIGTERM


def stress(
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="local, or an emulated node of a running service; repeatable."),
    ] = None,
    cpu: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Share of the node's CPU time to take, such as 50%.")
    ] = None,
    is_cache: Annotated[bool, typer.Option("--cache", help="Spend it on going through the caches.")] = False,
    is_memory: Annotated[
        bool, typer.Option("--memory-bandwidth", help="Spend it on streaming through memory.")
    ] = False,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long, such as 30s; drawn: each phase.")
    ] = None,
    schedule: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Phases with the pressure on each node, as YAML.")
    ] = None,
    is_random: Annotated[bool, typer.Option("--random", help="Draw 0, 25, 50 or 75 % per node and phase.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of what is drawn.", min=0, show_default="0")] = None,
    phases: Annotated[
        int | None, typer.Option(help="How many phases to draw.", min=1, show_default=str(_PHASES))
    ] = None,
    cpus: Annotated[str | None, typer.Option(metavar="LIST", help="CPUs to press on, such as 0-3.")] = None,
    cgroup: Annotated[Path | None, typer.Option(metavar="PATH", help="Control group of the one --node.")] = None,
    burner: Annotated[str, typer.Option(help="What presses: stress-ng, or python (CPU only).")] = "stress-ng",
    no_groups: Annotated[
        bool, typer.Option("--no-groups", help="Without control groups: coarse, but needs no rights.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the schedule as YAML and do nothing.")] = False,
) -> None:
    """Take a share of a node's CPU time, for a while or by a schedule; leaves nothing behind, however it ends."""
    if burner not in BURNERS:
        raise UsageError(f"--burner must be one of {', '.join(BURNERS)}; got {burner!r}.{suggestion(burner, BURNERS)}")
    if (cpu is not None) + (schedule is not None) + is_random != 1:
        raise UsageError("Say how hard to press with one of --cpu SHARE, --schedule FILE and --random.")
    if (is_cache or is_memory) and cpu is None:
        raise UsageError("--cache and --memory-bandwidth go with --cpu; a schedule says it per node.")
    if schedule is not None and (for_ is not None or nodes):
        raise UsageError("--schedule names its nodes and times itself: leave out --node and --for.")
    if not is_random and (seed is not None or phases is not None):
        raise UsageError("--seed and --phases are for what is drawn: they go with --random.")
    check_names(nodes or ())
    plan = _plan(nodes or [LOCAL], cpu, is_cache, is_memory, for_, schedule, is_random, seed or 0, phases or _PHASES)
    if dry_run:
        typer.echo(write_schedule(plan), nl=False)
        return
    for pressure in {pressure for phase in plan.phases for pressure in phase.pressure.values() if pressure.share}:
        command(burner, pressure, 1, is_limited=True)  # before anything is pressed on
    places = places_of(plan.nodes, cpus, cgroup)
    if no_groups and any(place.cgroup is not None for place in places):
        raise UsageError("--no-groups cannot press on an emulated node, which is a control group.")
    if no_groups:
        warn("without control groups a share is kept by pausing, and is what the scheduler makes of it.")
    stop = threading.Event()

    def terminate(number: int, at: FrameType | None) -> None:
        stop.set()

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        run_schedule(plan, places, burner=burner, with_groups=not no_groups, stop=stop, on_phase=_show)
    finally:
        signal.signal(signal.SIGTERM, before)
    if stop.is_set():
        raise typer.Exit(_TERMINATED)


def _plan(
    nodes: list[str],
    cpu: str | None,
    is_cache: bool,
    is_memory: bool,
    for_: str | None,
    schedule: Path | None,
    is_random: bool,
    seed: int,
    phases: int,
) -> Schedule:
    if schedule is not None:
        return read_schedule(schedule)
    try:
        length_s = seconds(for_ or "30s", "--for")
        if is_random:
            return draw_schedule(nodes, phases=phases, seconds=length_s, seed=seed)
        kinds = [kind for kind, is_on in (("cache", is_cache), ("memory-bandwidth", is_memory)) if is_on]
        share = _share(cpu)
    except ValueError as error:
        raise UsageError(str(error)) from error
    pressure = Pressure(share=share, kinds=tuple(kinds) or ("cpu",))
    return Schedule(phases=(Phase(seconds=length_s, pressure=dict.fromkeys(nodes, pressure)),))


def _share(cpu: str | None) -> float:
    try:
        return parse_share(cpu)
    except ValueError as error:
        raise ValueError(f"--cpu {error}") from error


def _show(i: int, phase: Phase) -> None:
    pressed = ", ".join(f"{node} {pressure}" for node, pressure in phase.pressure.items()) or "nothing"
    typer.echo(f"phase {i + 1}, {phase.seconds:g} s: {pressed}")
