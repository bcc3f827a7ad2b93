"""What a scaler made of every function, control period by control period."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from fairlead.runlog.segments import Kind, read_frames


class ScalingRow(msgspec.Struct, frozen=True, array_like=True):
    """One function right after a control period.

    `replicas` is how many are wanted, each of `replica_vcpus`; `ready` how many have started and are not on their way
    out; `vcpus` and `memory_gb` are what all its instances hold. `notes` are the scaler's own numbers.
    """

    now: float
    function: str
    replicas: int
    replica_vcpus: float
    ready: int
    vcpus: float
    memory_gb: float
    notes: Mapping[str, float] = {}


def read_scaling(folder: Path) -> list[ScalingRow]:
    """Every row of a run, in order; none where nobody scaled."""
    found: list[ScalingRow] = []
    for frame in read_frames(folder):
        if frame.kind == Kind.SCALING:
            found += [msgspec.convert(entry, ScalingRow) for entry in frame.entries]
    return found
