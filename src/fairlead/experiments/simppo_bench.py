"""The bench of SIMPPO and its rivals: training in the compiled environment, judging by `simulate`.

Every scaler is judged in the same way: the readable engine, the dispatcher `least-loaded`, the same arrivals, and
latencies of requests. Training sees neither those arrivals nor that engine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from fairlead.engine import simulate
from fairlead.model import Record
from fairlead.policy import make_policy
from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.simppo.checkpoint import Checkpoint, write_checkpoint
from fairlead.workload import Scenario

if TYPE_CHECKING:
    from fairlead.learn.simppo.plan import Outcome, Plan

WARMUP_S, DURATION_S = 300.0, 2300.0


@dataclass(frozen=True, kw_only=True)
class Served:
    """What one run of a scaler brought: by workflow its p99 and attainment, and what all replicas held."""

    p99_s: Mapping[str, float]
    attainment: Mapping[str, float]
    vcpu_hours: float

    @property
    def mean_attainment(self) -> float:
        """Over the workflows, each counted once."""
        return fmean(self.attainment.values())


def judge_scaler(scenario: Scenario, scaler: Policy, seed: int, *, duration_s: float = DURATION_S) -> Served:
    """One run. A request that was not answered by the end counts with the time until then."""
    timed = replace(scenario, duration_s=duration_s, warmup_s=min(WARMUP_S, duration_s / 4))
    watched = _Held(scaler)
    recording = simulate(timed, make_policy("least-loaded"), scaler=watched, seed=seed, engine="python")
    assert not recording.refusals, recording.refusals[0]
    counted = recording.requests.filter(pl.col("arrival") >= timed.warmup_s).with_columns(
        latency=pl.coalesce("end", pl.lit(recording.end_s)) - pl.col("arrival"),
        is_met=(pl.col("outcome") == "completed") & (pl.col("end") <= pl.col("deadline")),
    )
    by = counted.group_by("workflow", maintain_order=True).agg(
        p99=pl.col("latency").quantile(0.99, "higher"), attainment=pl.col("is_met").mean()
    )
    return Served(
        p99_s=dict(zip(by["workflow"], by["p99"], strict=True)),
        attainment=dict(zip(by["workflow"], by["attainment"], strict=True)),
        vcpu_hours=watched.vcpus * timed.control_period_s / 3600,
    )


def judge_agents(scenario: Scenario, trained: Checkpoint, seed: int, *, duration_s: float = DURATION_S) -> Served:
    """One run of the scaler `simppo` with these agents."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "agents.safetensors"
        write_checkpoint(trained, path)
        return judge_scaler(scenario, make_policy("simppo", {"checkpoint": str(path)}), seed, duration_s=duration_s)


def judge_apart(scenario: Scenario, trained: Checkpoint, seed: int, *, duration_s: float = DURATION_S) -> Served:
    """Each function alone in the cluster, scaled by its agent; what they held is added up."""
    from fairlead.learn.functions.tenants import alone  # noqa: PLC0415 - compiled code takes a second to load

    parts = [judge_agents(alone(scenario, name), trained, seed, duration_s=duration_s) for name in scenario.functions]
    return Served(
        p99_s={name: value for part in parts for name, value in part.p99_s.items()},
        attainment={name: value for part in parts for name, value in part.attainment.items()},
        vcpu_hours=sum(part.vcpu_hours for part in parts),
    )


class _Held(Policy):
    """A scaler, and the vCPUs that all instances held after each of its decisions, added up."""

    def __init__(self, scaler: Policy) -> None:
        self._scaler = scaler
        self.vcpus = 0.0

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._functions = tuple(site.functions)
        self._scaler.prepare(site, rng)

    def observe(self, record: Record) -> None:
        self._scaler.observe(record)

    def adjust(self, view: View) -> Iterator[Action]:
        yield from self._scaler.adjust(view)
        self.vcpus += sum(instance.vcpus for name in self._functions for instance in view.instances(name))


def taught(plan: "Plan") -> "Outcome":
    """Train, on one thread: several plans may run side by side."""
    from fairlead.learn.simppo import one_thread  # noqa: PLC0415 - needs the extra

    one_thread()
    from fairlead.learn.simppo.plan import teach  # noqa: PLC0415 - needs the extra

    return teach(plan)


def degradation(served: Served, reference: Served) -> float:
    """How much higher the p99 is than that of the reference, over it, on average over the workflows."""
    return fmean(served.p99_s[name] / reference.p99_s[name] - 1 for name in reference.p99_s)
