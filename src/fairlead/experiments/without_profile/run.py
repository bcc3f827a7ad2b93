"""Serve each app with and without its profile, with the same arrivals, and compare the first requests."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim, at_most, decide, paired
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, select
from fairlead.experiments.shipped_apps import app_folder, profiled_copy
from fairlead.experiments.without_profile.serving import Served, capacity_rps, serve

_NOT_PUBLISHED = "not published"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Attainment of each app over its first requests, with a profile and without one."""
    settings: dict[str, Any] = dict(read_settings(__package__))
    if quick:
        settings |= settings["quick"]
    for name in settings["apps"]:
        app_folder(name)  # all of them, before anything runs
    repeats = settings["repeats"]
    rows: list[dict[str, object]] = []
    steps, done = len(settings["apps"]) * (1 + repeats), 0
    with TemporaryDirectory(prefix="fairlead-without-profile-") as folder:
        state = Path(folder) / "state"
        for name in settings["apps"]:
            progress(done / steps, f"measuring {name}")
            app = profiled_copy(name, Path(folder), budget=settings["profile_budget"]) / "app.py"
            capacity = capacity_rps(app, state, settings)
            rate_rps = settings["load"] * capacity
            done += 1
            for repeat in range(repeats):
                progress(done / steps, f"{name}, repeat {repeat + 1}")
                # Each goes first in turn: what the machine does besides must not always hit the same.
                for profiled in (True, False) if repeat % 2 else (False, True):
                    served = serve(app, state, settings, rate_rps, settings["seed"] + repeat, profiled=profiled)
                    known = {"app": name, "repeat": repeat, "has_profile": profiled}
                    rows.append(known | row(settings, capacity, served))
                done += 1
    progress(1.0, "done")
    return Reproduction(
        name="without-profile",
        title="Apps that were never measured: attainment over their first requests, with a profile and without",
        rows=tuple(rows),
        notes=(
            f"{repeats} repeat(s) of {settings['requests']} requests at {settings['load']:.0%} of each app's capacity, "
            f"under {settings['policy']}, with a new gateway for each; the same arrivals with a profile and without.",
            "Measured, not simulated: numbers depend on the machine and on what else it does.",
        ),
    )


def row(settings: Mapping[str, Any], capacity: float, served: Served) -> dict[str, object]:
    """One run as a row of the table: shares in time over all requests, after the first ones, and step by step."""
    found: dict[str, object] = {
        "capacity_rps": round(capacity, 1),
        "attainment": _share(served.in_time),
        "attainment_settled": _share(served.in_time[settings["settled"] :]),
    }
    step = settings["step"]
    for first in range(0, len(served.in_time), step):
        found[f"attainment_to_{first + step}"] = _share(served.in_time[first : first + step])
    return found | {"machine_busy": round(served.busy, 3)}


def judge(rows: Rows) -> Iterator[Claim]:
    """How much an app loses that was never measured; none of it was published. Without rows, nothing is claimed."""
    if not rows:
        return
    settings = read_settings(__package__)
    for figure, where, bar in (
        ("attainment", f"over the first {settings['requests']} requests", settings["most_loss"]),
        ("attainment_settled", f"after the first {settings['settled']} requests", settings["most_loss_settled"]),
    ):
        losses = {}
        for app in dict.fromkeys(row["app"] for row in rows):
            known, unknown = (
                [float(row[figure]) for row in select(rows, app=app, has_profile=has_profile)]
                for has_profile in (True, False)
            )
            losses[app] = paired(known, unknown)
        yield decide(
            f"Without a profile an app loses at most {100 * bar:g} points of attainment {where}",
            at_most(bar, f"at most {100 * bar:g} points for each app, over the repeats"),
            *losses.values(),
            paper=_NOT_PUBLISHED,
            ours={app: f"{100 * loss.mean:.1f} points" for app, loss in losses.items()},
            kind="own",
        )


def _share(in_time: Sequence[bool]) -> float | None:
    return round(fmean(in_time), 4) if in_time else None
