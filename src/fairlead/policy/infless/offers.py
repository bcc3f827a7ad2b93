"""What an instance of each size could do for a function with a latency objective: a range of rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from fairlead.model import Configuration
from fairlead.policy.kit.options import Options
from fairlead.profile import Estimate

_SHORTEST_S = 1e-6  # a rate needs a time above 0
_LEAST_RPS = 1.0  # what an instance that takes one at a time should be given at least
_LEAST_VCPUS = 2.0  # what an instance may have whatever its batch; a larger batch may have as many as it holds


@dataclass(frozen=True)
class Offer:
    """A configuration that keeps the objective on some kind of node, as long as it is given no more than `high_rps`.

    With less than `low_rps` a batch would not fill within `timeout_s`, the longest that its first may wait for others.
    """

    configuration: Configuration
    latency_s: float
    low_rps: float
    high_rps: float
    timeout_s: float

    @property
    def size(self) -> tuple[float, float, float]:
        """What its container holds: vCPUs, vGPUs and memory."""
        return self.configuration.vcpus, self.configuration.vgpus, self.configuration.memory_gb


def offers(options: Options, estimate: Estimate, kind: str, slo_s: float, most_vgpus: float) -> tuple[Offer, ...]:
    """What is feasible on one kind of node, the largest batches first.

    A batch waits as long as it runs, at most, so that it may run for half the objective; one that takes one at a time
    need not wait, and may run for all of it. Of sizes, those of the published grid: as many vCPUs as the batch holds
    (two for one), and `most_vgpus`; where that leaves nothing, all. Where nothing keeps the objective, the quickest of
    the smallest batch stands in, for what waits must run.
    """
    times = [(each, max(_SHORTEST_S, estimate.upper_s(each, kind))) for each in options.configurations]
    times = [(each, seconds) for each, seconds in times if seconds < inf]
    within = [(c, s) for c, s in times if c.vcpus <= max(_LEAST_VCPUS, c.batch) and c.vgpus <= most_vgpus]
    for some in (within, times):
        found = [offer(c, s, slo_s) for c, s in some if s <= (slo_s if c.batch == 1 else slo_s / 2)]
        if found:
            return tuple(sorted(found, key=lambda each: -each.configuration.batch))
    if not times:
        return ()
    least = min(c.batch for c, _ in within or times)
    configuration, seconds = min(((c, s) for c, s in within or times if c.batch == least), key=lambda each: each[1])
    return (Offer(configuration, seconds, 0.0, configuration.batch / seconds, 0.0),)


def offer(configuration: Configuration, latency_s: float, slo_s: float) -> Offer:
    """The range of rates of one feasible configuration. Without an objective, a batch waits as long as it runs."""
    batch = configuration.batch
    high_rps = batch / latency_s
    if batch == 1:
        return Offer(configuration, latency_s, min(_LEAST_RPS, high_rps), high_rps, 0.0)
    timeout_s = latency_s if slo_s == inf else slo_s - latency_s
    return Offer(configuration, latency_s, min(high_rps, batch / timeout_s), high_rps, timeout_s)


def smaller(options: Options) -> Mapping[tuple[float, float], Sequence[Configuration]]:
    """By vCPUs and vGPUs, the configurations of a function from the smallest batch on."""
    found: dict[tuple[float, float], list[Configuration]] = {}
    for each in sorted(options.configurations, key=lambda c: c.batch):
        found.setdefault((each.vcpus, each.vgpus), []).append(each)
    return found
