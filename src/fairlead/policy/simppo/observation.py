"""What an agent sees: its own function, and all the others as one virtual agent.

H. Qiu et al., "SIMPPO", SoCC 2022. The published slides name what a state holds and that the others are shown by
aggregated allocations and averaged performance; which fields, and on which scale, is not public. Ours:

* Own state, `seven`: CPU and memory utilisation, SLO preservation, arrivals per second, vCPUs and memory of all
  replicas, replicas. `six`, as in the code of a successor of SIMPPO: without memory, but with the vCPUs of the others.
* The others, leave-one-out, so that alone all of it is zero: `global4` has the mean of their SLO preservation and CPU
  utilisation, and the sum of their vCPUs and replicas over the cluster's vCPUs; `global4+var` also the variance of each
  over the functions; `meanfield` the mean of their own states; `meanfield+actions` also the mean of their last
  horizontal and vertical step; `concat` every other state one after the other, in `slots` places.
* What is a function's own is shown on a fixed scale, what is the cluster's as a share of it: an agent can be trained
  beside few others and serve beside many.
* `is_workflow_aware` (beyond SIMPPO) adds the function's place in its workflow and how late requests are there, each
  against the whole workflow's objective.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.kit.measuring import Measures

Own = Literal["seven", "six"]
Others = Literal["none", "global4", "global4+var", "meanfield", "meanfield+actions", "concat"]
Floats = NDArray[np.float64]
Observations = NDArray[np.float32]

OWN_FIELDS: dict[Own, tuple[str, ...]] = {
    "seven": (
        "cpu_utilisation",
        "memory_utilisation",
        "slo_preservation",
        "arrival_rate",
        "vcpus",
        "memory",
        "replicas",
    ),
    "six": ("cpu_utilisation", "slo_preservation", "vcpus", "others_vcpus", "replicas", "arrival_rate"),
}
PLACE_FIELDS = ("upstream", "downstream", "lateness")

VCPUS, MEMORY_GB, RATE_RPS = 20.0, 20.0, 10.0
"""What is shown as 1: vCPUs and memory of all replicas of a function, and its arrivals per second."""

_MOST = 10.0  # no field is shown as more


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Which fields an agent sees; with the same encoding every agent sees as many, whatever their number."""

    own: Own = "seven"
    others: Others = "global4"
    is_workflow_aware: bool = False
    slots: int = 0

    def __post_init__(self) -> None:
        if self.own not in get_args(Own):
            raise ValueError(f"own must be one of {', '.join(get_args(Own))}; got {self.own!r}.")
        if self.others not in get_args(Others):
            raise ValueError(f"others must be one of {', '.join(get_args(Others))}; got {self.others!r}.")
        if self.slots < 0 or (self.slots > 0) != (self.others == "concat"):
            raise ValueError(f"slots must be positive with 'concat' and 0 without; got {self.slots}.")

    @property
    def size(self) -> int:
        """How many numbers an agent sees."""
        own = len(OWN_FIELDS[self.own])
        others = {
            "none": 0,
            "global4": 4,
            "global4+var": 8,
            "meanfield": own,
            "meanfield+actions": own + 2,
            "concat": own * self.slots,
        }[self.others]
        return own + others + len(PLACE_FIELDS) * self.is_workflow_aware


@dataclass(frozen=True, kw_only=True)
class Site:
    """What does not change: of each function its objective and its need, and how much the cluster has."""

    slo_s: Floats
    needs_gb: Floats
    upstream: Floats  # share of the workflow's objective that is meant for what comes before
    downstream: Floats
    vcpus: float
    memory_gb: float
    most_replicas: int


@dataclass(frozen=True, kw_only=True)
class State:
    """What a period showed of each function, in the terms of observation and reward; absent ones are zeros."""

    cpu_utilisation: Floats
    memory_utilisation: Floats
    slo_preservation: Floats
    lateness: Floats  # 99th percentile of time since the request came, over what is meant for it up to here
    arrival_rate: Floats
    vcpus: Floats
    memory_gb: Floats
    replicas: Floats
    is_present: NDArray[np.bool_]

    @property
    def on_time(self) -> Floats:
        """SLO preservation against the whole workflow's objective, up to each function's place."""
        return 1.0 / np.maximum(1.0, self.lateness)


def state_of(measures: Measures, site: Site, is_present: NDArray[np.bool_], period_s: float) -> State:
    """What was measured in a period of that length, as rates and shares."""
    vcpus, memory_gb = measures.vcpus, measures.memory_gb
    needed_gb = site.needs_gb * np.where(vcpus > 0, measures.replicas, 0)
    here = is_present.astype(float)
    return State(
        cpu_utilisation=here * measures.utilisation,
        memory_utilisation=here * np.minimum(1.0, needed_gb / np.where(memory_gb > 0, memory_gb, np.inf)),
        slo_preservation=here / np.maximum(1.0, measures.slowest_s / site.slo_s),
        lateness=here * np.minimum(_MOST, measures.lateness),
        arrival_rate=here * measures.arrived / (period_s or np.inf),
        vcpus=here * vcpus,
        memory_gb=here * memory_gb,
        replicas=here * measures.replicas,
        is_present=is_present,
    )


def own_fields(state: State, site: Site, own: Own) -> Floats:
    """The own state of each function, a row each."""
    fields = {
        "cpu_utilisation": state.cpu_utilisation,
        "memory_utilisation": state.memory_utilisation,
        "slo_preservation": state.slo_preservation,
        "arrival_rate": state.arrival_rate / RATE_RPS,
        "vcpus": state.vcpus / VCPUS,
        "memory": state.memory_gb / MEMORY_GB,
        "replicas": state.replicas / site.most_replicas,
        "others_vcpus": state.is_present * (state.vcpus.sum() - state.vcpus) / site.vcpus,
    }
    rows: Floats = np.stack([fields[name] for name in OWN_FIELDS[own]], axis=1)
    return np.minimum(_MOST, rows)


def observe(state: State, site: Site, encoding: Encoding, horizontal: Floats, vertical: Floats) -> Observations:
    """What every agent sees, a row each; `horizontal` and `vertical` are the last steps, -1, 0 or 1.

    Takes time in proportion to the number of functions, but for `concat`, where it is in proportion to its square.
    """
    own = own_fields(state, site, encoding.own)
    parts = [own, *_others(state, own, site, encoding, horizontal, vertical)]
    if encoding.is_workflow_aware:
        here = state.is_present
        parts.append(np.stack([here * site.upstream, here * site.downstream, state.lateness / 2], axis=1))
    seen = np.concatenate(parts, axis=1).astype(np.float32)
    seen[~state.is_present] = 0.0
    return seen


def _others(
    state: State, own: Floats, site: Site, encoding: Encoding, horizontal: Floats, vertical: Floats
) -> list[Floats]:
    here = state.is_present
    match encoding.others:
        case "none":
            return []
        case "global4" | "global4+var":
            shares = np.stack([state.vcpus, state.replicas], axis=1) / site.vcpus
            means = _mean_of_others(np.stack([state.slo_preservation, state.cpu_utilisation], axis=1), here)
            seen = [means, np.minimum(_MOST, shares.sum(axis=0) - shares)]
            if encoding.others == "global4+var":
                each = np.stack([state.slo_preservation, state.cpu_utilisation, *(own_scale(state, site))], axis=1)
                mean = _mean_of_others(each, here)
                seen.append(np.maximum(0.0, _mean_of_others(each**2, here) - mean**2))
            return seen
        case "meanfield":
            return [_mean_of_others(own, here)]
        case "meanfield+actions":
            steps = np.stack([horizontal, vertical], axis=1)
            return [_mean_of_others(own, here), _mean_of_others(steps, here)]
        case "concat":
            return [_each_other(own, here, encoding.slots)]


def own_scale(state: State, site: Site) -> tuple[Floats, Floats]:
    """vCPUs and replicas of each function on their own scales."""
    return state.vcpus / VCPUS, state.replicas / site.most_replicas


def _mean_of_others(values: Floats, is_present: NDArray[np.bool_]) -> Floats:
    """The mean over all present functions but one's own: the total minus one's own. Zero for one alone."""
    values = values * is_present[:, None]
    count = np.maximum(1, is_present.sum() - is_present)[:, None]
    means: Floats = (values.sum(axis=0) - values) / count
    return means


def _each_other(own: Floats, is_present: NDArray[np.bool_], slots: int) -> Floats:
    """The own states of the others, one after the other; empty places are zeros."""
    functions, fields = own.shape
    if functions - 1 > slots:
        raise ValueError(f"slots must be at least the number of other functions, {functions - 1}; got {slots}.")
    shown = own * is_present[:, None]
    others = np.zeros((functions, slots, fields))
    for i in range(functions):
        others[i, : functions - 1] = np.delete(shown, i, axis=0)
    return others.reshape(functions, slots * fields)
