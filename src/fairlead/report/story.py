"""The story of a request: what it met when it came, how each stage of it was run, and how it ended.

Everything comes from the records of the run; with the profiles of a live run, also what was to be expected. What a
policy noted on its plan (`fairlead` does) tells why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import polars as pl

from fairlead.model import CACHED, Configuration, Recording
from fairlead.policy.fairlead.reasons import Admitted, Planned, Started, read_notes
from fairlead.profile import Profile
from fairlead.report.met import Met, idle_elsewhere, meet

_NOTICEABLE_S = 1e-3  # by how much a stage must exceed its plan to be told
_BEFORE = 32  # batches from which it is taken how far the profile was off at the time


@dataclass(frozen=True, kw_only=True)
class StageStory:
    """One attempt at one stage. Durations in seconds; `expected_s` is None without a profile or a note.

    Args:
        met: What it met when it became ready.
        idle_elsewhere: Other nodes of the same kind that had an idle instance with these vGPUs at its start.
        planned: What the policy planned for it.
        note: Why the policy started it so.
    """

    stage: str
    function: str
    item: int
    attempt: int
    ready: float
    wait_s: float
    cold_s: float
    transfer_s: float
    run_s: float
    end: float
    batch_size: int
    mates: tuple[int, ...]
    instance: int
    node: str
    vcpus: float
    vgpus: float
    outcome: str
    is_cold: bool
    busy_before: bool
    declared_s: float | None = None
    expected_s: float | None = None
    met: Met | None = None
    idle_elsewhere: int = 0
    planned: Planned | None = None
    note: Started | None = None


@dataclass(frozen=True, kw_only=True)
class Delay:
    """A stage that took longer than planned, or was still waiting when its request was given up."""

    stage: str
    planned_s: float
    took_s: float
    wait_s: float
    met: Met | None = None  # if it was not started


@dataclass(frozen=True, kw_only=True)
class Story:
    """One request: what is in its row, what was ahead of it when it came, and its stages in order of time."""

    request: int
    workflow: str
    policy: str
    arrival: float
    deadline: float
    budget_usd: float
    end: float | None
    outcome: str
    reason: str | None
    retry_after_s: float | None
    promised: float | None
    plan: str | None
    offer_latency_s: float | None
    offer_cost_usd: float | None
    cost_usd: float
    open_before: int
    more_urgent: int
    waiting_before: int
    running_before: int
    stages: tuple[StageStory, ...] = ()
    admitted: Admitted | None = None
    delays: tuple[Delay, ...] = ()

    @property
    def is_in_time(self) -> bool:
        """Whether it was answered by its deadline."""
        return self.outcome == "completed" and self.end is not None and self.end <= self.deadline


def tell(recording: Recording, request: int, profiles: Mapping[str, Profile] | None = None) -> Story | None:
    """The story of a request; None if the run has no such one."""
    rows = recording.requests.filter(pl.col("request") == request)
    if not rows.height:
        return None
    row = rows.row(0, named=True)
    arrival, deadline = row["arrival"], _or_inf(row["deadline"])
    others = recording.requests.filter(pl.col("request") != request)
    is_open = (pl.col("arrival") <= arrival) & (pl.col("end").is_null() | (pl.col("end") > arrival))
    ahead = others.filter(is_open)
    seen = recording.invocations.filter(pl.col("request") != request)
    plan, *lines = (row["plan"] or "").split("\n")
    admitted, started = read_notes(lines)
    stages = _stages(recording, request, profiles or {}, admitted, started)
    return Story(
        request=request,
        workflow=row["workflow"],
        policy=recording.policy,
        arrival=arrival,
        deadline=deadline,
        budget_usd=_or_inf(row["budget_usd"]),
        end=row["end"],
        outcome=row["outcome"],
        reason=row["reason"],
        retry_after_s=row["retry_after_s"],
        promised=row["promised"],
        plan=plan or None,
        offer_latency_s=row["offer_latency_s"],
        offer_cost_usd=row["offer_cost_usd"],
        cost_usd=row["cost_usd"] or 0.0,
        open_before=ahead.height,
        more_urgent=ahead.filter(pl.col("deadline") < deadline).height,
        waiting_before=seen.filter((pl.col("ready") <= arrival) & (pl.col("start") > arrival)).height,
        running_before=seen.filter((pl.col("start") <= arrival) & (pl.col("end") > arrival)).height,
        stages=stages,
        admitted=admitted,
        delays=_delays(recording, admitted, stages, row) if admitted else (),
    )


def _stages(
    recording: Recording,
    request: int,
    profiles: Mapping[str, Profile],
    admitted: Admitted | None,
    started: Sequence[Started],
) -> tuple[StageStory, ...]:
    planned = {step.stage: step for step in admitted.steps} if admitted else {}
    rows = recording.invocations.filter(pl.col("request") == request).sort("ready", "start", maintain_order=True)
    known = recording.cluster.kinds
    kinds = {node.name: (node.kind, node.speed) for node in recording.cluster.nodes}
    kinds |= {life.node: (life.kind, known[life.kind].speed) for life in recording.nodes}
    found = []
    notes = _matched(rows, started)
    for row in rows.iter_rows(named=True):
        if row["outcome"] == CACHED:
            found.append(_cached(row))
            continue
        note = notes.get((row["stage"], row["item"], row["attempt"], row["batch"]))
        mates = recording.invocations.filter((pl.col("batch") == row["batch"]) & (pl.col("request") != request))
        same = recording.invocations.filter(
            (pl.col("instance") == row["instance"]) & (pl.col("end") <= row["start"]) & (pl.col("end") > row["ready"])
        )
        profile = profiles.get(row["function"])
        declared = expected = None
        if profile is not None and row["node"] in kinds:
            declared, expected = _expectation(recording, row, profile, kinds[row["node"]])
        if note is not None:
            expected = note.expected_s
        found.append(
            StageStory(
                stage=row["stage"],
                function=row["function"],
                item=row["item"],
                attempt=row["attempt"],
                ready=row["ready"],
                wait_s=max(0.0, row["start"] - row["ready"]),
                cold_s=row["cold_s"],
                transfer_s=row["transfer_s"],
                run_s=max(0.0, row["end"] - row["start"] - row["cold_s"] - row["transfer_s"]),
                end=row["end"],
                batch_size=row["batch_size"],
                mates=tuple(dict.fromkeys(mates["request"].to_list())),
                instance=row["instance"],
                node=row["node"],
                vcpus=row["vcpus"],
                vgpus=row["vgpus"],
                outcome=row["outcome"],
                is_cold=row["is_cold"],
                busy_before=same.height > 0,
                declared_s=declared,
                expected_s=expected,
                planned=planned.get(row["stage"]),
                note=note,
                met=meet(recording, row["function"], row["vcpus"], row["vgpus"], row["ready"], row["start"]),
                idle_elsewhere=idle_elsewhere(recording, row),
            )
        )
    return tuple(found)


def _cached(row: Mapping[str, Any]) -> StageStory:
    """An invocation that was answered without a run: it has a wait at most."""
    return StageStory(
        stage=row["stage"],
        function=row["function"],
        item=row["item"],
        attempt=row["attempt"],
        ready=row["ready"],
        wait_s=max(0.0, row["end"] - row["ready"]),
        cold_s=0.0,
        transfer_s=0.0,
        run_s=0.0,
        end=row["end"],
        batch_size=0,
        mates=(),
        instance=-1,
        node="",
        vcpus=0.0,
        vgpus=0.0,
        outcome=CACHED,
        is_cold=False,
        busy_before=False,
    )


def _matched(rows: pl.DataFrame, started: Sequence[Started]) -> dict[tuple[object, ...], Started]:
    """The note on each attempt: both are in the order of the starts, per function."""
    waiting: dict[str, list[Started]] = {}
    for note in started:
        waiting.setdefault(note.function, []).append(note)
    found: dict[tuple[object, ...], Started] = {}
    runs = rows.filter(pl.col("outcome") != CACHED)
    for row in runs.sort("batch", maintain_order=True).iter_rows(named=True):
        if waiting.get(row["function"]):
            key = (row["stage"], row["item"], row["attempt"], row["batch"])
            found[key] = waiting[row["function"]].pop(0)
    return found


def _delays(
    recording: Recording, admitted: Admitted, stages: Sequence[StageStory], request: Mapping[str, Any]
) -> tuple[Delay, ...]:
    """The stages that took longer than planned, in the order of the plan; of a dropped request also what waited."""
    done: dict[str, float] = {}
    found = []
    is_dropped = request["outcome"] == "dropped"
    for step in admitted.steps:
        attempts = [stage for stage in stages if stage.stage == step.stage]
        before = [done[name] for name in step.after if name in done]
        can_start = len(before) == len(step.after) if is_dropped else len(before) > 0 or not step.after
        if not can_start or not (attempts or is_dropped):  # it was never ready, or is an arm that was not taken
            continue
        ready = max(before, default=request["arrival"])
        until = max((stage.end for stage in attempts), default=request["end"])
        planned_s, took_s, waited_s, met = step.end_s - step.start_s, until - ready, until - ready, None
        if any(stage.outcome in ("done", CACHED) for stage in attempts):
            done[step.stage] = until
        if attempts:
            waited_s = max(stage.wait_s for stage in attempts)
            if took_s <= planned_s + _NOTICEABLE_S:
                continue
        else:
            wanted = step.configuration
            met = meet(recording, step.function, wanted.vcpus, wanted.vgpus, ready, until)
        found.append(Delay(stage=step.stage, planned_s=planned_s, took_s=took_s, wait_s=waited_s, met=met))
    return tuple(found)


def _expectation(
    recording: Recording, row: Mapping[str, Any], profile: Profile, on: tuple[str, float]
) -> tuple[float | None, float | None]:
    """What the profile says of this run, and that times how far it was off in the runs before."""

    def declared(size: int) -> float:
        alike = [c for c in profile.configurations if c.vcpus == row["vcpus"] and c.vgpus == row["vgpus"]]
        takes = sorted((c for c in alike if c.batch >= size), key=lambda c: c.batch)
        last = sorted(alike, key=lambda c: c.batch)[-1:]
        for configuration in (*takes, *last):
            return profile.latency_s(configuration, *on)
        return profile.latency_s(Configuration(vcpus=row["vcpus"], vgpus=row["vgpus"]), *on)

    own = declared(row["batch_size"])
    if not 0 < own < inf:
        return None, None
    alike = ("function", "vcpus", "vgpus", "node")
    before = (
        recording.invocations.filter(
            *(pl.col(name) == row[name] for name in alike),
            pl.col("outcome") == "done",
            pl.col("end") <= row["start"],
        )
        .unique("batch", maintain_order=True)
        .sort("end")
        .tail(_BEFORE)
    )
    ratios = [
        (end - start - cold - transfer) / declared(size)
        for size, start, end, cold, transfer in before.select(
            "batch_size", "start", "end", "cold_s", "transfer_s"
        ).iter_rows()
        if declared(size) > 0
    ]
    return own, own * float(np.median(ratios)) if ratios else own


def _or_inf(value: float | None) -> float:
    return inf if value is None else value
