"""The measured latencies with 1 to 16 queue-workers, and those of the simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim, between, decide, exact, paired_ratio
from fairlead.experiments.darly_bench import Point, compared, curve, errors_claim, share_claim
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, pick, select, values_of
from fairlead.report.figure import line_figure

_FITTED = "A fit: the times with one worker, and the part of a node that a call takes, were fitted to these latencies."


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Five placements, four inputs, five numbers of workers."""
    from fairlead.learn.darly import tables  # noqa: PLC0415 - an extra

    settings = read_settings(__package__)
    frames = settings["quick_frames"] if quick else tables.FRAMES
    points = [
        Point(places, n, workers, 0.0, 1, "custom", seconds)
        for places, own in tables.QUEUE_WORKERS.items()
        for n in frames
        for workers, seconds in zip(tables.WORKERS, own[n], strict=True)
    ]
    rows = compared(points, settings["quick_seeds" if quick else "seeds"], progress)
    lines = {
        f"{n} frames, {source}": curve(select(_on(rows, "w01", "w01", "w01"), frames=n), "workers", column)
        for n in frames
        for source, column in (("measured", "theirs_s"), ("simulated", "ours_s"))
    }
    svg = line_figure("Everything on w01", lines, x_label="queue-workers", y_label="latency (s)", is_log_x=True)
    return Reproduction(
        name="darly-queue-workers",
        title="Darly: what queue-workers gain",
        rows=rows,
        figures=(Figure(name="workers", title="Latency by queue-workers", svg=svg),),
        notes=(
            "Shares of the slower time, as in the thesis. Nothing is fitted to the rows with more than one worker "
            "but the part of a node that a call takes.",
        ),
    )


def _on(rows: Rows, *places: str) -> Rows:
    return select(rows, **dict(zip(("framer_on", "detector_on", "rest_on"), places, strict=True)))


def judge(rows: Rows) -> Iterator[Claim]:
    """The measured latencies, and what the thesis reads from them."""
    settings = read_settings(__package__)
    printed, most = settings["printed"], settings["most_points"]
    yield errors_claim("simulated latencies", rows, settings, "fit", _FITTED)
    w01, mixed = _on(rows, "w01", "w01", "w01"), _on(rows, "w01", "w02", "w03")
    for where, own, frames, share in (
        ("all on w01, 65 frames", w01, 65, printed["most_gain"]),
        ("on three nodes, 7 frames", mixed, 7, printed["least_gain"]),
    ):
        slow, fast = (pick(own, frames=frames, workers=workers) for workers in (1, 16))
        yield share_claim(f"16 workers instead of one, {where}", share, slow, fast, most, _FITTED)
    gaps = {workers: _gaps(w01, workers) for workers in (1, 16)}
    shrinks = exact(1).minus(paired_ratio(gaps[16], gaps[1]))
    yield decide(
        "the gap between the largest and the smallest input shrinks, all on w01",
        between(printed["gap"] - most, printed["gap"] + most, f"within {100 * most:g} points of the printed"),
        shrinks,
        paper=f"{printed['gap']:.0%} (58 s to 15 s)",
        ours=f"{shrinks.mean:.1%} ({gaps[1][0]:.1f} s to {gaps[16][0]:.1f} s)",
        kind="fit",
        note=_FITTED,
    )


def _gaps(rows: Rows, workers: int) -> list[float]:
    """By seed, how much longer 65 frames take than 7."""
    long, short = (values_of(pick(rows, frames=frames, workers=workers), "ours_s") for frames in (65, 7))
    return [a - b for a, b in zip(long, short, strict=True)]
