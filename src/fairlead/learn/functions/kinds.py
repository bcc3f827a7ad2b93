"""What was measured of the twelve functions, as a simulation takes it: one law of time, its spread, cold start, memory.

A function on one thread takes t1 x ((1 - c) + c / min(v, 1)) on v vCPUs: its CPU time, c x t1, stretched where it has
less than one vCPU, and what it only waits.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from types import MappingProxyType

import msgspec

from fairlead.profile import ScalingLaw
from fairlead.profile.measured import MOST_NOISE, MeasuredFunction, MeasuredProfiles, Point, read_measured

APP = Path(__file__).with_name("app.py")
"""The app, for `fairlead serve` and `fairlead profile`."""

MEMORY_STEP_GB = 0.125


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One of the twelve: `memory_gb` is what an instance held at most, in whole steps of 0.125 GB."""

    law: ScalingLaw
    noise: float
    cold_start_s: float
    memory_gb: float
    output_mb: float


@cache
def kinds() -> Mapping[str, Kind]:
    """The twelve by name, in the order of the app."""
    return MappingProxyType({name: kind_of(function) for name, function in measured().functions.items()})


def measured() -> MeasuredProfiles:
    """The measured file as it is, with the machine that it is of."""
    return read_measured(APP.with_suffix(".profile.json"))


def kind_of(function: MeasuredFunction) -> Kind:
    """The law and the needs of a measured function. Digits beyond what a measurement can tell are cut off.

    The spread is that of the CPU time: what neighbours add is the simulator's own business.
    """
    works_s, waits_s = _parts([point for point in function.points if not point.is_predicted])
    t1_s = works_s + waits_s
    start_s = 0.0 if function.cold_start is None else function.cold_start.mean_s
    return Kind(
        law=ScalingLaw(t1_s=round(t1_s, 4), fixed=round(waits_s / t1_s, 3), gamma=1.0, threads=1.0),
        noise=round(min(function.cpu_noise or 0.0, MOST_NOISE), 3),
        cold_start_s=round(start_s, 3),
        memory_gb=MEMORY_STEP_GB * max(1, ceil(function.memory_gb / MEMORY_STEP_GB)),
        output_mb=round(function.output_mb, 6),
    )


def _parts(points: Sequence[Point]) -> tuple[float, float]:
    """CPU seconds of a run, and seconds that it only waits, whatever its vCPUs.

    Programs beside it make it wait for its turn as well: so its own wait is the least that any point shows.
    """
    known = [(point, point.cpu_s) for point in points if point.cpu_s is not None]
    if not known:
        raise ValueError("no point has a CPU time; measure on a machine that tells it.")
    works_s = sum(point.count * cpu_s for point, cpu_s in known) / sum(point.count for point, _ in known)
    waits_s = min(point.mean_s - cpu_s / min(point.vcpus, 1.0) for point, cpu_s in known)
    return works_s, max(0.0, waits_s)
