"""What may run instead of a planned configuration for which no warm container has room: near it, the quicker first."""

from fairlead.model import Configuration
from fairlead.policy.kit.options import Options


def alternatives(options: Options, planned: Configuration) -> list[Configuration]:
    """The same GPU share with fewer vCPUs, and of every other share the configuration that is most like the planned.

    Those that are no slower come first, cheapest first; then the others, quickest first. None has a larger batch, as
    it could not be filled, unless a share has no other.
    """
    promised = dict(zip(options.configurations, zip(options.latency_s, options.cost_usd, strict=True), strict=True))
    fewer = [c for c in promised if _is_thinner(c, planned)]
    shares: dict[float, Configuration] = {}
    for each in sorted(promised, key=lambda c: (c.batch > planned.batch, *_distance(c, planned))):
        if each.vgpus != planned.vgpus:
            shares.setdefault(each.vgpus, each)
    limit_s, _ = promised[planned]

    def rank(configuration: Configuration) -> tuple[bool, float, float]:
        latency_s, cost_usd = promised[configuration]
        is_slower = latency_s > limit_s
        return (is_slower, latency_s, cost_usd) if is_slower else (is_slower, cost_usd, latency_s)

    return sorted([*fewer, *shares.values()], key=rank)


def _is_thinner(one: Configuration, other: Configuration) -> bool:
    return (one.batch, one.vgpus, one.memory_gb) == (other.batch, other.vgpus, other.memory_gb) and (
        one.vcpus < other.vcpus
    )


def _distance(one: Configuration, other: Configuration) -> tuple[float, float, float]:
    return abs(one.batch - other.batch), abs(one.vcpus - other.vcpus), abs(one.memory_gb - other.memory_gb)


def by_share(options: Options) -> list[Configuration]:
    """The smallest configuration of every GPU share."""
    shares: dict[float, Configuration] = {}
    for each in sorted(options.configurations, key=lambda c: (c.batch, c.vcpus)):
        shares.setdefault(each.vgpus, each)
    return list(shares.values())
