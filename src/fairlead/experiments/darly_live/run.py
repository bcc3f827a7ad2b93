"""Serve the video workflow under each contestant in turn, press on its nodes in the same way, and compare."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.darly_live.drawing import figures
from fairlead.experiments.darly_live.judging import AGENT, STATIC, Runs, judge, rows
from fairlead.experiments.darly_live.machine import check_machine
from fairlead.experiments.darly_live.serving import Served, prepare_files, serve_and_press
from fairlead.experiments.reproduction import Reproduction
from fairlead.policy.darly import anywhere
from fairlead.stress import Schedule, parse_schedule

__all__ = ["judge", "run"]


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Requests met under the agent, a static placement and least-loaded placement, phase by phase."""
    check_machine()
    settings = read_settings(__package__)
    schedule = schedule_of(settings, quick=quick)
    repeats = settings["quick_repeats" if quick else "repeats"]
    contestants, notes = dict(settings["contestants"]), list[str]()
    if not Path(anywhere.__file__).with_name(anywhere.SHIPPED).is_file():
        notes.append(f"{AGENT} is left out: there is no trained agent ({anywhere.SHIPPED}).")
        del contestants[AGENT]
    runs: dict[str, list[Served]] = {name: [] for name in contestants}
    with TemporaryDirectory(prefix="fairlead-darly-") as folder:
        prepare_files(Path(folder), settings)
        for repeat in range(repeats):
            # In turn from another one each time: what the machine does besides must not always hit the same.
            names = list(contestants)
            for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
                progress(sum(map(len, runs.values())) / (repeats * len(names)), f"{name}, repeat {repeat + 1}")
                runs[name].append(serve_and_press(Path(folder), settings, contestants[name], schedule))
    progress(1.0, "done")
    return Reproduction(
        name="darly-live",
        title="Darly live: a video workflow on four emulated nodes, under pressure that goes from node to node",
        rows=tuple(rows(settings, schedule, runs)),
        notes=(*notes, *_notes(settings, schedule, repeats, runs)),
        figures=figures(settings, schedule, runs),
    )


def schedule_of(settings: Mapping[str, Any], *, quick: bool) -> Schedule:
    """The phases of the settings, as `fairlead stress --schedule` would read them."""
    phases = settings["quick_phases" if quick else "phases"]
    return parse_schedule(yaml.safe_dump({"phases": phases}), "experiment.yaml")


def _notes(settings: Mapping[str, Any], schedule: Schedule, repeats: int, runs: Runs) -> list[str]:
    every = [served for own in runs.values() for served in own]
    mean = partial(_mean_of, every)
    return [
        f"{repeats} repeat(s) of {len(schedule.phases)} phases, {schedule.seconds:g} s in all. A request of "
        f"{settings['frames']} frames of the test clip is due every {settings['every_s']:g} s, under every contestant, "
        f"and given up when the next one is; the objective is {settings['slo_s']:g} s.",
        f"One request where nobody disturbs, under {STATIC}: {shares(runs)}. CPU time in seconds, its share, and what "
        "the calls take one by one on a node that stands still once its share is used up.",
        f"Moves count functions, starts of instances count as CPU time of theirs: {_moves(runs)}.",
        "Measured, not simulated: numbers depend on the machine and on what else it does. Of all cores' time "
        f"{mean('busy_before'):.0%} was in use before the schedules. Watching four nodes takes {mean('overhead'):.1%} "
        "of a core.",
        "Pressure is CPU time alone, taken by stress-ng from the share of a node; nothing is said of caches or memory.",
    ]


def shares(runs: Runs) -> str:
    """What each function takes of a request, in words."""
    own = runs.get(STATIC) or next(iter(runs.values()))
    names = own[0].costs
    cpu_s = {name: fmean(served.costs[name].cpu_s for served in own) for name in names}
    calls_s = {name: fmean(served.costs[name].calls_s for served in own) for name in names}
    total = sum(cpu_s.values()) or 1.0
    ordered = sorted(names, key=lambda name: -cpu_s[name])
    return ", ".join(f"{n} {cpu_s[n]:.2f} s ({cpu_s[n] / total:.0%}; {calls_s[n]:.2f} s)" for n in ordered)


def _moves(runs: Runs) -> str:
    return ", ".join(
        f"{name} {fmean(served.moves for served in own):.3g} moves and "
        f"{fmean(sum(served.cpu_s.values()) for served in own):.3g} CPU-seconds"
        for name, own in runs.items()
    )


def _mean_of(every: list[Served], name: str) -> float:
    return fmean(getattr(served, name) for served in every)
