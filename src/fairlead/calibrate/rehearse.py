"""An app served for a few seconds, so that a simulation of it can be set right.

A function that was measured alone finds its code and data in the caches. Served, it shares them with the gateway, the
load generator and the other functions, and each of its runs takes longer. How much longer depends on the app, so it is
measured: the app is served under the default policy at a light, a high and a too high load. Then the same loads are
simulated, and what runs and gateway take is changed until simulated and real ones take as long.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import time

import msgspec
import numpy as np
import polars as pl

from fairlead.app.manifest import Manifest
from fairlead.calibrate.offered import MOST_OPEN, calls_of, given_of
from fairlead.calibrate.serving import Gateway, ServingError, served
from fairlead.calibrate.speed import SpeedProbe
from fairlead.engine.sim.hosted import HostedSimulation
from fairlead.load import Call, Closed, LoadResult, Open, Plan, run_load
from fairlead.model import Recording
from fairlead.policy import make_policy
from fairlead.profile import Host
from fairlead.profile.measured import Served
from fairlead.report import summarise
from fairlead.report.live import latest_run, read_live_run
from fairlead.runlog import read_head
from fairlead.workload import Scenario

POLICY = "fairlead"
ONE_BY_ONE = "fifo"
"""The policy of the last load: it makes no batches, so that the times of small ones are seen too."""

LOADS = ((POLICY, 0.25), (POLICY, 0.75), (POLICY, 1.5), (ONE_BY_ONE, 0.25))
USERS = 32
_CAPACITY_S, _SECONDS, _WARM_UP_S = 3.0, 5.0, 1.0
_PATIENT_S = 10.0  # a deadline that every request of the closed loop meets
_ROUNDS = 8
_STEP = 0.8  # of a difference that one round makes good
_MOST_AT_ONCE = 1.3  # factor by which one round changes what the gateway takes
_MOST_OFF = 0.3  # of a real run: more than this is a jam in the simulation, not the time of a run
_OVER = 0.3  # weight of the highest load in what the gateway takes under load
_FEW = 50  # refusals that say nothing of what one takes
_ALIKE = 1.5  # batches whose mean sizes differ by a larger factor are not compared
_MOST_LESS = 0.9  # of the time that a function takes alone
_APART = 1.3  # batches whose times alone differ by at least this factor tell a fixed time from one that grows
_ENOUGH = 200  # runs beyond which a load has no more weight
_TRIMMED = 0.99  # the longest runs are left out: one late wake-up must not speak for all

Tell = Callable[[float, str], None]
"""Is told the share that is done, and what is being done."""


def _quietly(share: float, doing: str) -> None:
    """Ignores the progress."""


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """One load, live or simulated, after its warm-up."""

    policy: str = POLICY
    rate_rps: float
    spin_s: float | None = None  # see `SpeedProbe`
    gateway_cpu_s: float
    runs: Mapping[str, int]  # by function
    sizes: Mapping[str, float]  # mean batch size of its runs
    run_s: Mapping[str, float]  # mean elapsed time of its runs
    in_time: float
    refused: int


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of an app that was served."""

    calls: tuple[Call, ...]
    capacity_rps: float
    loads: tuple[Rehearsed, ...]
    arms: Mapping[str, Mapping[str, float]]
    items: Mapping[str, Mapping[str, int]]


def rehearse(app: Path, manifest: Manifest, options: Sequence[str] = (), tell: Tell = _quietly) -> Rehearsal:
    """Serve an app, with these further options of `fairlead serve`, and load it.

    Raises:
        ServingError: It does not start, or no workflow has an example.
    """
    calls = calls_of(manifest)
    tell(0.0, "capacity")
    with _once(app, POLICY, options) as (gateway, _):
        _, result = _run(gateway, calls_of(manifest, deadline_s=_PATIENT_S), Closed(USERS), _CAPACITY_S)
    capacity_rps = result.answered_rps
    if not capacity_rps:
        raise ServingError(f"{manifest.name} answered nothing in {_CAPACITY_S:g} s.")
    loads, tables = [], []
    for place, (policy, load) in enumerate(LOADS, 1):  # each on a gateway of its own, which has learned nothing
        rate_rps = load * capacity_rps
        tell(place / (1 + len(LOADS)), f"{policy} at {load:.0%} of {capacity_rps:.0f}/s")
        with _once(app, policy, options) as (gateway, recorded), SpeedProbe() as probe:
            began = time()
            used_s, result = _run(gateway, calls, Open(rate_rps=rate_rps), _SECONDS)
        recording, zero = recorded()
        done = recording.requests.filter(pl.col("outcome") == "completed").select("request")
        tables.append(recording.invocations.join(done, on="request", how="semi"))
        runs = _runs(recording.invocations, began - zero + _WARM_UP_S, began - zero + _SECONDS)
        loads.append(
            Rehearsed(
                policy=policy,
                rate_rps=rate_rps,
                spin_s=probe.spin_s,
                gateway_cpu_s=used_s,
                runs={name: count for name, count, _, _ in runs},
                sizes={name: size for name, _, size, _ in runs},
                run_s={name: mean for name, _, _, mean in runs},
                in_time=result.attainment or 0.0,
                refused=sum(result.refused.values()),
            )
        )
    arms, items = _seen(pl.concat(tables), manifest)
    return Rehearsal(calls=calls, capacity_rps=capacity_rps, loads=tuple(loads), arms=arms, items=items)


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
    result = run_load(gateway.url, _plan(calls, arrivals, seconds))
    return gateway.cpu_s() - before_s, result


def _plan(calls: Sequence[Call], arrivals: Open | Closed, seconds: float) -> Plan:
    return Plan(
        arrivals=arrivals,
        duration_s=seconds,
        warm_up_s=_WARM_UP_S,
        sends_deadline=False,
        calls=tuple(calls),
        mix="random",
        max_in_flight=MOST_OPEN,
    )


def _runs(invocations: pl.DataFrame, begin: float, end: float) -> list[tuple[str, int, float, float]]:
    """By function: how many runs began in this time, their mean size, and their mean time without the longest."""
    runs = (
        invocations.filter(pl.col("start").is_between(begin, end) & pl.col("end").is_not_null() & ~pl.col("is_cold"))
        .unique("batch")
        .with_columns(took=pl.col("end") - pl.col("start"))
        .group_by("function")
        .agg(
            pl.len().alias("count"),
            pl.col("batch_size").mean(),
            pl.col("took").filter(pl.col("took") <= pl.col("took").quantile(_TRIMMED)).mean(),
        )
    )
    return [
        (str(name), int(count), float(size), float(mean)) for name, count, size, mean in runs.sort("function").rows()
    ]


def _seen(
    invocations: pl.DataFrame, manifest: Manifest
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    """How often each arm was taken, and how many items maps had, in requests that were answered."""
    arms: dict[str, dict[str, float]] = {}
    items: dict[str, dict[str, int]] = {}
    done = invocations.filter(pl.col("end").is_not_null())
    counts: Counter[tuple[str, str]] = Counter()
    requests: Counter[tuple[str, str]] = Counter()
    for workflow, stage, count, asked in (
        done.group_by("workflow", "stage").agg(count=pl.len(), asked=pl.col("request").n_unique()).iter_rows()
    ):
        counts[workflow, stage] = count
        requests[workflow, stage] = asked
    for spec in manifest.workflows:
        for stage in spec.stages:
            before = counts[spec.name, stage.after[0]] if stage.after else 0
            if stage.when is not None and before:
                arms.setdefault(spec.name, {})[stage.name] = min(1.0, counts[spec.name, stage.name] / before)
            if stage.map is not None and requests[spec.name, stage.name]:
                mean = counts[spec.name, stage.name] / requests[spec.name, stage.name]
                items.setdefault(spec.name, {})[stage.name] = max(1, round(mean))
    return arms, items


def fit_rehearsal(
    scenario: Scenario, rehearsal: Rehearsal, policies: Sequence[str] = (), tell: Tell = _quietly
) -> Served:
    """What makes simulated loads of a scenario with a host take as long as the rehearsed ones.

    Decision times of the other policies are those of their code in a simulation, in proportion to the rehearsed one's.
    """
    machine = scenario.host
    assert machine is not None
    times = {policy: _decision_s(scenario, machine, rehearsal, policy) for policy in (POLICY, ONE_BY_ONE)}
    rates_rps = [load.rate_rps for load in rehearsal.loads]
    found = Served(
        capacity_rps=rehearsal.capacity_rps,
        rates_rps=(min(rates_rps), max(rates_rps)),
        cold_factor=machine.cold_factor,
        refusal_s=machine.refusal_s,
        decision_s=times,
        arms=rehearsal.arms,
        items=rehearsal.items,
    )
    steps = _ROUNDS + len(policies)
    simulated: list[Rehearsed] = []
    for round_ in range(_ROUNDS):
        tell(round_ / steps, "simulated loads")
        host = found.host(machine)
        simulated = [_simulated(scenario, host, rehearsal, load, load.policy)[0] for load in rehearsal.loads]
        if round_ < _ROUNDS - 1:
            found = _corrected(scenario, found, rehearsal.loads, simulated)
    off = tuple(made.in_time - real.in_time for real, made in zip(rehearsal.loads, simulated, strict=True))
    scale = found.decision_s[POLICY][0] / times[POLICY][0] if times[POLICY][0] else 1.0
    decisions = dict(found.decision_s)
    for done, policy in enumerate(policies):
        if policy not in times:
            tell((_ROUNDS + done) / steps, f"decisions of {policy}")
            fixed_s, each_s = _decision_s(scenario, found.host(machine), rehearsal, policy)
            decisions[policy] = (scale * fixed_s, scale * each_s)
    return msgspec.structs.replace(found, decision_s=decisions, off=off)


def _decision_s(scenario: Scenario, host: Host, rehearsal: Rehearsal, policy: str) -> tuple[float, float]:
    """How long a decision of a policy takes, and what each waiting invocation adds: a straight line through all."""
    decided: list[tuple[int, float]] = []
    for load in [load for load in rehearsal.loads if load.policy == POLICY][1:]:
        decided += _simulated(scenario, host, rehearsal, load, policy)[1]
    if not decided:
        return 0.0, 0.0
    waiting, times = np.array(decided, dtype=np.float64).T
    spread = float(waiting.var())
    each_s = max(0.0, float(np.cov(waiting, times, bias=True)[0, 1]) / spread) if spread else 0.0
    fixed_s = max(0.0, float(times.mean() - each_s * waiting.mean()))
    return fixed_s, each_s


def _simulated(
    scenario: Scenario, host: Host, rehearsal: Rehearsal, load: Rehearsed, policy: str
) -> tuple[Rehearsed, list[tuple[int, float]]]:
    """One load of a rehearsal, simulated, and its decisions: what waited, and how long each really took."""
    host = msgspec.structs.replace(host.now(load.spin_s), max_sent=MOST_OPEN)
    here = replace(scenario, arrivals=(), duration_s=_SECONDS, warmup_s=_WARM_UP_S, host=host)
    given = given_of(here, _plan(rehearsal.calls, Open(rate_rps=load.rate_rps), _SECONDS))
    run = HostedSimulation(here, (policy, make_policy(policy, {})), (None, None), 0, None, given)
    recording = run.run(None, {})
    runs = _runs(recording.invocations, _WARM_UP_S, _SECONDS)
    summary = summarise(recording)
    found = Rehearsed(
        policy=policy,
        rate_rps=load.rate_rps,
        gateway_cpu_s=run.gateway_cpu_s,
        runs={name: count for name, count, _, _ in runs},
        sizes={name: size for name, _, size, _ in runs},
        run_s={name: mean for name, _, _, mean in runs},
        in_time=summary.slo_attainment or 0.0,
        refused=summary.requests - summary.completed,
    )
    return found, run.decided


def _corrected(scenario: Scenario, found: Served, live: Sequence[Rehearsed], simulated: Sequence[Rehearsed]) -> Served:
    """A step towards the real times: of runs by function, of the gateway under load, and of the gateway at leisure."""
    run_s, run_share = {}, {}
    for function in sorted({name for load in live for name in load.runs}):
        points = list(_wanted(scenario, found, function, live, simulated))
        if points:
            run_s[function], run_share[function] = _line(points)
    own = [(real, made) for real, made in zip(live, simulated, strict=True) if real.policy == POLICY]
    light, high, over = (real.gateway_cpu_s / made.gateway_cpu_s for real, made in own)
    busy = high ** (1 - _OVER) * over**_OVER
    scale = 1 + _STEP * (min(max(busy, 1 / _MOST_AT_ONCE), _MOST_AT_ONCE) - 1)
    leisure = 1 + _STEP * (min(max(light / busy, 1 / _MOST_AT_ONCE), _MOST_AT_ONCE) - 1)
    refusal_s = found.refusal_s
    real, made = own[-1]
    if real.refused > _FEW:  # what is left over at the highest load is put down to refusals
        refusal_s += _STEP * (real.gateway_cpu_s - made.gateway_cpu_s * busy) / real.refused
    return msgspec.structs.replace(
        found,
        refusal_s=max(0.0, refusal_s),
        run_s=run_s,
        run_share=run_share,
        gateway=found.gateway * scale,
        cold_factor=max(0.0, (1 + found.cold_factor) * leisure - 1),
        decision_s={name: (fixed * scale, each * scale) for name, (fixed, each) in found.decision_s.items()},
    )


def _wanted(
    scenario: Scenario, found: Served, function: str, live: Sequence[Rehearsed], simulated: Sequence[Rehearsed]
) -> Iterator[tuple[float, float, float]]:
    """For each load: what a run of its mean size takes alone, how much longer it ought to take, and a weight."""
    for real, made in zip(live, simulated, strict=True):
        if function not in real.run_s:
            continue
        alone_s = _alone_s(scenario, function, real.sizes[function])
        more_s = found.run_s.get(function, 0.0) + found.run_share.get(function, 0.0) * alone_s
        if function in made.run_s and _is_alike(real.sizes[function], made.sizes[function]):
            off_s = real.run_s[function] - made.run_s[function]
            more_s += _STEP * max(off_s, -_MOST_OFF * real.run_s[function])
        yield alone_s, max(more_s, -_MOST_LESS * alone_s), min(real.runs[function], _ENOUGH)


def _line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """How much longer runs take: a fixed time, not negative, and a share of what they take alone."""
    alone_s, more_s, weights = np.array(points).T
    if alone_s.max() <= _APART * alone_s.min():  # all of one size, or none beyond the way to an instance
        mean_s = float(np.average(more_s, weights=weights))
        return mean_s, 0.0
    share, fixed_s = np.polyfit(alone_s, more_s, 1, w=np.sqrt(weights))
    if fixed_s < 0:
        fixed_s, share = 0.0, np.sum(weights * alone_s * more_s) / np.sum(weights * alone_s**2)
    return float(fixed_s), max(float(share), -_MOST_LESS)


def _is_alike(size: float, other: float) -> bool:
    return max(size, other) <= _ALIKE * min(size, other)


def _alone_s(scenario: Scenario, function: str, size: float) -> float:
    """What a batch takes by the profile, without the way to its instance, in the smallest configuration."""
    profile, node = scenario.profiles[function], scenario.cluster.nodes[0]
    vcpus = min(each.vcpus for each in profile.configurations)
    known = sorted(
        (each.batch, profile.latency_s(each, node.kind)) for each in profile.configurations if each.vcpus == vcpus
    )
    sizes, times = zip(*known, strict=True)
    hop_s = 0.0 if scenario.host is None else scenario.host.way_to_s(node.name, node.kind)
    return max(0.0, float(np.interp(size, sizes, times)) * profile.bias - hop_s)
