"""How many pods of which size a rate of invocations needs, by throughput per resource. Pure functions.

RPS is what a pod can do in a second: its batch over the time that it takes. RPR is RPS per price of what the pod has.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fairlead.model import Configuration, Price
from fairlead.policy.kit.options import Options

_SHORTEST_S = 1e-9  # a function that takes no time would have no end of throughput


@dataclass(frozen=True)
class Size:
    """A configuration as a pod: what it can do in a second, and how much of that per price of its resources."""

    configuration: Configuration
    rps: float
    rpr: float


class Sized(Protocol):
    """What has a throughput and an efficiency: a size, or a pod of it."""

    @property
    def rps(self) -> float:
        """Invocations per second."""
        ...

    @property
    def rpr(self) -> float:
        """Invocations per price of resources."""
        ...


AnySized = TypeVar("AnySized", bound=Sized)


def throughput(configuration: Configuration, latency_s: float) -> float:
    """Invocations per second of full batches that take so long."""
    return configuration.batch / max(latency_s, _SHORTEST_S)


def weight(configuration: Configuration, price: Price) -> float:
    """What a pod of this configuration takes: its price per second or, where nothing has one, vCPUs plus vGPUs."""
    usd_per_s = price.usd_per_s(configuration.vcpus, configuration.vgpus)
    return usd_per_s or configuration.vcpus + configuration.vgpus


def sizes(options: Options, price: Price, limit_s: float) -> list[Size]:
    """The sizes worth having whose runs take no longer than the limit, the smallest throughput first.

    If none is quick enough, the fastest. A size is not worth having if another does as much with less. Where time is
    only bought with resources, as in the space of quota and share, that is never so; with batches it often is, and the
    size with the least throughput above some rate would be no small one.
    """
    times_s = options.latency_s
    within = [i for i, latency_s in enumerate(times_s) if latency_s <= limit_s]
    if not within:
        fastest_s = min(times_s)
        within = [i for i, latency_s in enumerate(times_s) if latency_s == fastest_s]
    found: list[tuple[float, float, int]] = []
    for i in within:
        configuration = options.configurations[i]
        found.append((weight(configuration, price), -throughput(configuration, times_s[i]), i))
    kept: list[Size] = []
    for taken, negative_rps, i in sorted(found):  # the least resources first: each must do more than all before
        if not kept or -negative_rps > kept[-1].rps:
            kept.append(Size(options.configurations[i], -negative_rps, -negative_rps / taken))
    return kept


def most_efficient(available: Sequence[Size]) -> Size:
    """The size with the most throughput per resource."""
    return max(available, key=lambda size: size.rpr)


def needed(gap_rps: float, available: Sequence[Size]) -> list[Size]:
    """What closes a gap: as many of the most efficient as it fills, and for the rest the least that is enough."""
    if gap_rps <= 0:
        return []
    best = most_efficient(available)
    count = int(gap_rps // best.rps)
    rest_rps = gap_rps - count * best.rps
    found = [best] * count
    if rest_rps > 0:
        found.append(min((size for size in available if size.rps >= rest_rps), key=lambda size: size.rps, default=best))
    return found


def superfluous(pods: Iterable[AnySized], rate_rps: float) -> list[AnySized]:
    """What can go, the least efficient first, as long as the others can do the rate; one stays in any case."""
    order = sorted(pods, key=lambda pod: pod.rpr)
    left_rps = sum(pod.rps for pod in order)
    found: list[AnySized] = []
    for pod in order[:-1]:
        left_rps -= pod.rps
        if left_rps < rate_rps:
            break
        found.append(pod)
    return found
