"""`fairlead report`: tables, pages and traces from runs that were stored."""

import re
from collections.abc import Sequence
from dataclasses import replace
from os.path import realpath
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.errors import UsageError
from fairlead.cli.outputs import STDOUT, check_files, write_json
from fairlead.cli.run_files import write_traces
from fairlead.cli.simulate import show_summaries
from fairlead.model import Recording
from fairlead.report import results_json, summarise, write_html
from fairlead.report.labels import RUN, identity
from fairlead.report.live import is_run, read_any_run


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            show_default=False,
            help="Folders of runs, as simulate --out and serve leave them; a folder of such folders stands for them.",
        ),
    ],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with charts, for the browser (HTML).")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a timeline for Perfetto (JSON); one per policy, of the first seed."),
    ] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON; - for standard output.")
    ] = None,
) -> None:
    """Compare runs that simulate or serve stored."""
    check_files({"--html": html, "--trace": trace, "--json": json_to})
    recordings = read_runs(runs)
    scenarios = dict.fromkeys(recording.scenario for recording in recordings)
    if len(scenarios) > 1:
        raise UsageError(f"These runs are of different scenarios: {', '.join(scenarios)}. Report each apart.")
    summaries = [summarise(recording) for recording in recordings]
    name = recordings[0].scenario
    wrote: list[Path] = []
    if html is not None:
        wrote.append(write_html(recordings, html))
    if trace is not None:
        wrote += write_traces(recordings, trace)
    if json_to is not None:
        write_json(results_json(name, summaries), json_to)
        wrote += [] if json_to == STDOUT else [Path(json_to)]
    if json_to != STDOUT:
        seeds = {recording.seed for recording in recordings}
        show_summaries(summaries, f"{name}, seed {seeds.pop()}" if len(seeds) == 1 else name)
        for path in wrote:
            typer.echo(f"Wrote {path}")


def read_runs(folders: list[Path]) -> list[Recording]:
    """The runs in these folders, each once.

    Records do not have the settings of their scenario. Runs that look the same but for their folder get the name of
    that folder, as short as tells them apart, as a point of their own; otherwise they would count as seeds of one run.
    """
    found: dict[Path, tuple[Path, Recording]] = {}
    for folder in folders:
        for run in _run_folders(folder):
            place = Path(realpath(run))  # of links that lead in a circle too
            if place not in found:
                found[place] = (folder, read_any_run(run))
    recordings = [recording for _, recording in found.values()]
    alike = [(identity(recording), recording.seed) for recording in recordings]
    if len(set(alike)) == len(recordings):
        return recordings
    named = [Path(realpath(folder)) for folder, _ in found.values()]
    if len(set(zip(alike, named, strict=True))) < len(recordings):  # one folder holds several of them
        named = list(found)
    names = short_names(named)
    return [
        replace(recording, point={RUN: name, **recording.point})
        for name, recording in zip(names, recordings, strict=True)
    ]


def short_names(folders: Sequence[Path]) -> list[str]:
    """Names that tell folders apart: what is left of their paths without the beginning and the end that all share."""
    parts = [folder.parts for folder in folders]
    if len(set(parts)) == 1:
        return [folder.name for folder in folders]
    shortest = min(map(len, parts))
    first = next((i for i in range(shortest) if len({path[i] for path in parts}) > 1), shortest - 1)
    last = next((i for i in range(shortest - first) if len({path[-1 - i] for path in parts}) > 1), 0)
    return ["/".join(path[first : len(path) - last]) for path in parts]


def _run_folders(folder: Path) -> list[Path]:
    if is_run(folder) or not folder.is_dir():
        return [folder]
    inside = sorted((run for run in folder.iterdir() if run.is_dir() and is_run(run)), key=_by_number)
    complete = [run for run in inside if not run.name.startswith("failed-")]
    return complete or [folder]


def _by_number(folder: Path) -> list[object]:
    """Orders names as people do: 2 before 10. Texts and numbers take turns, so that they are never compared."""
    return [float(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+(?:\.\d+)?)", folder.name))]
