"""The measured latencies under pressure, and those of the simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim
from fairlead.experiments.darly_bench import Point, compared, curve, errors_claim, share_claim
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, pick, select
from fairlead.report.figure import line_figure

_FITTED = "A fit: the times of the parts were fitted to these latencies."


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Every node, pressure and number of frames, for versions 1 and 4."""
    from fairlead.learn.darly import tables  # noqa: PLC0415 - an extra

    settings = read_settings(__package__)
    frames = settings["quick_frames"] if quick else tables.FRAMES
    points = [
        Point((node, node, node), n, 1, pressure, version, "custom", table[node][pressure][tables.FRAMES.index(n)])
        for version, table in ((1, tables.ONE_NODE), (4, tables.MONOLITH))
        for node in tables.NODES
        for pressure in tables.PRESSURES
        for n in frames
    ]
    rows = compared(points, settings["quick_seeds" if quick else "seeds"], progress)
    lines = {
        f"{node}, {source}": curve(select(rows, version=1, framer_on=node, frames=16), "pressure", column)
        for node in tables.NODES
        for source, column in (("measured", "theirs_s"), ("simulated", "ours_s"))
    }
    svg = line_figure(
        "Five functions on one node, 16 frames", lines, x_label="pressure (share of the cores)", y_label="latency (s)"
    )
    return Reproduction(
        name="darly-interference",
        title="Darly: latency under CPU pressure, by node",
        rows=rows,
        figures=(Figure(name="pressure", title="Latency by pressure", svg=svg),),
        notes=(
            "Times of the parts are fitted to these latencies (`fairlead.learn.darly.cluster` says how); what is "
            "tested is that the simulated workflow, with its queue, gives them back. Mean of 12 requests, one "
            "queue-worker.",
        ),
    )


def judge(rows: Rows) -> Iterator[Claim]:
    """The measured latencies, and what the thesis reads from them."""
    settings = read_settings(__package__)
    for version in (1, 4):
        own = select(rows, version=version)
        yield errors_claim(f"version {version}: simulated latencies", own, settings, "fit", _FITTED)
    for node, printed in settings["printed"].items():
        slow, fast = (pick(rows, version=1, framer_on=node, frames=65, pressure=pressure) for pressure in (0.8, 0.0))
        what = f"{node}: what 80 % pressure takes, of the slower time, at 65 frames"
        yield share_claim(what, printed, slow, fast, settings["most_points"], _FITTED)
