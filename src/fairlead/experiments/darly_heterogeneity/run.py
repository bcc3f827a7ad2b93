"""The placements of table 4.2, the ranking of the nodes, and the latencies in the logs of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim, above, below, decide
from fairlead.experiments.darly_bench import errors_claim, mean_latency_s
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, by_seed, difference, pick, quotient, select

_ALONE, _MONOLITH, _LOGS = "all on one", "Version4", "logs"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Latencies by placement, and under the pressure of the logs."""
    from fairlead.learn.darly import tables  # noqa: PLC0415 - an extra
    from fairlead.learn.darly.schedules import published  # noqa: PLC0415 - an extra

    settings = read_settings(__package__)
    seeds = settings["quick_seeds" if quick else "seeds"]
    rows: list[dict[str, object]] = []
    for n in settings["quick_frames" if quick else "frames"]:
        for name, places in settings["placements"].items():
            rows.append(_row(name, places, n, [mean_latency_s(tuple(places), frames=n, seed=seed) for seed in seeds]))
        alone = [mean_latency_s(("w01", "w01", "w01"), frames=n, version=4, seed=seed) for seed in seeds]
        rows.append(_row(_MONOLITH, ["w01"], n, alone))
    for node in tables.NODES:
        rows.append(_row(_ALONE, [node], 16, [mean_latency_s((node,) * 3, frames=16, seed=seed) for seed in seeds]))
    progress(0.4, "the logs")
    phases = published(1, is_as_logged=True)
    entries = [(log["places"], phase, seconds) for log in settings["logs"] for phase, seconds in log["phases"].items()]
    for i, (places, phase, theirs_s) in enumerate(entries):
        values = [_under(tuple(places), phases[phase - 1].pressures, seed) for seed in seeds]
        error = round(fmean(values) / theirs_s - 1, 4)
        rows.append(_row(_LOGS, places, 16, values) | {"phase": phase, "theirs_s": theirs_s, "error": error})
        progress(0.4 + 0.6 * (i + 1) / len(entries), "the logs")
    return Reproduction(
        name="darly-heterogeneity",
        title="Darly: what unlike nodes cost, and the logs of training",
        rows=tuple(rows),
        notes=(
            "Nothing is fitted to the logs but the pressure: 50 % slows by 1.6 (preset `logs`), and in the last phase "
            "only w02 is under pressure.",
            "One median cannot be had: with the framer on w04 under 50 % the log has 36.4 s, while by chapter 4 the "
            "framer alone takes 39.6 s there without pressure, and by the logs themselves the whole workflow 47.6 s.",
        ),
    )


def _row(what: str, places: Sequence[str], frames: int, values: Sequence[float]) -> dict[str, object]:
    return {
        "what": what,
        "places": "/".join(places),
        "frames": frames,
        "ours_s": round(fmean(values), 2),
        "ours_s_by_seed": by_seed(values, 3),
    }


def judge(rows: Rows) -> Iterator[Claim]:
    """The ranking of the nodes, the placements, and the medians in the logs."""
    settings = read_settings(__package__)
    alone = select(rows, what=_ALONE)
    yield decide(
        "ranking of the nodes",
        above(0, "every next node slower, seed by seed"),
        *(difference(slower, quicker, "ours_s") for quicker, slower in pairwise(alone)),
        paper=" > ".join(row["places"] for row in alone),
        ours=" > ".join(row["places"] for row in sorted(alone, key=lambda row: row["ours_s"])),
        kind="fit",
        note="A fit: the speed of each node was fitted to latencies of the thesis.",
    )
    by_frames = {
        row["frames"]: (row, [pick(rows, what=name, frames=row["frames"]) for name in settings["placements"]])
        for row in select(rows, what=_MONOLITH)
    }
    yield decide(
        "version 4 is the quickest of all placements",
        below(0, "quicker than every placement, seed by seed"),
        *(difference(one, other, "ours_s") for one, placed in by_frames.values() for other in placed),
        paper="at all times",
        ours=", ".join(
            f"{n} frames: {one['ours_s']:.1f} s against {min(row['ours_s'] for row in placed):.1f} s and more"
            for n, (one, placed) in by_frames.items()
        ),
    )
    spreads = [
        quotient(max(placed, key=lambda row: row["ours_s"]), min(placed, key=lambda row: row["ours_s"]), "ours_s")
        for _, placed in by_frames.values()
    ]
    yield decide(
        "with the framer on w01, where the others are makes no particular difference",
        below(1.15, "slowest over quickest placement less than 1.15"),
        *spreads,
        paper="no number",
        ours=f"at most {max(spread.mean for spread in spreads) - 1:.1%}",
    )
    logs = select(rows, what=_LOGS)
    yield errors_claim("medians in the logs of training", logs, settings, "fit", _without_worst(logs))


def _without_worst(rows: Rows) -> str:
    """Which median is farthest off, and what the others are."""
    *others, worst = sorted(rows, key=lambda row: abs(row["error"]))
    errors = [abs(row["error"]) for row in others]
    return (
        f"A fit: the pressure was fitted to these medians. Farthest off: {worst['places']} in phase {worst['phase']} "
        f"({worst['ours_s']:.1f} s, {worst['theirs_s']} s in the log); without it {fmean(errors):.1%} on average, "
        f"{max(errors):.1%} at worst."
    )


def _under(places: tuple[str, str, str], pressures: object, seed: int) -> float:
    from fairlead.learn.darly.schedules import Phase  # noqa: PLC0415 - an extra
    from fairlead.learn.darly.scheduling import deployment  # noqa: PLC0415 - an extra
    from fairlead.learn.darly.world import World  # noqa: PLC0415 - an extra
    from fairlead.policy.darly.actions import Act  # noqa: PLC0415 - beside the others

    made = deployment()
    first = dict(zip(made.groups, places, strict=True))
    phase = Phase(steps=9, slo_s=60.0, pressures=pressures)  # type: ignore[arg-type]
    world = World(replace(made, first=first), [phase], seed=seed)
    return sorted(world.step(Act("keep")).latency_s for _ in range(9))[4]
