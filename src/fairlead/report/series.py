"""The recordings of a page in groups: one series per policy, parameters and scaler, and per run where runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from fairlead.model import Recording
from fairlead.report.counted import batches, counted_requests, makespan_s
from fairlead.report.labels import RUN, point_label, who_labels
from fairlead.report.metrics import Aggregate, Summary, aggregate, summarise


@dataclass(frozen=True, kw_only=True)
class Series:
    """The runs of one policy, parameters and scaler at one sweep point, one per seed; or one run told by its folder.

    `index` decides its colour.
    """

    index: int
    label: str
    recordings: tuple[Recording, ...]
    aggregate: Aggregate

    @cached_property
    def requests(self) -> pl.DataFrame:
        """The counted requests of all seeds."""
        return pl.concat([counted_requests(recording) for recording in self.recordings])

    @cached_property
    def batches(self) -> pl.DataFrame:
        """The batches of the first seed: where time is drawn, one run is, not a mixture."""
        return batches(self.recordings[0])

    @cached_property
    def end_s(self) -> float:
        """When the last seed was done, at least 1e-9: an axis needs a length."""
        return max(1e-9, *(makespan_s(recording) for recording in self.recordings))

    def mean(self, key: str) -> float | None:
        """The mean over seeds of one number of the summary, by its dotted name."""
        estimate = self.aggregate.estimates.get(key)
        return None if estimate is None else estimate.mean


@dataclass(frozen=True, kw_only=True)
class Bench:
    """All that a page shows: the runs by sweep point and series. Outside a sweep there is one point, unnamed."""

    summaries: tuple[Summary, ...]
    points: dict[str, tuple[Series, ...]]

    @property
    def last(self) -> tuple[Series, ...]:
        """The series of the last sweep point, whose runs are drawn in detail."""
        return list(self.points.values())[-1]


def group(recordings: Sequence[Recording]) -> Bench:
    """Recordings in order of first appearance: a policy keeps its colour at every sweep point."""
    summaries = tuple(summarise(recording) for recording in recordings)
    labels = [_run_label(label, run) for label, run in zip(who_labels(recordings), recordings, strict=True)]
    order = {label: index for index, label in enumerate(dict.fromkeys(labels))}
    found: dict[str, dict[str, list[int]]] = {}
    for position, (recording, label) in enumerate(zip(recordings, labels, strict=True)):
        point = {key: value for key, value in recording.point.items() if key != RUN}
        found.setdefault(point_label(point), {}).setdefault(label, []).append(position)
    points = {
        point: tuple(
            Series(
                index=order[label],
                label=label,
                recordings=tuple(recordings[position] for position in positions),
                aggregate=aggregate(summaries[position] for position in positions)[0],
            )
            for label, positions in sorted(by_label.items(), key=lambda pair: order[pair[0]])
        )
        for point, by_label in found.items()
    }
    return Bench(summaries=summaries, points=points)


def _run_label(label: str, recording: Recording) -> str:
    """The policy and, where runs are told apart by their folder, the run: each is a series of its own."""
    if RUN not in recording.point:
        return label
    run = str(recording.point[RUN])
    return f"{label} (run {run})" if run.isdigit() else f"{label} ({run})"
