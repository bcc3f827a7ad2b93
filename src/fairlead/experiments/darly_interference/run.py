"""The measured latencies under pressure, and those of the simulated cluster."""

from __future__ import annotations

from fairlead.experiments.cases import Progress, each, read_settings
from fairlead.experiments.darly_bench import Point, errors, one_ours
from fairlead.experiments.reproduction import Claim, Figure, Reproduction
from fairlead.report.figure import line_figure


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
    ours: dict[Point, float] = {}
    for position, seconds in each(one_ours, points, in_parallel=len(points) > 40):
        ours[points[position]] = seconds
        progress(len(ours) / len(points), f"{points[position].places[0]}, {points[position].pressure:.0%}")
    ours = {point: ours[point] for point in points}  # whichever came first
    claims = []
    for version in (1, 4):
        mean, worst = errors({p: s for p, s in ours.items() if p.version == version})
        claims.append(
            Claim(
                claim=f"version {version}: simulated latencies within {settings['most_mean_error']:.0%} on average and "
                f"{settings['most_error']:.0%} at worst",
                paper=f"{sum(p.version == version for p in ours)} measured latencies",
                ours=f"{mean:.1%} on average, {worst:.1%} at worst",
                met=mean <= settings["most_mean_error"] and worst <= settings["most_error"],
            )
        )
    by = {(p.version, p.places[0], p.pressure, p.frames): s for p, s in ours.items()}
    for node, printed in settings["printed"].items():
        reduction = 1 - by[1, node, 0.0, 65] / by[1, node, 0.8, 65]
        claims.append(
            Claim(
                claim=f"{node}: what 80 % pressure takes, of the slower time, at 65 frames",
                paper=f"{printed:.0%}",
                ours=f"{reduction:.0%}",
                met=abs(reduction - printed) <= 0.05,
            )
        )
    lines = {
        f"{node}, {who}": [
            (p.pressure, p.theirs_s if who == "measured" else s)
            for p, s in ours.items()
            if p.version == 1 and p.places[0] == node and p.frames == 16
        ]
        for node in tables.NODES
        for who in ("measured", "simulated")
    }
    svg = line_figure(
        "Five functions on one node, 16 frames", lines, x_label="pressure (share of the cores)", y_label="latency (s)"
    )
    return Reproduction(
        name="darly-interference",
        title="Darly: latency under CPU pressure, by node",
        claims=tuple(claims),
        rows=tuple(point.row(seconds) for point, seconds in ours.items()),
        figures=(Figure(name="pressure", title="Latency by pressure", svg=svg),),
        notes=(
            "Times of the parts are fitted to these latencies (`fairlead.learn.darly.cluster` says how); what is "
            "tested is that the simulated workflow, with its queue, gives them back. Mean of 12 requests, one "
            "queue-worker.",
        ),
    )
