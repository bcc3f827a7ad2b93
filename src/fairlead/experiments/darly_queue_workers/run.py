"""The measured latencies with 1 to 16 queue-workers, and those of the simulated cluster."""

from __future__ import annotations

from fairlead.experiments.cases import Progress, each, read_settings
from fairlead.experiments.darly_bench import Point, errors, one_ours
from fairlead.experiments.reproduction import Claim, Figure, Reproduction
from fairlead.report.figure import line_figure


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Five placements, four inputs, five numbers of workers."""
    from fairlead.learn.darly import tables  # noqa: PLC0415 - an extra

    settings = read_settings(__package__)
    frames = settings["quick_frames"] if quick else tables.FRAMES
    points = [
        Point(places, n, workers, 0.0, 1, "custom", seconds)
        for places, rows in tables.QUEUE_WORKERS.items()
        for n in frames
        for workers, seconds in zip(tables.WORKERS, rows[n], strict=True)
    ]
    ours: dict[Point, float] = {}
    for position, seconds in each(one_ours, points, in_parallel=len(points) > 60):
        ours[points[position]] = seconds
        progress(len(ours) / len(points), f"{points[position].workers} workers, {points[position].frames} frames")
    ours = {point: ours[point] for point in points}  # whichever came first
    by = {(p.places, p.frames, p.workers): s for p, s in ours.items()}
    w01, mixed = ("w01", "w01", "w01"), ("w01", "w02", "w03")
    mean, worst = errors(ours)
    printed, most = settings["printed"], settings["most_points"]
    gap = {k: by[w01, 65, k] - by[w01, 7, k] for k in (1, 16)}
    claims = (
        Claim(
            claim=f"simulated latencies within {settings['most_mean_error']:.0%} on average and "
            f"{settings['most_error']:.0%} at worst",
            paper=f"{len(ours)} measured latencies",
            ours=f"{mean:.1%} on average, {worst:.1%} at worst",
            met=mean <= settings["most_mean_error"] and worst <= settings["most_error"],
        ),
        _gain("all on w01, 65 frames", printed["most_gain"], 1 - by[w01, 65, 16] / by[w01, 65, 1], most),
        _gain("on three nodes, 7 frames", printed["least_gain"], 1 - by[mixed, 7, 16] / by[mixed, 7, 1], most),
        Claim(
            claim="the gap between the largest and the smallest input shrinks, all on w01",
            paper=f"{printed['gap']:.0%} (58 s to 15 s)",
            ours=f"{1 - gap[16] / gap[1]:.1%} ({gap[1]:.1f} s to {gap[16]:.1f} s)",
            met=abs(1 - gap[16] / gap[1] - printed["gap"]) <= most,
        ),
    )
    lines = {
        f"{n} frames, {who}": [
            (float(p.workers), p.theirs_s if who == "measured" else s)
            for p, s in ours.items()
            if p.places == w01 and p.frames == n
        ]
        for n in frames
        for who in ("measured", "simulated")
    }
    svg = line_figure("Everything on w01", lines, x_label="queue-workers", y_label="latency (s)", is_log_x=True)
    return Reproduction(
        name="darly-queue-workers",
        title="Darly: what queue-workers gain",
        claims=claims,
        rows=tuple(point.row(seconds) for point, seconds in ours.items()),
        figures=(Figure(name="workers", title="Latency by queue-workers", svg=svg),),
        notes=(
            "Shares of the slower time, as in the thesis. Nothing is fitted to the rows with more than one worker "
            "but the part of a node that a call takes.",
        ),
    )


def _gain(where: str, printed: float, ours: float, most: float) -> Claim:
    return Claim(
        claim=f"16 workers instead of one, {where}",
        paper=f"{printed:.0%}",
        ours=f"{ours:.1%}",
        met=abs(ours - printed) <= most,
    )
