"""`fairlead demo`: the main job, for real: an app measured, served and overloaded on this machine, in half a minute."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fairlead.cli.errors import UsageError
from fairlead.cli.outputs import check_files, check_folder
from fairlead.cli.run_files import write_traces
from fairlead.errors import FairleadError
from fairlead.load import Closed, LoadResult, Open, Plan, run_load
from fairlead.report import write_html
from fairlead.report.live import latest_run, read_live_run

OVERLOAD = 1.5
"""Offered load over capacity."""

_DEADLINE_S = 0.08
_BODY = b'{"input": "beach.jpg"}'
_START_LIMIT_S = 60.0
_MEASURED_S, _SATURATED_S = 5.0, 2.5  # at most: a shorter demo is shorter here too


class _Rival(NamedTuple):
    label: str
    options: tuple[str, ...]


RIVALS = (
    _Rival("fifo", ("--policy", "fifo", "--set", "policy.batching=deadline")),
    _Rival("fairlead", ("--policy", "fairlead")),
)
"""First come, first served, with batches; and the default. The same app, machine and load."""


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the app, the report and the trace go.")] = Path(
        "runs/demo"
    ),
    seconds: Annotated[float, typer.Option(help="How long each is loaded, in seconds.", min=1.0, max=600.0)] = 6.0,
) -> None:
    """Serve a real workflow under its deadline on this machine, past its capacity, and compare with FIFO."""
    page, trace = out / "report.html", out / "trace.json"
    check_folder("--out", out)
    check_files({"--out": page})
    check_files({"--out": trace})
    app = out / "photos.py"
    app.write_text(files("fairlead.cli").joinpath("templates/photos.py").read_text(encoding="utf-8"), encoding="utf-8")
    shutil.rmtree(out / "state", ignore_errors=True)
    console = Console(highlight=False)
    console.print(f"A photo workflow, {app}: detect (in batches), then caption; to be answered within 80 ms.")
    steps = ["measuring its functions", "finding its capacity", *(f"overload under {rival.label}" for rival in RIVALS)]
    results: dict[str, LoadResult] = {}
    with _progress(console) as progress:
        task = progress.add_task(steps[0], total=len(steps))
        _measure(app, min(_MEASURED_S, seconds))
        progress.update(task, advance=1, description=steps[1])
        with _serving(app, out / "state" / "capacity", ()) as url:
            capacity_rps = _capacity_rps(url, min(_SATURATED_S, seconds))
        for rival in RIVALS:
            progress.update(task, advance=1, description=f"{OVERLOAD:g} x capacity under {rival.label}")
            with _serving(app, out / "state" / rival.label, rival.options) as url:
                results[rival.label] = _load(url, Open(rate_rps=OVERLOAD * capacity_rps), seconds, _DEADLINE_S)
        progress.update(task, completed=len(steps), description="done")
    _show(console, results, capacity_rps, seconds)
    runs = [latest_run(out / "state" / rival.label) for rival in RIVALS]
    recordings = [read_live_run(run) for run in runs if run is not None]
    write_html(recordings, page)
    write_traces(recordings[-1:], trace)
    console.print(
        f"\nCharts    {page} (open it in a browser)\n"
        f"Timeline  {trace} (fairlead; open it in Perfetto, ui.perfetto.dev)\n"
        f"Next      {_program()} serve {app}    then    {_program()} load http://127.0.0.1:8000 --rate 100\n"
        f"          {_program()} replay {runs[-1]} --policy clockwork    the same minute under another policy",
        soft_wrap=True,
    )


def _capacity_rps(url: str, seconds: float) -> float:
    """Requests that are answered per second when 32 users call without a pause; measured for longer if none is."""
    for lasting_s in (seconds, 20.0):
        found = _load(url, Closed(32), lasting_s, deadline_s=60.0)
        if found.answered_rps > 0:
            return found.answered_rps
    told = ", ".join(f"{count:,} x {name}" for name, count in (found.errors | found.refused).items()) or "no answer"
    raise FairleadError(f"The example app answered none of {found.offered:,} requests: {told}.")


def _measure(app: Path, budget_s: float) -> None:
    command = [sys.executable, "-m", "fairlead", "profile", str(app), "--budget", f"{budget_s:g}s"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"The example app could not be measured:\n{done.stderr.strip() or done.stdout.strip()}")


@contextmanager
def _serving(app: Path, state: Path, options: tuple[str, ...]) -> Iterator[str]:
    """`fairlead serve` in a process of its own, ended in the end; gives its address."""
    command = [sys.executable, "-m", "fairlead", "serve", str(app), "--port", "0", "--state", str(state), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.startswith("Serving"):
                _, errors = server.communicate(timeout=_START_LIMIT_S)
                raise UsageError(f"The example app could not be served:\n{errors.strip()}")
            yield line.split()[-1]
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=_START_LIMIT_S)


def _load(url: str, arrivals: Closed | Open, duration_s: float, deadline_s: float) -> LoadResult:
    warm_up_s = min(1.0, duration_s / 4)
    plan = Plan(
        arrivals=arrivals,
        duration_s=duration_s,
        warm_up_s=warm_up_s,
        deadline_s=deadline_s,
        body=_BODY,
        timeout_s=20.0,
        max_in_flight=4_000,
    )
    return run_load(f"{url}/v1/workflows/main", plan)


def _show(console: Console, results: dict[str, LoadResult], capacity_rps: float, seconds: float) -> None:
    offered_rps = OVERLOAD * capacity_rps
    console.print(
        f"\nCapacity, with 32 users who never wait long: {capacity_rps:.0f} answers/s. "
        f"Offered for {seconds:g} s: {offered_rps:.0f}/s, due in 80 ms."
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("policy", "in time", "goodput", "of capacity", "answered in (p50)", "refused", "refused in (p50)"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for label, result in results.items():
        refused = sum(result.refused.values())
        table.add_row(
            label,
            f"{result.attainment or 0:.1%}",
            f"{result.goodput_rps:.0f}/s",
            f"{result.goodput_rps / capacity_rps:.0%}" if capacity_rps else "-",
            _ms(result.latency.p50_s),
            f"{refused / result.offered:.0%}" if result.offered else "-",
            _ms(result.refusal_latency.p50_s),
        )
    console.print(table)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    )


def _program() -> str:
    """How to call this program from here: by its name, or by its path where it is not on the search path."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "fairlead" and shutil.which("fairlead") is None else "fairlead"
