"""From loads and what the gateway used in each to the figures of a `Host`."""

from collections.abc import Mapping

import msgspec
import numpy as np

from fairlead.profile import Host

_TURN_PART = 0.5  # of what a turn and a batch take together; sending and ending share the rest
_READ_PART = 0.6  # of what a request and its answer take together


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
