"""The cluster of Darly, simulated: four unlike nodes, a video workflow, and load from others.

What is known are end-to-end latencies (`tables`); they are linear in the number of frames. The parts follow from them:

* The **framer** decodes the whole video: its time is what remains at no frames, by node.
* A call of the **detector** takes 0.8 s with one queue-worker and 0.218 s if called directly: the difference is the way
  through the queue, on no CPU. Beyond eight workers a call takes 0.108 s: half a node serves one.
* The **models** (analyzer and recogniser) take what is left of the time per frame, on three quarters of a node.
* **Pressure** from outside slows each part by a curve of its own for each node. Preset `chapter-4`: by the ratios of
  measured latencies to those without pressure; between the measured 10, 50 and 80 % straight lines, so 75 % lies on a
  steep part. Preset `logs`: as seen in the logs of the authors' training, where 50 % slowed the framer by 1.6 and 25 %
  not at all; what 75 % did is not known there (ours: the line goes on).

**Ours, not published:** which part of a node a call takes, cold starts, the noise of single calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from fairlead.learn.darly import tables
from fairlead.model import SLO, Cluster, Function, Node, Stage, Workflow
from fairlead.profile import Profile, Row, Table
from fairlead.workload import ClosedLoop, PolicyChoice, PressureChange, Scenario

Curves = Literal["chapter-4", "logs"]
Version = Literal[1, 2, 3, 4]
Runtime = Literal["custom", "faas-flow"]
Points = tuple[tuple[float, float], ...]

FRAMER, DETECTOR, ANALYZER, RECOGNISER, UPLOADER = "framer", "detector", "analyzer", "recogniser", "uploader"
"""What moves together; the uploader goes with the models."""

QUEUE_S = 0.8 - 14.2 / 65
DETECTOR_S = 14.2 / 65
DETECTOR_VCPUS, MODEL_VCPUS, FRAMER_VCPUS = 4.0, 6.0, 1.0
UPLOADER_S = 0.1
_MEMORY_GB = {
    FRAMER: 0.18,
    DETECTOR: 0.3,
    ANALYZER: 0.41,
    RECOGNISER: 0.76,
    UPLOADER: 0.1,
    "monolith": 3.95,
    "wrapper": 0.1,
}
_NOISE = {FRAMER: 0.03, DETECTOR: 0.3, ANALYZER: 0.3, RECOGNISER: 0.3, "monolith": 0.03}
_COLD_S = 8.0
# Nodes of table 4.1. w03 has 16 vCPUs, two to a core: the functions gain nothing beyond 8, so it has 8 here.
_VCPUS = {"w01": 8.0, "w02": 8.0, "w03": 8.0, "w04": 4.0}
_RAM_GB = {"w01": 15.6, "w02": 15.6, "w03": 31.4, "w04": 15.6}
_LOGS_FRAMER: Points = ((0.25, 1.0), (0.5, 1.6))


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the parts of the workflow take on one node: seconds, and by pressure how many times as long."""

    framer_s: float
    model_s: float
    framer_curve: Points
    model_curve: Points


@cache
def parts(node: str) -> Parts:
    """Fitted to the tables: a line through the latencies by frames, at each pressure."""
    fits = {p: _line(tables.FRAMES, tables.ONE_NODE[node][p]) for p in tables.PRESSURES}
    fixed_s, per_frame_s = fits[0.0]
    alone = tables.QUEUE_WORKERS.get((node, node, node))
    if alone is not None:  # the same setting was measured twice
        again_s, again_per_frame_s = _line(tables.FRAMES, [alone[n][0] for n in tables.FRAMES])
        fixed_s, per_frame_s = (fixed_s + again_s) / 2, (per_frame_s + again_per_frame_s) / 2
    work_s = per_frame_s - QUEUE_S
    first_s, first_per_frame_s = fits[0.0]
    framer = [(p, fits[p][0] / first_s) for p in tables.PRESSURES[1:]]
    models = [(p, (fits[p][1] - QUEUE_S) / (first_per_frame_s - QUEUE_S)) for p in tables.PRESSURES[1:]]
    return Parts(
        framer_s=fixed_s - UPLOADER_S,
        model_s=work_s - DETECTOR_S,
        framer_curve=_rising(framer),
        model_curve=_rising(models),
    )


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    slope, at_zero = np.polyfit(x, y, 1)
    return float(at_zero), float(slope)


def _rising(points: Sequence[tuple[float, float]]) -> Points:
    """The nearest curve that nowhere falls and begins at 1: neighbours out of order take their mean."""
    blocks: list[list[float]] = []  # [sum, count]
    for _, factor in points:
        blocks.append([factor, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    factors = [max(1.0, total / count) for total, count in blocks for _ in range(int(count))]
    return tuple((p, round(f, 4)) for (p, _), f in zip(points, factors, strict=True))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One arrangement of the cluster.

    Args:
        frames: Of the video, kept by the framer: 7, 16, 32 or 65.
        version: 1, five functions; 4, one that does all but the upload. 2 and 3 are between, under faas-flow alone.
        runtime: The authors' own, with queue-workers; or faas-flow, which was measured on w01 without pressure.
        curves: What pressure costs.
        noise: Whether times differ from call to call.
    """

    frames: int = 16
    version: Version = 1
    runtime: Runtime = "custom"
    curves: Curves = "chapter-4"
    noise: bool = True

    def __post_init__(self) -> None:
        if self.frames not in tables.FRAMES:
            raise ValueError(f"frames must be one of {', '.join(map(str, tables.FRAMES))}; got {self.frames}.")
        if self.runtime == "custom" and self.version not in (1, 4):
            raise ValueError(f"version must be 1 or 4 with the custom runtime; got {self.version}.")


def cluster() -> Cluster:
    """The four nodes. What several functions ask of one at a time is divided among them."""
    return Cluster(
        nodes=tuple(
            Node(name=name, kind=name, vcpus=_VCPUS[name], memory_gb=_RAM_GB[name], overcommit=64.0)
            for name in tables.NODES
        )
    )


def scenario(
    setting: Setting = Setting(),
    *,
    slo_s: float = 35.0,
    workers: int = 4,
    scaler: PolicyChoice | None = None,
    pressures: Sequence[PressureChange] = (),
    think_s: float = 26.5,
    control_period_s: float = 60.0,
    duration_s: float = 3600.0,
) -> Scenario:
    """One user who sends a video, waits for its result, and sends the next.

    A replica is to be as many instances as there are workers: it answers so many calls at a time, in one container.
    """
    if setting.runtime == "faas-flow":
        profiles = _flow(setting)
    else:
        profiles = _monolith(setting) if setting.version == 4 else _five(setting)
    names = list(profiles)
    return Scenario(
        name=f"darly-{setting.frames}",
        cluster=cluster(),
        functions={name: Function(name=name, memory_gb=_MEMORY_GB[name] / workers, keep_alive_s=1e9) for name in names},
        profiles=profiles,
        workflows={"video": _workflow(setting, slo_s)},
        arrivals=(ClosedLoop("video", users=1, think_s=think_s, think="constant"),),
        duration_s=duration_s,
        policy=PolicyChoice(name="queue-workers", parameters={"workers": workers}),
        scaler=scaler,
        control_period_s=control_period_s,
        pressures=tuple(pressures),
    )


def _workflow(setting: Setting, slo_s: float) -> Workflow:
    frames = setting.frames
    if setting.runtime == "faas-flow":
        return Workflow.chain("video", FRAMER, "wrapper", UPLOADER, slo=SLO(latency_s=slo_s))
    if setting.version == 4:
        return Workflow.chain("video", "monolith", UPLOADER, slo=SLO(latency_s=slo_s))
    faces = tables.FACES[frames] / frames
    return Workflow(
        name="video",
        stages=(
            Stage(name=FRAMER, function=FRAMER),
            Stage(name=DETECTOR, function=DETECTOR, after=(FRAMER,), map=(frames, frames)),
            Stage(name=ANALYZER, function=ANALYZER, after=(DETECTOR,), when=faces),
            Stage(name=RECOGNISER, function=RECOGNISER, after=(DETECTOR,), when=1 - faces),
            Stage(name=UPLOADER, function=UPLOADER, after=(ANALYZER, RECOGNISER), join=True),
        ),
        slo=SLO(latency_s=slo_s),
    )


def _five(setting: Setting) -> dict[str, Profile]:
    models = {node: _Work(parts(node).model_s, _model_curve(node, setting.curves)) for node in tables.NODES}
    detector = {node: _Work(DETECTOR_S, work.curve) for node, work in models.items()}
    framer = {node: _Work(parts(node).framer_s, _framer_curve(node, setting.curves)) for node in tables.NODES}
    return {
        FRAMER: _profile(FRAMER, framer, FRAMER_VCPUS, setting),
        DETECTOR: _profile(DETECTOR, detector, DETECTOR_VCPUS, setting, QUEUE_S),
        ANALYZER: _profile(ANALYZER, models, MODEL_VCPUS, setting),
        RECOGNISER: _profile(RECOGNISER, models, MODEL_VCPUS, setting),
        UPLOADER: _profile(UPLOADER, {node: _Work(UPLOADER_S, ()) for node in tables.NODES}, 1.0, setting),
    }


def _monolith(setting: Setting) -> dict[str, Profile]:
    works = {}
    for node in tables.NODES:
        rows = tables.MONOLITH[node]
        lines = {p: _line(tables.FRAMES, rows[p]) for p in tables.PRESSURES}
        seconds = {p: fixed + slope * setting.frames for p, (fixed, slope) in lines.items()}
        curve = _rising([(p, seconds[p] / seconds[0.0]) for p in tables.PRESSURES[1:]])
        works[node] = _Work(seconds[0.0] - UPLOADER_S, curve if setting.curves == "chapter-4" else _LOGS_FRAMER)
    uploader = {node: _Work(UPLOADER_S, ()) for node in tables.NODES}
    return {
        "monolith": _profile("monolith", works, FRAMER_VCPUS, setting),
        UPLOADER: _profile(UPLOADER, uploader, 1.0, setting),
    }


def _flow(setting: Setting) -> dict[str, Profile]:
    """Under faas-flow: a wrapper calls the functions for all frames, and holds what they give in one state.

    The measured times bend upwards with the number of frames, which a state that is read and written for each frame
    would explain: the wrapper takes b n + c n^2, with b and c of each version, beside the same framer.
    """
    versions = range(len(tables.FAAS_FLOW[tables.FRAMES[0]]))
    rows, seconds = [], []
    for n in tables.FRAMES:
        for version in versions:
            own = [float(version == other) for other in versions]
            rows.append([1.0, *(n * one for one in own), *(n * n * one for one in own)])
            seconds.append(tables.FAAS_FLOW[n][version])
    found, *_ = np.linalg.lstsq(np.array(rows), np.array(seconds), rcond=None)
    framer_s = float(found[0]) - UPLOADER_S
    slope, bend = found[setting.version], found[setting.version + len(versions)]
    wrapper = {"w01": _Work(float(slope * setting.frames + bend * setting.frames**2), ())}
    return {
        FRAMER: _profile(FRAMER, {"w01": _Work(framer_s, ())}, FRAMER_VCPUS, setting),
        "wrapper": _profile("wrapper", wrapper, 1.0, setting),
        UPLOADER: _profile(UPLOADER, {"w01": _Work(UPLOADER_S, ())}, 1.0, setting),
    }


@dataclass(frozen=True)
class _Work:
    """What a call takes on one node, and under pressure."""

    seconds: float
    curve: Points


def _profile(name: str, works: Mapping[str, _Work], vcpus: float, setting: Setting, overhead_s: float = 0.0) -> Profile:
    """Seconds are those of a call alone on its node: where it asks for more than the node has, that is in them."""
    return Profile(
        law=Table(
            tuple(
                Row(seconds=work.seconds / max(1.0, vcpus / _VCPUS[node]), vcpus=vcpus, kind=node)
                for node, work in works.items()
            )
        ),
        cold_start_s=_COLD_S,
        noise=_NOISE.get(name, 0.0) if setting.noise else 0.0,
        pressure_curves={node: work.curve for node, work in works.items() if work.curve},
        overhead_s=overhead_s,
    )


def _framer_curve(node: str, curves: Curves) -> Points:
    return parts(node).framer_curve if curves == "chapter-4" else _LOGS_FRAMER


def _model_curve(node: str, curves: Curves) -> Points:
    return parts(node).model_curve if curves == "chapter-4" else _LOGS_FRAMER
