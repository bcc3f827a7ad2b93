"""Names of the files of runs, and their traces. Apart from `outputs`, whose users need no table library."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlead.model import Recording
from fairlead.report import write_trace
from fairlead.report.labels import who_labels


def write_traces(recordings: Sequence[Recording], path: Path) -> list[Path]:
    """One trace per policy and sweep point, of its first seed; where there are several, the name tells them apart."""
    firsts: dict[str, Recording] = {}
    for who, recording in zip(who_labels(recordings), recordings, strict=True):
        firsts.setdefault(file_name(who, recording.point), recording)
    if len(firsts) == 1:
        return [write_trace(recordings[0], path)]
    return [write_trace(one, path.with_name(f"{path.stem}-{name}{path.suffix}")) for name, one in firsts.items()]


def file_name(who: str, point: Mapping[str, object], seed: int | None = None) -> str:
    """A run's name as a file or folder: `esg+simppo-rate_scale=0.2-seed-0`; parameters follow the policy's name."""
    parts = [
        who.replace(" + ", "+").replace(" (", "-").replace(")", ""),
        *(f"{key}={value}" for key, value in point.items()),
    ]
    if seed is not None:
        parts.append(f"seed-{seed}")
    return re.sub(r"[^\w.+=-]+", "_", "-".join(parts))[:200]
