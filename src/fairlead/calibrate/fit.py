"""From loads and what the gateway used in each to the figures of a `Host`."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.profile import Host

WAKE_UPS = 50
"""How many equally likely times stand for all wake-ups."""

_TURN_PART = 0.5  # of what a turn and a batch take together; sending and ending share the rest
_READ_PART = 0.6  # of what a request and its answer take together
_STALLED_S = 0.0005  # a wake-up beyond the usual time by more than this waited for a core


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One load: how much happened, what the gateway and the generator used, and how long its batches took."""

    load: str
    duration_s: float
    requests: int
    turns: int
    batches: int
    gateway_cpu_s: float
    client_cpu_s: float
    runs_s: tuple[float, ...] = ()
    mb: float = 0.0  # of each request's input and answer

    @property
    def cpu_s(self) -> float:
        """Of the gateway, per request."""
        return self.gateway_cpu_s / self.requests


def fit_gateway(samples: Mapping[str, Sample]) -> dict[str, float]:
    """CPU times of the gateway by name of a field, from the loads `single`, `chain`, `slow`, `brisk` and `large`.

    In `single` and `chain` the gateway is never idle, so that the difference between both is that of turns and batches.
    `slow` and `brisk` are the same as `single` with pauses of about 10 and 2 ms.
    """
    single, chain = samples["single"], samples["chain"]
    pairs = [
        (_TURN_PART * each.turns + (1 - _TURN_PART) * each.batches) / each.requests for each in (single, chain)
    ]  # per request: one turn and one batch are a pair
    pair_s = max(0.0, (chain.cpu_s - single.cpu_s) / (pairs[1] - pairs[0]))
    request_s = max(0.2 * single.cpu_s, single.cpu_s - pair_s * pairs[0])
    found = {
        "request_s": _READ_PART * request_s,
        "answer_s": (1 - _READ_PART) * request_s,
        "turn_s": _TURN_PART * pair_s,
        "send_s": (1 - _TURN_PART) * pair_s / 2,
        "end_s": (1 - _TURN_PART) * pair_s / 2,
    }
    return found | _fit_cold(samples, found) | _fit_large(samples, found)


def _fit_cold(samples: Mapping[str, Sample], found: Mapping[str, float]) -> dict[str, float]:
    """How much longer it takes after pauses: two loads give the two figures of 1 - exp(-pause / after)."""
    slower = []
    for name in ("brisk", "slow"):
        sample = samples[name]
        pause_s = sample.duration_s / max(1, sample.turns)
        slower.append((pause_s, max(0.0, sample.gateway_cpu_s / spent_s(sample, found) - 1)))
    (short_s, some), (long_s, most) = slower
    best, best_error = (most, short_s), float("inf")
    for after_s in np.geomspace(short_s / 10, long_s * 3, 60):
        shape = np.array([1 - np.exp(-short_s / after_s), 1 - np.exp(-long_s / after_s)])
        factor = float(shape @ np.array([some, most]) / (shape @ shape))
        error = float(np.abs(factor * shape - np.array([some, most])).sum())
        if error < best_error - 1e-9:
            best, best_error = (factor, float(after_s)), error
    factor, after_s = best
    brisk = samples["brisk"]  # at each request the generator wakes, as it does in most loads
    client_s = brisk.client_cpu_s / brisk.requests / (1 + factor * (1 - np.exp(-slower[0][0] / after_s)))
    return {"cold_factor": factor, "cold_after_s": after_s, "client_s": float(client_s)}


def _fit_large(samples: Mapping[str, Sample], found: Mapping[str, float]) -> dict[str, float]:
    large = samples["large"]
    more_s = large.gateway_cpu_s - spent_s(large, found)
    return {"mb_s": max(0.0, more_s / (large.requests * large.mb))}


def spent_s(sample: Sample, found: Mapping[str, float]) -> float:
    """CPU time that a load takes by these figures, without the policy's decisions and while the code is warm."""
    return (
        sample.requests * (found["request_s"] + found["answer_s"])
        + sample.turns * found["turn_s"]
        + sample.batches * (found["send_s"] + found["end_s"])
    )


def fit_decision_s(sample: Sample, found: Mapping[str, float]) -> float:
    """CPU time of one decision of a policy, beyond that of the policy of the first loads."""
    return max(0.0, (sample.gateway_cpu_s - spent_s(sample, found)) / sample.turns)


def fit_invocation_s(sample: Sample, found: Mapping[str, float], decision_s: float) -> float:
    """CPU time per invocation of a batch, from a load with large batches."""
    rest_s = sample.gateway_cpu_s - spent_s(sample, found) - sample.turns * decision_s
    return max(0.0, rest_s / sample.requests)


def fit_refusal_s(sample: Sample, found: Mapping[str, float], decision_s: float) -> float:
    """CPU time of a refusal, from a load in which every request is refused."""
    rest_s = sample.gateway_cpu_s - sample.requests * found["request_s"] - sample.turns * (found["turn_s"] + decision_s)
    return max(0.0, rest_s / sample.requests)


def fit_wake_s(runs_s: Sequence[float], usual_s: float, hop_s: float) -> tuple[float, ...]:
    """Equally likely times of one wake-up, the least first, from runs that have two: the instance's and the gateway's.

    `usual_s` is how long a run takes without any delay. Of two wake-ups without delay, each takes half of `hop_s`. What
    runs take beyond belongs to one of the two where it is much, and to both alike where it is little.
    """
    late = np.sort(np.maximum(0.0, np.asarray(runs_s) - usual_s))
    is_stalled = late > _STALLED_S
    share = 1 - float(np.sqrt(1 - is_stalled.mean()))  # of single wake-ups
    stalled = round(share * WAKE_UPS)
    usual, much = late[~is_stalled] / 2, late[is_stalled]
    found = [*_means(usual if len(usual) else np.zeros(1), WAKE_UPS - stalled), *_means(much, stalled)]
    return tuple(sorted(value + hop_s / 2 for value in found))


def _means(values: NDArray[np.float64], parts: int) -> list[float]:
    """The means of equal parts of sorted values, so that their mean is that of all."""
    edges = np.linspace(0, len(values), parts + 1)
    whole = np.concatenate([[0.0], np.cumsum(values)])
    sums = np.interp(edges, np.arange(len(values) + 1), whole)
    return [float(value) for value in np.diff(sums) / (len(values) / parts)] if parts else []


def make_host(
    cores: int,
    samples: Mapping[str, Sample],
    policies: Mapping[str, Mapping[str, Sample]],
    reference: str,
    hop_s: float,
) -> Host:
    """The host that these loads speak for.

    Args:
        cores: Of the machine.
        samples: The loads under the reference policy, by name.
        policies: By other policy: its loads `chain`, `many` and `refused`, as far as it was given them.
        reference: The policy of `samples`; its decisions are part of a turn.
        hop_s: See `Host`.
    """
    found = fit_gateway(samples)
    decisions = {reference: 0.0} | {name: fit_decision_s(loads["chain"], found) for name, loads in policies.items()}
    more: dict[str, float] = {"refusal_s": found["answer_s"]}
    for name, loads in policies.items():
        if "many" in loads:
            more["invocation_s"] = fit_invocation_s(loads["many"], found, decisions[name])
        if "refused" in loads:
            more["refusal_s"] = fit_refusal_s(loads["refused"], found, decisions[name])
    most_rps = max(sample.requests / sample.duration_s for sample in samples.values())
    host = Host(cores=cores, decision_s=decisions, hop_s=hop_s, wake_s=(hop_s / 2,), measured_rps=most_rps)
    return msgspec.structs.replace(host, instance_cold_s=_instance_cold_s(samples, found), **found, **more)


def _instance_cold_s(samples: Mapping[str, Sample], found: Mapping[str, float]) -> float:
    """What a run takes longer after a pause, beyond what the gateway itself does."""
    hot_s, cold_s = (float(np.quantile(samples[name].runs_s, 0.1)) for name in ("hop", "slow"))
    gateway_s = found["cold_factor"] * (found["turn_s"] + found["send_s"] + found["end_s"])
    return max(0.0, cold_s - hot_s - gateway_s)


def with_wake_ups(host: Host, light: tuple[Sequence[float], float], full: tuple[Sequence[float], float]) -> Host:
    """The host with the wake-ups that explain the runs of a light load and of one that keeps all cores busy.

    With each come the runs, and how long a usual one takes by a simulation in which no wake-up is delayed.
    """
    return msgspec.structs.replace(
        host, wake_s=fit_wake_s(*light, host.hop_s), wake_busy_s=fit_wake_s(*full, host.hop_s)
    )


def scaled_wake_ups(host: Host, light: float, full: float) -> Host:
    """Returns the host with the delay of every wake-up multiplied by a factor; the minimum of a wake-up stays."""

    def scaled(times: Sequence[float], by: float) -> tuple[float, ...]:
        least = host.hop_s / 2
        return tuple(least + max(0.0, time - least) * by for time in times)

    return msgspec.structs.replace(host, wake_s=scaled(host.wake_s, light), wake_busy_s=scaled(host.wake_busy_s, full))
