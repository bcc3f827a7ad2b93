"""Serve one DAG under admission control and its rivals, at loads up to four times the capacity, and compare."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim, above, at_least, at_most, decide, paired
from fairlead.experiments.live_apps import Setting, busy_note, compare, figures
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, columns, measured, quotient, select, values_of
from fairlead.experiments.shipped_apps import profiled_copy
from fairlead.league.live import LiveApp, LiveCell, measure_capacity, run_cell

ADMISSION, FIFO, CLOCKWORK, OURS = "dag-admission", "fifo", "clockwork", "fairlead"
AT_ONCE = ("429", "503")
"""Statuses of requests that were not admitted."""


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Goodput, and how many of the admitted requests are late, of every policy at every load."""
    settings = read_settings(__package__)
    loads, seeds, seconds = (settings[f"quick_{key}" if quick else key] for key in ("loads", "seeds", "seconds"))
    with TemporaryDirectory(prefix="fairlead-admission-live-") as folder:
        progress(0.0, "profiling the app")
        app = LiveApp(profiled_copy(settings["app"], Path(folder)))
        capacity_rps = measure_capacity(app, seconds=settings["capacity_s"])
        asked = [
            Setting(name=load, app=app, rate_rps=share * capacity_rps, labels={"load": load})
            for load, share in loads.items()
        ]

        def serve(one: Setting, policy: str, seed: int) -> LiveCell:
            return run_cell(one.app, policy, one.rate_rps, seconds, seed, warm_up_s=settings["warm_up_s"])

        rows = tuple(row(*each) for each in compare(asked, settings["policies"], seeds, serve, progress))
    return Reproduction(
        name="admission-live",
        title="Admission control live: a DAG of real models on this machine, up to four times its capacity",
        rows=rows,
        notes=tuple(_notes(settings["app"], capacity_rps, seeds, seconds)),
    )


def row(setting: Setting, policy: str, cells: Sequence[LiveCell]) -> dict[str, object]:
    """A policy at a load."""
    found: dict[str, object] = {**setting.labels, "policy": policy, "rate_rps": round(setting.rate_rps, 2)}
    found |= figures(cells)
    found |= columns("admitted", [admitted(cell) / max(1, cell.live.requests) for cell in cells], 4)
    found |= columns("late", [late_share(cell) for cell in cells], 4)
    return found


def admitted(cell: LiveCell) -> int:
    """How many requests were taken in: all that were sent and not refused at once."""
    refused = sum(number for why, number in cell.refused.items() if why.startswith(AT_ONCE))
    return cell.live.requests - cell.unsent - refused


def late_share(cell: LiveCell) -> float:
    """Share of the admitted requests without an answer in time; 0 if none was admitted."""
    taken = admitted(cell)
    return (taken - cell.live.in_time) / taken if taken else 0.0


def judge(rows: Rows) -> Iterator[Claim]:
    """The order of Table 4.1, and what admission control is for."""
    settings = read_settings(__package__)
    paper, own, note = settings["paper"], settings["own"], busy_note(rows)
    loads = list(dict.fromkeys(row["load"] for row in rows))
    by_load = {load: {row["policy"]: row for row in select(rows, load=load)} for load in loads}

    def goodput(load: str, policy: str) -> list[float]:
        return values_of(by_load[load][policy], "goodput_rps")

    yield decide(
        "What dag-admission admits is answered in time",
        at_most(own["late"], f"at most {own['late']:.0%} of what it admits is late, over the repeats, at every load"),
        *(measured(here[ADMISSION], "late") for here in by_load.values()),
        paper="promised of every admitted request (chapter 4); no figure is printed",
        ours={load: {name: each["late"] for name, each in here.items()} for load, here in by_load.items()},
        kind="own",
        note=note,
    )
    for one, other, printed in ((ADMISSION, FIFO, "custom"), (FIFO, CLOCKWORK, "fifo")):
        yield decide(
            f"{one} answers more in time per second than {other}",
            above(0, "more, repeat by repeat, at every load"),
            *(paired(goodput(load, one), goodput(load, other)) for load in loads),
            paper={"custom": paper[printed], other: paper[other]} if one == ADMISSION else _printed(paper),
            ours={load: {name: by_load[load][name]["goodput_rps"] for name in (one, other)} for load in loads},
            note=note,
        )
    yield decide(
        "Overload does not take away the goodput of dag-admission",
        at_least(own["kept"], f"at the highest load at least {own['kept']:g} of that at the lowest"),
        quotient(by_load[loads[-1]][ADMISSION], by_load[loads[0]][ADMISSION], "goodput_rps"),
        paper="not published; `admission-sweep` has it simulated",
        kind="own",
        note=note,
    )
    yield decide(
        "`fairlead` answers at least as many in time per second as dag-admission",
        at_least(0, "not fewer, repeat by repeat, at every load"),
        *(paired(goodput(load, OURS), goodput(load, ADMISSION)) for load in loads),
        paper="not published",
        kind="own",
        note=note,
    )


def _printed(paper: Mapping[str, object]) -> dict[str, object]:
    return {name: paper[name] for name in (FIFO, CLOCKWORK)}


def _notes(app: str, capacity_rps: float, seeds: Sequence[int], seconds: float) -> Iterator[str]:
    yield (
        f"Measured on real processes: `{app}`, {len(seeds)} repeat(s) of {seconds:g} s per cell, capacity "
        f"{capacity_rps:.0f} requests per second. All policies get the same arrivals in a repeat."
    )
    yield (
        "Table 4.1 is another setting: one burst of 1,200 requests on one CPU and one GPU, with nothing refused; its "
        "figures are small because all are counted until the last is done. Only the order can be compared. There is "
        "no GPU here and no cost objective, so what the thesis gains by choosing a cheaper resource is not seen."
    )
    yield "`fifo-types` chooses a resource type per function and is not served: here all functions run on CPUs."
