"""An app served for a few seconds, so that a simulation of it can be set right.

A function that was measured alone finds its code and data in the caches. Served, it shares them with the gateway, the
load generator and the other functions, and each of its runs takes longer. How much longer depends on the app, so it is
measured: the app is served under the default policy at a light, a high and a too high load. `agree` makes a simulation
of the same loads take as long.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import time

import msgspec
import numpy as np
import polars as pl

from fairlead.app.manifest import Manifest
from fairlead.calibrate.offered import MOST_OPEN, calls_of
from fairlead.calibrate.serving import Gateway, ServingError, served
from fairlead.calibrate.speed import SpeedProbe
from fairlead.load import Call, Closed, LoadResult, Open, Plan, run_load
from fairlead.model import Recording
from fairlead.report.live import latest_run, read_live_run
from fairlead.runlog import read_head

POLICY = "fairlead"
ONE_BY_ONE = "fifo"
"""The policy of the last load: it makes no batches, so that the times of small ones are seen too."""

LOADS = ((POLICY, 0.25), (POLICY, 0.75), (POLICY, 1.5), (ONE_BY_ONE, 0.25))
USERS = 32
_FEW_USERS = 4
_CAPACITY_S, _SECONDS, WARM_UP_S = 3.0, 5.0, 1.0
_SLOW_CAPACITY_S, _MOST_SECONDS = 12.0, 20.0  # of an app that takes long for a request
_ANSWERS = 20  # of the closed loop, from which on they tell a capacity; the lightest load has as many requests
_PATIENT_S = 60.0  # a deadline that every request of the closed loop meets
_QUANTILES = (np.arange(20) + 0.5) / 20  # of how much longer runs take than usual
_TRIMMED = 0.99  # the longest runs are left out: one late wake-up must not speak for all

Tell = Callable[[float, str], None]
"""Is told the share that is done, and what is being done."""


def quietly(share: float, doing: str) -> None:
    """Ignores the progress."""


class Runs(msgspec.Struct, frozen=True):
    """The runs of a function with so many vCPUs: how many, their mean batch size, and their mean elapsed time.

    `beyond_s` has how much longer than the median they took: 20 equally likely times, the least first.
    """

    function: str
    vcpus: float
    count: int
    size: float
    mean_s: float
    beyond_s: tuple[float, ...] = ()


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """One load, live or simulated, after its warm-up."""

    policy: str = POLICY
    rate_rps: float
    spin_s: float | None = None  # see `SpeedProbe`
    gateway_cpu_s: float
    runs: tuple[Runs, ...]
    in_time: float
    refused: int


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of an app that was served."""

    calls: tuple[Call, ...]
    capacity_rps: float
    seconds: float = _SECONDS  # of each load
    loads: tuple[Rehearsed, ...]
    arms: Mapping[str, Mapping[str, float]]
    items: Mapping[str, Mapping[str, int]]


def rehearse(app: Path, manifest: Manifest, options: Sequence[str] = (), tell: Tell = quietly) -> Rehearsal:
    """Serve an app, with these further options of `fairlead serve`, and load it.

    Raises:
        ServingError: It does not start, or no workflow has an example.
    """
    calls = calls_of(manifest)
    tell(0.0, "capacity")
    capacity_rps = _capacity_rps(app, manifest, options)
    lightest_rps = min(load for _, load in LOADS) * capacity_rps
    seconds = min(_MOST_SECONDS, max(_SECONDS, WARM_UP_S + _ANSWERS / lightest_rps))
    loads, tables = [], []
    for place, (policy, load) in enumerate(LOADS, 1):  # each on a gateway of its own, which has learned nothing
        rate_rps = load * capacity_rps
        tell(place / (1 + len(LOADS)), f"{policy} at {load:.0%} of {capacity_rps:.0f}/s")
        with _once(app, policy, options) as (gateway, recorded), SpeedProbe() as probe:
            began = time()
            used_s, result = _run(gateway, calls, Open(rate_rps=rate_rps), seconds)
        recording, zero = recorded()
        done = recording.requests.filter(pl.col("outcome") == "completed").select("request")
        tables.append(recording.invocations.join(done, on="request", how="semi"))
        loads.append(
            Rehearsed(
                policy=policy,
                rate_rps=rate_rps,
                spin_s=probe.spin_s,
                gateway_cpu_s=used_s,
                runs=runs_of(recording.invocations, began - zero + WARM_UP_S, began - zero + seconds),
                in_time=result.attainment or 0.0,
                refused=sum(result.refused.values()),
            )
        )
    arms, items = _seen(tables, manifest)
    return Rehearsal(
        calls=calls, capacity_rps=capacity_rps, seconds=seconds, loads=tuple(loads), arms=arms, items=items
    )


def _capacity_rps(app: Path, manifest: Manifest, options: Sequence[str]) -> float:
    """Answers per second to users who always ask and are patient.

    An app that takes long for a request answers few of many users in a few seconds, and those at random. It is asked
    again by few users for longer.
    """
    calls = calls_of(manifest, deadline_s=_PATIENT_S)
    for users, seconds in ((USERS, _CAPACITY_S), (_FEW_USERS, _SLOW_CAPACITY_S)):
        with _once(app, POLICY, options) as (gateway, _):
            _, result = _run(gateway, calls, Closed(users), seconds)
        if result.answered >= _ANSWERS:
            break
    if not result.answered_rps:
        raise ServingError(f"{manifest.name} answered nothing in {seconds:g} s.")
    return result.answered_rps


@contextmanager
def _once(
    app: Path, policy: str, options: Sequence[str]
) -> Iterator[tuple[Gateway, Callable[[], tuple[Recording, float]]]]:
    """A gateway, and what gives its records and their zero once it has ended."""
    with tempfile.TemporaryDirectory(prefix="fairlead-") as name:
        found: list[tuple[Recording, float]] = []
        with served(app, Path(name), policy, options) as gateway:
            yield gateway, found.pop
        run = latest_run(gateway.state)
        if run is None:
            raise ServingError("the gateway left no records, so nothing can be said of it.")
        found.append((read_live_run(run), read_head(run).started_unix))


def _run(gateway: Gateway, calls: Sequence[Call], arrivals: Open | Closed, seconds: float) -> tuple[float, LoadResult]:
    """CPU time of the gateway, and what came of the load."""
    before_s = gateway.cpu_s()
    result = run_load(gateway.url, plan_of(calls, arrivals, seconds))
    return gateway.cpu_s() - before_s, result


def plan_of(calls: Sequence[Call], arrivals: Open | Closed, seconds: float) -> Plan:
    """The load of a rehearsal, as it is sent and as it is simulated."""
    return Plan(
        arrivals=arrivals,
        duration_s=seconds,
        warm_up_s=WARM_UP_S,
        sends_deadline=isinstance(arrivals, Closed),  # users who are patient say so, or most would be refused
        calls=tuple(calls),
        mix="random",
        max_in_flight=MOST_OPEN,
    )


def runs_of(invocations: pl.DataFrame, begin: float, end: float) -> tuple[Runs, ...]:
    """The runs that began in this time; the longest are left out of their mean time."""
    runs = (
        invocations.filter(pl.col("start").is_between(begin, end) & pl.col("end").is_not_null() & ~pl.col("is_cold"))
        .unique("batch")
        .with_columns(took=pl.col("end") - pl.col("start"))
        .group_by("function", "vcpus")
        .agg(
            pl.len().alias("count"),
            pl.col("batch_size").mean(),
            pl.col("took").filter(pl.col("took") <= pl.col("took").quantile(_TRIMMED)).mean().alias("mean"),
            pl.col("took"),
        )
    )
    return tuple(
        Runs(function, vcpus, count, size, mean_s, _beyond_s(took))
        for function, vcpus, count, size, mean_s, took in runs.sort("function", "vcpus").rows()
    )


def _beyond_s(took_s: Sequence[float]) -> tuple[float, ...]:
    times = np.quantile(took_s, _QUANTILES) - np.median(took_s)
    return tuple(np.maximum(0.0, times).tolist())


def _seen(
    tables: Sequence[pl.DataFrame], manifest: Manifest
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    """How often each arm was taken, and how many items maps had, in requests that were answered.

    Each table is of a gateway of its own, which numbers its requests from the start.
    """
    arms: dict[str, dict[str, float]] = {}
    items: dict[str, dict[str, int]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    requests: Counter[tuple[str, str]] = Counter()
    for table in tables:
        done = table.filter(pl.col("end").is_not_null()).group_by("workflow", "stage")
        for workflow, stage, count, asked in done.agg(
            pl.len(), pl.col("request").n_unique().alias("asked")
        ).iter_rows():
            counts[workflow, stage] += count
            requests[workflow, stage] += asked
    for spec in manifest.workflows:
        for stage in spec.stages:
            before = counts[spec.name, stage.after[0]] if stage.after else 0
            if stage.when is not None and before:
                arms.setdefault(spec.name, {})[stage.name] = min(1.0, counts[spec.name, stage.name] / before)
            if stage.map is not None and requests[spec.name, stage.name]:
                mean = counts[spec.name, stage.name] / requests[spec.name, stage.name]
                items.setdefault(spec.name, {})[stage.name] = max(1, round(mean))
    return arms, items
