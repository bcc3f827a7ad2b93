"""`fairlead demo`: a first look in a few seconds."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fairlead.cli.choices import choose_scenarios
from fairlead.cli.outputs import check_files, check_folder, write_traces
from fairlead.cli.progress import RunProgress
from fairlead.cli.runs import Task, run_all, warn_of_refusals
from fairlead.cli.simulate import end, show_summaries
from fairlead.report import Summary, write_html

SCENARIO = "quickstart"
POLICIES = ("fifo", "least-loaded", "earliest-deadline")


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report and the trace go.")] = Path("runs/demo"),
) -> None:
    """Compare three policies on a small photo service."""
    page, trace = out / "report.html", out / "trace.json"
    check_folder("--out", out)
    check_files({"--out": page})
    check_files({"--out": trace})
    chosen = choose_scenarios(SCENARIO, POLICIES, None, [])
    tasks = [Task(scenario=one, seed=0, point=point, keeps_recording=True) for point, one in chosen]
    scenario = tasks[0].scenario
    console = Console(highlight=False)
    console.print(Text(f"{scenario.description}."))
    console.print(Text(f"The same {scenario.duration_s:g} s of requests under {len(tasks)} policies:"))
    finished = run_all(tasks, RunProgress(f"Simulating {SCENARIO}", tasks))
    warn_of_refusals(finished.outcomes)
    if len(finished.summaries) == len(tasks):
        write_html(finished.recordings, page)
        best = max(finished.summaries, key=_merit)
        write_traces([one for one in finished.recordings if one.policy == best.policy], trace)
        show_summaries(finished.summaries, f"{SCENARIO}, seed 0")
        in_time = f"{best.slo_attainment or 0:.1%} of the requests were answered in time, for ${best.cost_usd:.3f}"
        typer.echo(
            f"{best.policy} did best: {in_time}.\n\n"
            f"Charts    {page} (open it in a browser)\n"
            f"Timeline  {trace} ({best.policy}; open it in Perfetto, ui.perfetto.dev)\n\n"
            f"Next, a fifth more requests:\n"
            f"  {_program()} simulate {SCENARIO} --policy {best.policy} --set rate_scale=1.2 --seeds 3"
        )
    end(finished, len(tasks))


def _program() -> str:
    """How to call this program from here: by its name, or by its path where it is not on the search path."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "fairlead" and shutil.which("fairlead") is None else "fairlead"


def _merit(summary: Summary) -> tuple[float, float]:
    """More in time is better; then, less money."""
    return (summary.slo_attainment or 0.0, -summary.cost_usd)
