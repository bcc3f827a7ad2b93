"""What a run shows of its functions: how long batches and cold starts took, and how invocations ended.

A batch is known by its function, its vCPUs and vGPUs, its node, and how many invocations it really held: that, not the
size it might have had, is what its time depends on.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from fairlead.engine.core import events as ev
from fairlead.model import Configuration
from fairlead.profile import Profile
from fairlead.replay.logged import LoggedRun

Share = tuple[str, float, float, str]  # function, vCPUs, vGPUs, node

_ENOUGH = 8  # batches of one size whose mean is taken as it is; below, the line through all sizes is
_ROUNDING_S = 1e-9


@dataclass(frozen=True)
class Batch:
    """One batch that finished: when it began to run, how long its function took, and what was spent besides."""

    at: float
    size: int
    work_s: float
    overhead_s: float


class Spans:
    """Batches in order of time, to be found by it."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.batches = sorted(batches, key=lambda batch: batch.at)
        self._at = [batch.at for batch in self.batches]

    def near(self, at: float, count: int) -> list[Batch]:
        """So many that ran at about that time: a machine has its moods, which pass."""
        first = bisect_left(self._at, at) - count // 2
        first = max(0, min(first, len(self._at) - count))
        return self.batches[first : first + count]


class ShareSpans:
    """The batches of one share: all of them, those of each size, and the mean time of any size."""

    def __init__(self, batches: list[Batch], declared: Mapping[int, float]) -> None:
        self.all = Spans(batches)
        sizes: defaultdict[int, list[Batch]] = defaultdict(list)
        for batch in batches:
            sizes[batch.size].append(batch)
        self.by_size = {size: Spans(of_size) for size, of_size in sizes.items()}
        self._means = {size: _mean(of_size) for size, of_size in sizes.items()}
        self._counts = {size: len(of_size) for size, of_size in sizes.items()}
        self._declared = declared
        self._line = self._fit()

    def mean_s(self, size: int) -> float:
        """Mean time of a batch of this size, seen often or not."""
        if self._counts.get(size, 0) >= _ENOUGH:
            return self._means[size]
        if self._line is not None:
            at, per = self._line
            return max(at + per * size, 0.1 * min(self._means.values()))
        if size in self._means:
            return self._means[size]
        known = next(iter(self._means))
        scale = self._declared.get(size, 0.0) / (self._declared.get(known) or 1.0)
        return self._means[known] * (scale or 1.0)

    def _fit(self) -> tuple[float, float] | None:
        """The line through the means of all sizes, weighted by how often each was seen; None for one size."""
        if len(self._means) < 2:
            return None
        sizes = list(self._means)
        weights = [sqrt(self._counts[size]) for size in sizes]
        per, at = np.polyfit(sizes, [self._means[size] for size in sizes], 1, w=weights)
        return float(at), float(per)


class Observations:
    """What a logged run shows, ready to be drawn from."""

    def __init__(self, run: LoggedRun) -> None:
        self._profiles = run.scenario.profiles
        self._nodes = {node.name: node for node in run.head.scenario.cluster.nodes}
        ends = _finished(run)
        batches: defaultdict[Share, list[Batch]] = defaultdict(list)
        self.outcomes: dict[tuple[int, str, int, int], ev.Outcome] = {}
        self.endings: defaultdict[tuple[str, str], list[ev.Outcome]] = defaultdict(list)
        seen: Counter[int] = Counter()
        stopped: set[int] = set()
        for row in run.recording.invocations.iter_rows(named=True):
            event = ends.get(row["batch"])
            if event is None:
                if row["outcome"] == "failed" and row["batch"] not in stopped:
                    stopped.add(row["batch"])
                    batches[_share(row)].append(_cut_short(row))
                continue  # otherwise it was lost or stopped: how long it would have taken is unknown
            place = seen[row["batch"]]
            seen[row["batch"]] += 1
            outcome = event.outcomes[place] if event.outcomes and place < len(event.outcomes) else ev.Outcome()
            self.outcomes[row["request"], row["stage"], row["item"], row["attempt"]] = outcome
            self.endings[row["workflow"], row["stage"]].append(outcome)
            if place == 0:
                began = row["start"] + row["cold_s"]
                rest_s = row["end"] - began - event.work_s - event.transfer_s
                overhead_s = event.transfer_s + (rest_s if rest_s > _ROUNDING_S else 0.0)
                batches[_share(row)].append(Batch(began, row["batch_size"], event.work_s, overhead_s))
        self.shares = {share: ShareSpans(found, self._declared(share)) for share, found in batches.items()}
        self.recalled = _recalled(run)
        self.factors = self._factors()
        self.cold_starts = _cold_starts(run)

    def declared_s(self, function: str, vcpus: float, vgpus: float, node: str, size: int) -> float:
        """What the profile says of a batch that really holds so many: its smallest configuration that takes them."""
        profile, on = self._profiles[function], self._nodes[node]
        alike = [c for c in profile.configurations if c.vcpus == vcpus and c.vgpus == vgpus]
        takes = [c for c in alike if c.batch >= size]
        if takes:
            found = min(takes, key=lambda c: c.batch)
        elif alike:
            found = max(alike, key=lambda c: c.batch)
        else:
            found = Configuration(batch=size, vcpus=vcpus, vgpus=vgpus)
        return _latency_s(profile, found, on.kind, on.speed)

    def _declared(self, share: Share) -> Mapping[int, float]:
        function = share[0]
        sizes = {c.batch for c in self._profiles[function].configurations} if function in self._profiles else set()
        most = max(sizes, default=1)
        return {size: self.declared_s(*share, size) for size in range(1, most + 1)} if sizes else {}

    def _factors(self) -> dict[str, float]:
        """By function: how many times longer than declared its batches took, in the middle."""
        ratios: defaultdict[str, list[float]] = defaultdict(list)
        for share, spans in self.shares.items():
            for size in spans.by_size:
                declared = self.declared_s(*share, size)
                if 0 < declared < float("inf"):
                    ratios[share[0]].append(spans.mean_s(size) / declared)
        return {function: float(np.median(found)) for function, found in ratios.items()}


def _share(row: Mapping[str, Any]) -> Share:
    return (row["function"], row["vcpus"], row["vgpus"], row["node"])


def _cut_short(row: Mapping[str, Any]) -> Batch:
    """A batch that broke its time limit: it would have taken longer, so it is given as long again."""
    began = row["start"] + row["cold_s"]
    span_s = max(0.0, row["end"] - began)
    return Batch(began, row["batch_size"], span_s, span_s)


def _finished(run: LoggedRun) -> dict[int, ev.Finished]:
    return {event.batch: event for _, events in run.instants for event in events if isinstance(event, ev.Finished)}


def _recalled(run: LoggedRun) -> dict[tuple[int, str, int], ev.Recalled]:
    """By request, stage and item: what the prediction cache answered."""
    recalled = (event for _, events in run.instants for event in events if isinstance(event, ev.Recalled))
    return {(event.request, event.stage, event.item): event for event in recalled}


def _cold_starts(run: LoggedRun) -> dict[tuple[str, str], Spans]:
    """By function and node: every start that succeeded, from the rows of instances that have ended."""
    found: defaultdict[tuple[str, str], list[Batch]] = defaultdict(list)
    known = {row[0] for row in run.instances}
    for row in run.recording.instances.iter_rows(named=True):
        if row["instance"] in known and row["ready"] is not None:
            found[row["function"], row["node"]].append(Batch(row["started"], 1, row["ready"] - row["started"], 0.0))
    if not run.has_ended:  # those that live have no row yet: what a cold start added to a run is all there is
        for row in run.recording.invocations.iter_rows(named=True):
            if row["instance"] not in known and row["is_cold"]:
                known.add(row["instance"])
                found[row["function"], row["node"]].append(Batch(row["start"], 1, row["cold_s"], 0.0))
    return {key: Spans(starts) for key, starts in found.items()}


def _latency_s(profile: Profile, configuration: Configuration, kind: str, speed: float) -> float:
    return profile.latency_s(configuration, kind, speed)


def _mean(batches: list[Batch]) -> float:
    return sum(batch.work_s for batch in batches) / len(batches)
