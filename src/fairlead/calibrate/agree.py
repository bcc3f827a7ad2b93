"""A simulation of rehearsed loads, made to agree with them.

The loads that an app was served are simulated, and what its runs, the gateway and refusals take is changed, step by
step, until simulated and real loads take as long.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from fairlead.calibrate.offered import MOST_OPEN, given_of
from fairlead.calibrate.rehearse import (
    ONE_BY_ONE,
    POLICY,
    WARM_UP_S,
    Rehearsal,
    Rehearsed,
    Runs,
    Tell,
    plan_of,
    quietly,
    runs_of,
)
from fairlead.engine.sim.hosted import HostedSimulation
from fairlead.load import Open
from fairlead.policy import make_policy
from fairlead.profile import Host
from fairlead.profile.measured import Served
from fairlead.report import summarise
from fairlead.workload import Scenario

_ROUNDS = 8  # at most
_SETTLED = 0.01  # share of real times that a round changes at most once the fit has settled
_REQUESTS = 2_000  # of a simulated load, after its warm-up: that many tell its means, and more take longer
_STEP = 0.8  # of a difference that one round makes good
_MOST_AT_ONCE = 1.3  # factor by which one round changes what the gateway takes
_MOST_OFF = 0.3  # of a real run: more than this is a jam in the simulation, not the time of a run
_OVER = 0.3  # weight of the highest load in what the gateway takes under load
_FEW = 50  # refusals that say nothing of what one takes
_ALIKE = 1.5  # batches whose mean sizes differ by a larger factor are not compared
_MOST_LESS = 0.9  # of the time that a function takes alone
_APART = 1.3  # batches whose times alone differ by at least this factor tell a fixed time from one that grows
_ENOUGH = 200  # runs beyond which a load has no more weight


def fit_rehearsal(
    scenario: Scenario, rehearsal: Rehearsal, policies: Sequence[str] = (), tell: Tell = quietly
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
    for round_ in range(_ROUNDS - 1):
        tell(round_ / steps, "simulated loads")
        host = found.host(machine)
        simulated = [_simulated(scenario, host, rehearsal, load, load.policy)[0] for load in rehearsal.loads]
        before, found = found, _corrected(scenario, found, rehearsal.loads, simulated)
        if _has_settled(scenario, before, found, rehearsal.loads):
            break
    tell((_ROUNDS - 1) / steps, "simulated loads")
    host = found.host(machine)
    simulated = [_simulated(scenario, host, rehearsal, load, load.policy, is_whole=True)[0] for load in rehearsal.loads]
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
    return decision_line(decided)


def decision_line(decided: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """What a decision takes, and what each waiting invocation adds to it: a straight line through what was timed."""
    if not decided:
        return 0.0, 0.0
    waiting, times = np.array(decided, dtype=np.float64).T
    spread = float(waiting.var())
    each_s = max(0.0, float(np.cov(waiting, times, bias=True)[0, 1]) / spread) if spread else 0.0
    fixed_s = max(0.0, float(times.mean() - each_s * waiting.mean()))
    return fixed_s, each_s


def _simulated(
    scenario: Scenario, host: Host, rehearsal: Rehearsal, load: Rehearsed, policy: str, *, is_whole: bool = False
) -> tuple[Rehearsed, list[tuple[int, float]]]:
    """One load of a rehearsal, simulated, and its decisions: what waited, and how long each really took.

    Unless it is to be the whole load, it is the first part that tells its means. Refusals, and what the gateway used,
    are those of the whole load, in proportion.
    """
    host = msgspec.structs.replace(host.now(load.spin_s), max_sent=MOST_OPEN)
    enough_s = WARM_UP_S + max(1.0, _REQUESTS / load.rate_rps)
    span_s = rehearsal.seconds if is_whole else min(rehearsal.seconds, enough_s)
    here = replace(scenario, arrivals=(), duration_s=span_s, warmup_s=WARM_UP_S, host=host)
    whole = given_of(here, plan_of(rehearsal.calls, Open(rate_rps=load.rate_rps), rehearsal.seconds))
    given = [each for each in whole if each[0] < span_s]
    part = max(1, len(given)) / max(1, len(whole))
    run = HostedSimulation(here, (policy, make_policy(policy, {})), (None, None), 0, None, given)
    recording = run.run(None, {})
    summary = summarise(recording)
    found = Rehearsed(
        policy=policy,
        rate_rps=load.rate_rps,
        gateway_cpu_s=run.gateway_cpu_s / part,
        runs=runs_of(recording.invocations, WARM_UP_S, span_s),
        in_time=summary.slo_attainment or 0.0,
        refused=round((summary.requests - summary.completed) / part),
    )
    return found, run.decided


def _corrected(scenario: Scenario, found: Served, live: Sequence[Rehearsed], simulated: Sequence[Rehearsed]) -> Served:
    """A step towards the real times: of runs by function, of the gateway under load, and of the gateway at leisure."""
    run_s, run_share = {}, {}
    for function in sorted({runs.function for load in live for runs in load.runs}):
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
        run_delay_s=_delays_s(found, live, simulated),
        gateway=found.gateway * scale,
        cold_factor=max(0.0, (1 + found.cold_factor) * leisure - 1),
        decision_s={name: (fixed * scale, each * scale) for name, (fixed, each) in found.decision_s.items()},
    )


def _delays_s(found: Served, live: Sequence[Rehearsed], simulated: Sequence[Rehearsed]) -> dict[str, tuple[float, ...]]:
    """A step towards the real spread of runs at the lightest loads. At others, queues for the cores spread them too."""
    light_rps = min(load.rate_rps for load in live)
    real, made = (
        _mean_beyond_s([load for load, own in zip(loads, live, strict=True) if own.rate_rps == light_rps])
        for loads in (live, simulated)
    )
    delays: dict[str, tuple[float, ...]] = {}
    for function, wanted in real.items():
        before = np.array(found.run_delay_s.get(function, (0.0,) * len(wanted)))
        step = _STEP * (wanted - made[function]) if function in made else 0.0
        delays[function] = tuple(np.maximum.accumulate(np.maximum(0.0, before + step)).tolist())
    return delays


def _mean_beyond_s(loads: Sequence[Rehearsed]) -> dict[str, "np.ndarray[tuple[int], np.dtype[np.float64]]"]:
    """By function: how much longer than usual its runs took, over loads and vCPUs."""
    by_function: dict[str, list[Runs]] = {}
    for runs in (each for load in loads for each in load.runs if each.beyond_s):
        by_function.setdefault(runs.function, []).append(runs)
    return {
        name: np.average([runs.beyond_s for runs in all_], axis=0, weights=[runs.count for runs in all_])
        for name, all_ in by_function.items()
    }


def _has_settled(scenario: Scenario, before: Served, after: Served, live: Sequence[Rehearsed]) -> bool:
    """Whether a step changed neither what the gateway takes nor any run by more than a hundredth."""
    if abs(after.gateway / before.gateway - 1) > _SETTLED:
        return False
    if abs((1 + after.cold_factor) / (1 + before.cold_factor) - 1) > _SETTLED:
        return False
    for runs in (each for real in live for each in real.runs):
        alone_s = _alone_s(scenario, runs)
        if abs(_longer_s(after, runs, alone_s) - _longer_s(before, runs, alone_s)) > _SETTLED * runs.mean_s:
            return False
    return True


def _wanted(
    scenario: Scenario, found: Served, function: str, live: Sequence[Rehearsed], simulated: Sequence[Rehearsed]
) -> Iterator[tuple[float, float, float]]:
    """For each load and number of vCPUs: what a run takes alone, how much longer it ought to take, and a weight."""
    for real, made in zip(live, simulated, strict=True):
        alike = {(runs.function, runs.vcpus): runs for runs in made.runs}
        for runs in real.runs:
            if runs.function != function:
                continue
            alone_s = _alone_s(scenario, runs)
            more_s = _longer_s(found, runs, alone_s)
            other = alike.get((function, runs.vcpus))
            if other is not None and _is_alike(runs.size, other.size):
                more_s += _STEP * max(runs.mean_s - other.mean_s, -_MOST_OFF * runs.mean_s)
            yield alone_s, max(more_s, -_MOST_LESS * alone_s), min(runs.count, _ENOUGH)


def _longer_s(found: Served, runs: Runs, alone_s: float) -> float:
    return found.run_s.get(runs.function, 0.0) + found.run_share.get(runs.function, 0.0) * alone_s


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


def _alone_s(scenario: Scenario, runs: Runs) -> float:
    """What a batch of that size takes by the profile, without the way to its instance."""
    profile, node = scenario.profiles[runs.function], scenario.cluster.nodes[0]
    vcpus = min((each.vcpus for each in profile.configurations), key=lambda each: abs(each - runs.vcpus))
    known = sorted(
        (each.batch, profile.latency_s(each, node.kind)) for each in profile.configurations if each.vcpus == vcpus
    )
    sizes, times = zip(*known, strict=True)
    is_kernel = bool(scenario.functions[runs.function].buffers)
    hop_s = 0.0 if scenario.host is None else scenario.host.way_to_s(node.name, node.kind, is_kernel=is_kernel)
    return max(0.0, float(np.interp(runs.size, sizes, times)) * profile.bias - hop_s)
