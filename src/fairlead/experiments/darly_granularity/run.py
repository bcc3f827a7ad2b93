"""Version 1 to 4 of the workflow, under both runtimes."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim
from fairlead.experiments.darly_bench import Point, compared, curve, share_claim
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Row, Rows, pick, select
from fairlead.report.figure import line_figure

_W01 = ("w01", "w01", "w01")
_FITTED = "A fit: the times of the parts were fitted to the latencies of the thesis, these among them."


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """How much quicker the workflow is in one piece."""
    from fairlead.learn.darly import tables  # noqa: PLC0415 - an extra

    settings = read_settings(__package__)
    frames = (65,) if quick else tables.FRAMES
    points = [
        Point(_W01, n, 1, 0.0, version, "faas-flow", tables.FAAS_FLOW[n][version - 1])
        for n in frames
        for version in (1, 2, 3, 4)
    ]
    points += [
        Point((node, node, node), n, 1, 0.0, version, "custom", table[node][0.0][tables.FRAMES.index(n)])
        for version, table in ((1, tables.ONE_NODE), (4, tables.MONOLITH))
        for node in tables.NODES
        for n in frames
    ]
    rows = compared(points, settings["quick_seeds" if quick else "seeds"], progress)
    title = "The workflow in more and fewer pieces, w01"
    lines = {
        f"version {version}, {runtime}": curve(
            select(rows, runtime=runtime, version=version, framer_on="w01"), "frames", "ours_s"
        )
        for runtime, versions in (("faas-flow", (1, 2, 3, 4)), ("custom", (1, 4)))
        for version in versions
    }
    svg = line_figure(title, lines, x_label="frames", y_label="latency (s)")
    return Reproduction(
        name="darly-granularity",
        title="Darly: what splitting a workflow costs",
        rows=rows,
        figures=() if quick else (Figure(name="versions", title="Latency by version", svg=svg),),
        notes=(
            "Shares of the slower time, as in the thesis: (slow - fast) / slow. Version 1 has five functions, 2 "
            "joins the models, 3 also the detector, 4 is one function and the uploader.",
            "The times of the parts are fitted to the thesis, so this shows that the model can give them back, and no "
            "more: the real workflow of this repository (darly-live) loses 4 to 5 % to its pieces.",
        ),
    )


def judge(rows: Rows) -> Iterator[Claim]:
    """The printed shares, which are among what the times were fitted to."""
    settings = read_settings(__package__)
    printed = settings["printed"]

    def at(runtime: str, node: str, version: int) -> Row:
        return pick(rows, runtime=runtime, framer_on=node, version=version, frames=65)

    def claim(where: str, share: float, runtime: str, node: str) -> Claim:
        what = f"version 4 is quicker than version 1 at 65 frames, {where}"
        slow, fast = (at(runtime, node, version) for version in (1, 4))
        return share_claim(what, share, slow, fast, settings["most_points"], _FITTED)

    yield claim("under faas-flow", printed["faas_flow"], "faas-flow", "w01")
    yield claim("under the custom runtime", printed["custom"], "custom", "w01")
    for node, share in printed["by_node"].items():
        yield claim(f"custom runtime on {node}", share, "custom", node)
