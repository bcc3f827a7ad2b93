"""Signals as metric families, for a collector of `/metrics`."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.monitor.sampler import Sampler
from fairlead.monitor.signals import COUNTERS


def families(sampler: Sampler) -> Iterator[Metric]:
    """The mean of the last samples of each node, and the last of each instance; nothing that is not known."""
    yield InfoMetricFamily("fairlead_monitor", "Where signals come from.", value={"provider": sampler.provider.name})
    yield GaugeMetricFamily(
        "fairlead_monitor_overhead_ratio", "CPU time of sampling, of one core.", value=sampler.overhead()
    )
    counter = GaugeMetricFamily(
        "fairlead_node_counter", "One of the seven counters of a node.", labels=("node", "counter")
    )
    signal = GaugeMetricFamily("fairlead_node_signal", "What else is known of a node.", labels=("node", "signal"))
    cpu = CounterMetricFamily("fairlead_instance_cpu_seconds", "CPU time.", labels=("node", "instance"))
    wait = GaugeMetricFamily("fairlead_instance_wait_ratio", "Waiting for a CPU.", labels=("node", "instance"))
    throttled = GaugeMetricFamily("fairlead_instance_throttled_ratio", "Of periods.", labels=("node", "instance"))
    memory = GaugeMetricFamily("fairlead_instance_resident_bytes", "Memory held.", labels=("node", "instance"))
    for place in sampler.places:
        found = sampler.mean(place.name)
        if found is None:
            continue
        for name in COUNTERS:
            value = getattr(found, name)
            if value is not None:
                counter.add_metric((place.name, name), value)
        for name, value in found.extras.items():
            signal.add_metric((place.name, name), value)
        for instance, of in sampler.instances(place.name).items():
            label = (place.name, instance)
            if of.cpu_s is not None:
                cpu.add_metric(label, of.cpu_s)
            for family, value in ((wait, of.wait_share), (throttled, of.throttled), (memory, of.rss_bytes)):
                if value is not None:
                    family.add_metric(label, value)
    yield from (counter, signal, cpu, wait, throttled, memory)


def text(sampler: Sampler) -> str:
    """The families in the text form of `/metrics`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(sampler))
    return generate_latest(registry).decode()


class _Families(Collector):
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def collect(self) -> Iterator[Metric]:
        return families(self._sampler)
