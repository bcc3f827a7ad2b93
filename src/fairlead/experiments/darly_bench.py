"""The bench of Darly: training and frozen agents on its simulated cluster, and rivals that do not learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import as_file, files
from itertools import accumulate
from math import isnan
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from fairlead.experiments.cases import Progress, each
from fairlead.experiments.claims import Claim, Kind, at_most, between, decide, decide_all, exact, sampled
from fairlead.experiments.rows import Row, Rows, by_seed, quotient, values_of

if TYPE_CHECKING:
    from fairlead.learn.darly.schedules import Schedule
    from fairlead.learn.darly.scheduling import Scheduling
    from fairlead.learn.darly.world import Outcome
    from fairlead.policy.darly.network import Layer

SCHEDULERS = ("oracle", "fullmap", "custom", "kubernetes")
STATIC, NATIVE = "static on w01", "native Kubernetes"


@dataclass(frozen=True)
class Step:
    """What one step brought, small enough to pass between processes."""

    phase: int
    latency_s: float
    slo_s: float
    reward: float
    action: str
    has_moved: bool

    @property
    def is_met(self) -> bool:
        """Whether the request was within its objective; one that was not run was not."""
        return self.latency_s <= self.slo_s

    @property
    def quotient(self) -> float:
        """Latency over objective."""
        return self.latency_s / self.slo_s


def steps_of(outcomes: Sequence[Outcome]) -> tuple[Step, ...]:
    """The outcomes of a run."""
    return tuple(Step(o.phase, o.latency_s, o.slo_s, o.reward, o.act.kind_of(), o.has_moved) for o in outcomes)


def met(steps: Sequence[Step], *, loose: bool | None = None) -> float:
    """Share of the steps within their objective, of all or of those with the looser or the stricter one."""
    from fairlead.learn.darly.schedules import LOOSE_S  # noqa: PLC0415 - compiled code takes a second to load

    kept = [s for s in steps if loose is None or (s.slo_s == LOOSE_S) == loose]
    return fmean(s.is_met for s in kept) if kept else float("nan")


def converged_at(steps: Sequence[Step], window: int = 20, least: float = 0.9) -> int | None:
    """The first step from which on, to the end of its phase, at least so many of any `window` steps were met."""
    flags = [s.is_met for s in steps]
    for start in range(len(flags) - window + 1):
        phase_end = next((i for i in range(start, len(steps)) if steps[i].phase != steps[start].phase), len(steps))
        if phase_end - start < window:
            continue
        if all(fmean(flags[i : i + window]) >= least for i in range(start, phase_end - window + 1)):
            return start
    return None


def trained(
    scheduler: str,
    seed: int,
    *,
    steps: int,
    is_as_logged: bool,
    is_as_published: bool = False,
    is_planned: bool = False,
) -> tuple[Step, ...]:
    """One training run with the published numbers, through the published phases; its steps, exploration included."""
    from fairlead.learn.darly.schedules import published  # noqa: PLC0415 - needs the extra
    from fairlead.learn.darly.training import PUBLISHED, train  # noqa: PLC0415 - needs the extra

    exploration = 0.21 if scheduler == "fullmap" else 0.2
    scheduling = _scheduling(
        scheduler, lambda rng: published(steps // 5, is_as_logged=is_as_logged), is_as_published, is_planned
    )
    found = train(scheduling, steps, settings=replace(PUBLISHED, exploration=exploration), seed=seed)
    return steps_of(found.outcomes)


def kept(label: str, seed: int, *, steps: int, is_as_logged: bool) -> tuple[Step, ...]:
    """Nothing is ever moved: all on w01, or where Kubernetes put it at first."""
    from fairlead.learn.darly.schedules import published  # noqa: PLC0415 - compiled code takes a second to load

    scheduler = "kubernetes" if label == NATIVE else "fullmap"
    scheduling = _scheduling(scheduler, lambda rng: published(steps // 5, is_as_logged=is_as_logged))
    keep = len(scheduling.acts) - 1
    return steps_of(scheduling.run(seed, lambda seen: keep))


def _scheduling(
    scheduler: str,
    schedule: Callable[[np.random.Generator], Schedule],
    is_as_published: bool = False,
    is_planned: bool = False,
) -> Scheduling:
    from fairlead.learn.darly.scheduling import Scheduling, deployment  # noqa: PLC0415 - takes a second to load

    return Scheduling(
        deployment(),
        scheduler,  # type: ignore[arg-type] # one of SCHEDULERS
        schedule,
        is_as_published=is_as_published,
        is_planned=is_planned,
    )


def band(runs: Sequence[Sequence[Step]], value: Callable[[Step], float], window: int = 10) -> list[tuple[float, float]]:
    """The mean over runs of a running mean over steps, by step; what was not run is left out."""
    rows = np.array([[value(s) for s in run] for run in runs], float)
    points = []
    for at in range(0, rows.shape[1], max(1, window // 2)):
        part = rows[:, max(0, at - window + 1) : at + 1]
        if not np.isnan(part).all():
            points.append((float(at), float(np.nanmean(part))))
    return points


def met_band(runs: Sequence[Sequence[Step]], window: int = 20) -> Mapping[str, list[tuple[float, float]]]:
    """The share of steps met, of the last ones at each step: its mean over runs, and its 95 % interval as two lines."""
    rows = np.array([[float(s.is_met) for s in run] for run in runs])
    lines: dict[str, list[tuple[float, float]]] = {"mean": [], "95 % interval, from": [], "to": []}
    for at in range(0, rows.shape[1], max(1, window // 2)):
        share = sampled(rows[:, max(0, at - window + 1) : at + 1].mean(axis=1).tolist())
        for name, height in zip(lines, (share.mean, share.low, share.high), strict=True):
            lines[name].append((float(at), min(1.0, max(0.0, height))))
    return lines


def cumulative(runs: Sequence[Sequence[Step]], every: int = 5) -> list[tuple[float, float]]:
    """The sum of rewards up to each step, mean over runs."""
    rows = np.array([list(accumulate(s.reward for s in run)) for run in runs])
    return [(float(at), float(rows[:, at].mean())) for at in range(0, rows.shape[1], every)]


def action_mix(runs: Sequence[Sequence[Step]], phase: int) -> Mapping[str, float]:
    """How often each kind of action was taken in a phase, as shares."""
    actions = [s.action for run in runs for s in run if s.phase == phase]
    return {name: actions.count(name) / len(actions) for name in sorted(set(actions))}


def rounded(value: Any, digits: int = 4) -> float | None:
    """A number for a table; None where there is none."""
    return None if value is None or isnan(float(value)) else round(float(value), digits)


def mean_latency_s(
    places: tuple[str, str, str],
    *,
    frames: int,
    workers: int = 1,
    pressure: float = 0.0,
    version: int = 1,
    runtime: str = "custom",
    requests: int = 12,
    seed: int = 0,
) -> float:
    """What a request takes on the simulated cluster with the framer, the detector and the rest on these nodes.

    Pressure is on the node of the framer. The first request, which finds nothing started, does not count; about
    `requests` follow.
    """
    from fairlead.engine import simulate  # noqa: PLC0415 - beside the next
    from fairlead.learn.darly.cluster import Setting, scenario  # noqa: PLC0415 - an extra
    from fairlead.workload import PolicyChoice, PressureChange  # noqa: PLC0415 - beside the others

    framer, detector, rest = places
    named = {"framer": framer, "detector": detector} if (version, runtime) == (1, "custom") else {}
    where = ",".join(f"{function}={node}" for function, node in (named | {"*": rest}).items())
    setting = Setting(frames=frames, version=version, runtime=runtime)  # type: ignore[arg-type]
    think_s = 60.0
    one = scenario(
        setting,
        workers=workers,
        scaler=PolicyChoice(name="static-placement", parameters={"placement": where, "replicas": workers}),
        pressures=(PressureChange(node=framer, at_s=0.0, pressure=pressure),) if pressure else (),
        think_s=think_s,
        duration_s=(requests + 1) * (think_s + 25 + 2.0 * frames / workers),
    )
    recording = simulate(one, seed=seed)
    done = recording.requests.filter(recording.requests["outcome"] == "completed")
    return fmean((done["end"] - done["arrival"]).to_list()[1:])


@dataclass(frozen=True)
class Point:
    """One measured latency, and ours for the same arrangement."""

    places: tuple[str, str, str]
    frames: int
    workers: int
    pressure: float
    version: int
    runtime: str
    theirs_s: float

    def ours_s(self, seed: int) -> float:
        """By simulation."""
        return mean_latency_s(
            self.places,
            frames=self.frames,
            workers=self.workers,
            pressure=self.pressure,
            version=self.version,
            runtime=self.runtime,
            seed=seed,
        )

    def row(self, seeds: Sequence[int]) -> dict[str, object]:
        """Ours and theirs for a table, simulated with every seed."""
        values = [self.ours_s(seed) for seed in seeds]
        return {
            "framer_on": self.places[0],
            "detector_on": self.places[1],
            "rest_on": self.places[2],
            "version": self.version,
            "runtime": self.runtime,
            "pressure": self.pressure,
            "workers": self.workers,
            "frames": self.frames,
            "theirs_s": self.theirs_s,
            "ours_s": round(fmean(values), 2),
            "error": round(fmean(values) / self.theirs_s - 1, 4),
            "ours_s_by_seed": by_seed(values, 3),
        }


def compared(points: Sequence[Point], seeds: Sequence[int], progress: Progress) -> tuple[dict[str, object], ...]:
    """The row of every point."""
    found: dict[int, dict[str, object]] = {}
    for position, row in each(partial(Point.row, seeds=seeds), points, in_parallel=len(points) > 40):
        found[position] = row
        progress(len(found) / len(points), f"{'/'.join(points[position].places)}, {points[position].frames} frames")
    return tuple(found[position] for position in range(len(points)))


def curve(rows: Rows, x: str, column: str) -> list[tuple[float, float]]:
    """A line for a figure: one column against another."""
    return [(float(row[x]), float(row[column])) for row in rows]


def errors_claim(what: str, rows: Rows, settings: Mapping[str, Any], kind: Kind, note: str | None = None) -> Claim:
    """Whether relative errors are small, on average over the points and at worst, in every seed alike."""
    by_point = [[abs(ours / row["theirs_s"] - 1) for ours in values_of(row, "ours_s")] for row in rows]
    mean, worst = (sampled([choose(own) for own in zip(*by_point, strict=True)]) for choose in (fmean, max))
    most_mean, most = settings["most_mean_error"], settings["most_error"]
    return decide_all(
        what,
        f"errors at most {most_mean:.0%} on average and {most:.0%} at worst",
        [(at_most(most_mean), mean), (at_most(most), worst)],
        paper=f"{len(rows)} measured latencies",
        ours=f"{mean.mean:.1%} on average, {worst.mean:.1%} at worst",
        kind=kind,
        note=note,
    )


def share_claim(what: str, printed: float, slow: Row, fast: Row, most_points: float, note: str) -> Claim:
    """Whether (slow - fast) / slow is the printed share, give or take. A fit: the times were fitted to these."""
    share = exact(1).minus(quotient(fast, slow, "ours_s"))
    rule = between(printed - most_points, printed + most_points, f"within {100 * most_points:g} points of the printed")
    return decide(what, rule, share, paper=f"{printed:.1%}", ours=f"{share.mean:.1%}", kind="fit", note=note)


def shipped_layers(agent: str) -> list[Layer]:
    """The network of an agent that comes with Fairlead."""
    from fairlead.policy.darly.checkpoint import read_checkpoint  # noqa: PLC0415 - its library takes a while

    with as_file(files("fairlead.policy.darly") / f"{agent}.safetensors") as path:
        return read_checkpoint(path).layers
