"""Serve an ensemble and a cascade of real networks in every variant, with one client and with many."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

from fairlead.experiments.cases import Progress, Settings, read_settings
from fairlead.experiments.live_bench import busy_share
from fairlead.experiments.pipelines_live.asking import all_digits
from fairlead.experiments.pipelines_live.judging import BATCHES, judge, rows_of
from fairlead.experiments.pipelines_live.serving import (
    PIPELINES,
    ask_in_turn,
    load_in_turn,
    loaded_variants,
    served,
    variants_of,
    with_batches,
)
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, select
from fairlead.experiments.shipped_apps import app_folder
from fairlead.report.figure import line_figure

__all__ = ["judge", "run"]

_LOOK_S = 2.0  # how long the machine is watched before anything is served


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Latency of both pipelines by variant, and throughput by batch size."""
    app_folder("pipelines")
    digits = all_digits()
    from fairlead.experiments.pipelines_live.variants import load_shipped  # noqa: PLC0415 - reads the shipped app

    settings = read_settings(__package__)
    steps, done = _steps(settings, quick=quick), 0

    def step(what: str) -> None:
        nonlocal done
        done += 1
        progress(min(1.0, done / steps), what)

    with busy_share() as busy_before:
        sleep(_LOOK_S)
    with TemporaryDirectory(prefix="fairlead-pipelines-") as name:
        folder = Path(name)
        with served(folder, settings, "latency") as address:
            asked = ask_in_turn(address, load_shipped(), settings, digits, quick=quick, done=step)
            busy, _ = load_in_turn(address, settings, "busy", digits, quick=quick, done=step)
        with served(folder, settings, "throughput") as address:
            loaded, spans = load_in_turn(address, settings, "throughput", digits, quick=quick, done=step)
        rows = rows_of(asked, busy, with_batches(loaded, spans, folder / "throughput"))
    rows = [{**row, "busy_before": round(busy_before[0], 3)} for row in rows]
    return Reproduction(
        name="pipelines-live",
        title="Serverless accelerators, chapter 3, live: ensemble and cascade of real networks on this machine",
        rows=tuple(rows),
        notes=tuple(_notes(rows)),
        figures=(_figure(rows),),
    )


def _steps(settings: Settings, *, quick: bool) -> int:
    """How many loads there are in all."""
    variants = sum(len(variants_of(pipeline)) for pipeline in PIPELINES)
    counts = {"latency": variants}
    counts |= {part: len(loaded_variants(settings, part)) for part in ("busy", "throughput")}
    return sum(settings[part]["quick_repeats" if quick else "repeats"] * count for part, count in counts.items())


def _notes(rows: Rows) -> list[str]:
    sizes = ", ".join(
        f"{row['pipeline']} {row['variant']} {row['batch']:g}"
        for row in select(rows, part=BATCHES)
        if row["batch"] is not None
    )
    return [
        f"Measured on {os.cpu_count()} CPU cores, which also hold the gateway and the clients. The networks read "
        "digits of 8 x 8 pixels in a millisecond or less; those of the report take a tenth of a second and more. "
        "Ratios are compared, not times; nothing is said of GPUs.",
        "in-turn: the client calls prepare and each model, and combines the answers itself, on one open connection. "
        "fused: prepare and small run in one instance; of the ensemble nothing can be fused, since its first stage has "
        "three successors. compete: two copies of the large network, of which the first answer counts. A process that "
        "runs Python cannot be told to leave off, so a copy that loses runs to its end and is discarded.",
        "Under load latency_ms is clients over answers per second, since each client waits for its answer.",
        f"Mean sizes of the batches that ran: {sizes}.",
    ]


def _figure(rows: Rows) -> Figure:
    title = "Answers per second by the largest batch size"
    lines = {
        pipeline: [
            (float(str(row["variant"]).removeprefix("batch-")), float(row["answers_rps"]))
            for row in select(rows, part=BATCHES, pipeline=pipeline)
        ]
        for pipeline in PIPELINES
    }
    svg = line_figure(title, lines, x_label="largest batch", y_label="answers per second", is_log_x=True)
    return Figure(name="pipelines-live-batches", title=title, svg=svg)
