"""Version 1 to 4 of the workflow, under both runtimes."""

from __future__ import annotations

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.darly_bench import Point, one_ours
from fairlead.experiments.reproduction import Claim, Figure, Reproduction
from fairlead.report.figure import line_figure

_W01 = ("w01", "w01", "w01")


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
    ours: dict[Point, float] = {}
    for i, point in enumerate(points):
        ours[point] = one_ours(point)
        progress((i + 1) / len(points), f"version {point.version}, {point.runtime}, {point.frames} frames")
    by = {(p.runtime, p.version, p.places[0], p.frames): s for p, s in ours.items()}

    def gain(runtime: str, node: str) -> float:
        return 1 - by[runtime, 4, node, 65] / by[runtime, 1, node, 65]

    printed, most = settings["printed"], settings["most_points"]
    claims = [
        _claim("under faas-flow", printed["faas_flow"], gain("faas-flow", "w01"), most),
        _claim("under the custom runtime", printed["custom"], gain("custom", "w01"), most),
        *(_claim(f"custom runtime on {n}", share, gain("custom", n), most) for n, share in printed["by_node"].items()),
    ]
    lines = {
        f"version {version}, {runtime}": [(float(n), by[runtime, version, "w01", n]) for n in frames]
        for runtime, versions in (("faas-flow", (1, 2, 3, 4)), ("custom", (1, 4)))
        for version in versions
    }
    figures = (
        ()
        if quick
        else (
            Figure(
                name="versions",
                title="Latency by version",
                svg=line_figure(
                    "The workflow in more and fewer pieces, w01", lines, x_label="frames", y_label="latency (s)"
                ),
            ),
        )
    )
    return Reproduction(
        name="darly-granularity",
        title="Darly: what splitting a workflow costs",
        claims=tuple(claims),
        rows=tuple(point.row(seconds) for point, seconds in ours.items()),
        figures=figures,
        notes=(
            "Shares of the slower time, as in the thesis: (slow - fast) / slow. Version 1 has five functions, 2 "
            "joins the models, 3 also the detector, 4 is one function and the uploader.",
        ),
    )


def _claim(where: str, printed: float, ours: float, most: float) -> Claim:
    return Claim(
        claim=f"version 4 is quicker than version 1 at 65 frames, {where}",
        paper=f"{printed:.1%}",
        ours=f"{ours:.1%}",
        met=abs(ours - printed) <= most,
    )
