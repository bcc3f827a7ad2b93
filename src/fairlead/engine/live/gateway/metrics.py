"""`/metrics`: what the gateway counted and how the runtime stands, in Prometheus's text form.

Nothing is kept here between two scrapes but the event loop's lag: the families are made from the tallies, the status
and the journal's own counts when they are asked for, so counting costs the requests next to nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import perf_counter

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from fairlead.engine.live.callbacks import CourierStats
from fairlead.engine.live.gateway.connections import Census
from fairlead.engine.live.gateway.intake import Intake
from fairlead.engine.live.gateway.runner import Runner
from fairlead.engine.live.gateway.tallies import Tallies
from fairlead.engine.live.gateway.version import VERSION
from fairlead.engine.live.journal import JournalStats
from fairlead.engine.live.kernels.status import DeviceStatus
from fairlead.engine.live.status import AppStatus, Status
from fairlead.monitor import COUNTERS

_TICK_S = 0.25
# Their series exist from the start, so that a rate can be computed over the first answer too.
_STATUSES = frozenset(
    {200, 201, 202, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 500, 502, 503, 504, 507}
)


class Lag:
    """How late the event loop is: a tick that comes late says how long something held the thread."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self._worst_s = 0.0

    async def watch(self) -> None:
        """Measure, until cancelled."""
        while True:
            due = perf_counter() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self.last_s = max(0.0, perf_counter() - due)
            self._worst_s = max(self._worst_s, self.last_s)

    def take_worst_s(self) -> float:
        """The worst since the last call."""
        worst_s, self._worst_s = self._worst_s, self.last_s
        return worst_s


class Meter:
    """Gives the text."""

    def __init__(
        self,
        intake: Intake,
        runner: Runner,
        census: Census,
        connections: Callable[[], int],
        couriers: Callable[[], CourierStats],
    ) -> None:
        self.lag = Lag()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(intake, runner, census, connections, couriers, self.lag))
        ProcessCollector(registry=self._registry)  # memory, descriptors, CPU time

    def text(self) -> bytes:
        """All metrics now."""
        return generate_latest(self._registry)


class _Families(Collector):
    def __init__(
        self,
        intake: Intake,
        runner: Runner,
        census: Census,
        connections: Callable[[], int],
        couriers: Callable[[], CourierStats],
        lag: Lag,
    ) -> None:
        self._intake = intake
        self._runner = runner
        self._census = census
        self._connections = connections
        self._couriers = couriers
        self._lag = lag

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily("fairlead_build", "What runs.", value={"version": VERSION})
        yield from _of_requests(self._intake.tallies)
        yield from _of_responses(self._census.statuses)
        yield from _of_status(self._intake.host.status())
        yield from _of_journal(self._runner.journal.stats())
        yield from _of_callbacks(self._couriers())
        yield from self._of_gateway()

    def _of_gateway(self) -> Iterator[Metric]:
        yield _gauge("fairlead_gateway_open_requests", "Synchronous requests that wait.", self._intake.inbox.total)
        yield _gauge("fairlead_gateway_async_running", "Asynchronous requests taken up.", self._runner.running)
        yield _gauge("fairlead_gateway_async_waiting", "Asynchronous requests that wait for it.", self._runner.waiting)
        yield _gauge("fairlead_gateway_connections", "Connections that are open.", self._connections())
        yield _counter("fairlead_gateway_connections_accepted", "Connections made.", self._census.accepted)
        yield _counter("fairlead_gateway_connections_refused", "Connections beyond the limit.", self._census.refused)
        yield _counter(
            "fairlead_gateway_connections_timed_out", "Connections closed for being slow.", self._census.timed_out
        )
        yield _gauge("fairlead_event_loop_lag_seconds", "How late the last tick was.", self._lag.last_s)
        yield _gauge(
            "fairlead_event_loop_lag_max_seconds", "The worst since the last scrape.", self._lag.take_worst_s()
        )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _of_requests(tallies: Tallies) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "fairlead_requests", "Requests that ended, by outcome.", labels=("workflow", "outcome")
    )
    attained = CounterMetricFamily(
        "fairlead_slo_attained", "Requests completed by their deadline.", labels=("workflow",)
    )
    violated = CounterMetricFamily(
        "fairlead_slo_violated",
        "Requests that missed their deadline: late by queueing, cold start or service, or by how else they ended.",
        labels=("workflow", "reason"),
    )
    rejected = CounterMetricFamily(
        "fairlead_rejected", "Requests refused or dropped, by the code of the reason.", labels=("workflow", "reason")
    )
    cost = CounterMetricFamily("fairlead_cost_usd", "Cost of what ended.", labels=("workflow",))
    latency = HistogramMetricFamily(
        "fairlead_request_latency_seconds", "From arrival to answer, of completed requests.", labels=("workflow",)
    )
    for workflow, tally in tallies.by_workflow.items():
        for outcome, number in tally.outcomes.items():
            requests.add_metric((workflow, outcome), number)
        attained.add_metric((workflow,), tally.in_time)
        for reason, number in tally.late.items():
            violated.add_metric((workflow, reason), number)
        for reason, number in tally.refusals.items():
            rejected.add_metric((workflow, reason), number)
        cost.add_metric((workflow,), tally.cost_usd)
        total, buckets = 0, []
        for bound_s, number in zip((*tally.bounds_s, None), tally.buckets, strict=True):
            total += number
            buckets.append(("+Inf" if bound_s is None else repr(float(bound_s)), float(total)))
        latency.add_metric((workflow,), buckets, sum_value=tally.latency_s)
    yield from (requests, attained, violated, rejected, cost, latency)


def _of_responses(statuses: Mapping[int, int]) -> Iterator[Metric]:
    family = CounterMetricFamily("fairlead_http_responses", "HTTP answers, by status.", labels=("status",))
    for status in sorted({*_STATUSES, *statuses}):
        family.add_metric((str(status),), statuses.get(status, 0))
    yield family


def _of_status(status: Status) -> Iterator[Metric]:
    yield _gauge("fairlead_ready", "1 if every app takes requests.", status.is_ready and not status.is_draining)
    yield _gauge("fairlead_uptime_seconds", "Since the gateway started.", status.uptime_s)
    yield from _of_workflows(status.apps)
    yield from _of_functions(status.apps)
    yield from _of_caches(status.apps)
    yield from _of_nodes(status.apps)
    yield from _of_gpus(status.apps)
    yield from _of_devices(status.devices)


def _of_nodes(apps: tuple[AppStatus, ...]) -> Iterator[Metric]:
    labels = ("app", "node")
    load = GaugeMetricFamily("fairlead_node_load_ratio", "Share of a node's vCPUs in use.", labels=labels)
    pressure = GaugeMetricFamily("fairlead_node_pressure_ratio", "Share of a node that others take.", labels=labels)
    counter = GaugeMetricFamily(
        "fairlead_node_counter", "One of the seven counters of a node.", labels=(*labels, "counter")
    )
    signal = GaugeMetricFamily("fairlead_node_signal", "What else is known of a node.", labels=(*labels, "signal"))
    overhead = GaugeMetricFamily(
        "fairlead_monitor_overhead_ratio", "CPU time of sampling, of one core.", labels=("app", "provider")
    )
    for app in apps:
        for node in app.nodes:
            label = (app.name, node.name)
            load.add_metric(label, node.load)
            _add(pressure, label, node.pressure)
            for name, value in node.signals.items():
                (counter if name in COUNTERS else signal).add_metric((*label, name), value)
        if app.monitor is not None:
            overhead.add_metric((app.name, app.monitor.provider), app.monitor.overhead)
    yield from (load, pressure, counter, signal, overhead)


def _of_gpus(apps: tuple[AppStatus, ...]) -> Iterator[Metric]:
    of_node, of_instance = ("app", "node", "device"), ("app", "function", "instance", "node", "device")
    offered = GaugeMetricFamily("fairlead_gpu_vgpus", "vGPUs of a GPU; 0 if it is lost.", labels=of_node)
    used = GaugeMetricFamily("fairlead_gpu_held_vgpus", "vGPUs of a GPU that the app's instances hold.", labels=of_node)
    share = GaugeMetricFamily("fairlead_instance_vgpus", "vGPUs of an instance.", labels=of_instance)
    memory = GaugeMetricFamily(
        "fairlead_instance_gpu_memory_bytes", "Device memory that an instance has.", labels=of_instance
    )
    busy = GaugeMetricFamily(
        "fairlead_instance_gpu_utilisation_ratio", "Share of a GPU's multiprocessors.", labels=of_instance
    )
    for app in apps:
        for node in app.nodes:
            for number, device in enumerate(node.accelerators):
                offered.add_metric((app.name, node.name, str(number)), device.vgpus)
                used.add_metric((app.name, node.name, str(number)), device.used_vgpus)
        for function in app.functions:
            for gpu in function.gpus:
                label = (app.name, function.name, str(gpu.instance), gpu.node, str(gpu.device))
                share.add_metric(label, gpu.vgpus)
                _add(memory, label, gpu.memory_bytes)
                _add(busy, label, gpu.utilisation)
    yield from (offered, used, share, memory, busy)


def _of_devices(devices: tuple[DeviceStatus, ...]) -> Iterator[Metric]:
    labels = ("node", "device")
    up = GaugeMetricFamily("fairlead_device_ready", "1 if the executor of a device runs kernels.", labels=labels)
    used = GaugeMetricFamily("fairlead_device_memory_used_bytes", "Memory that buffers take.", labels=labels)
    whole = GaugeMetricFamily("fairlead_device_memory_bytes", "Memory that buffers may take.", labels=labels)
    residents = GaugeMetricFamily("fairlead_device_resident_buffers", "Constants on the device.", labels=labels)
    waiting = GaugeMetricFamily("fairlead_device_waiting", "Runs at the executor.", labels=labels)
    hits = CounterMetricFamily("fairlead_device_hits", "Constants that were there when needed.", labels=labels)
    misses = CounterMetricFamily("fairlead_device_misses", "Constants that were loaded.", labels=(*labels, "kind"))
    evictions = CounterMetricFamily("fairlead_device_evictions", "Constants that made room.", labels=labels)
    moved = CounterMetricFamily("fairlead_device_moved_bytes", "Copied to or from it.", labels=(*labels, "what"))
    runs = CounterMetricFamily("fairlead_device_runs", "Runs of kernels.", labels=labels)
    restarts = CounterMetricFamily("fairlead_device_restarts", "Of its executor.", labels=labels)
    busy = CounterMetricFamily("fairlead_device_seconds", "Time that kernels ran, by app.", labels=(*labels, "app"))
    for one in devices:
        label = (one.node, one.device)
        up.add_metric(label, one.is_ready)
        used.add_metric(label, one.used_bytes)
        _add(whole, label, one.memory_bytes)
        residents.add_metric(label, len(one.residents))
        waiting.add_metric(label, one.waiting)
        hits.add_metric(label, one.hits)
        misses.add_metric((*label, "compulsory"), one.compulsory_misses)
        misses.add_metric((*label, "capacity"), one.capacity_misses)
        evictions.add_metric(label, one.evictions)
        for what, size in (("loaded", one.loaded_bytes), ("input", one.input_bytes), ("output", one.output_bytes)):
            moved.add_metric((*label, what), size)
        runs.add_metric(label, one.runs)
        restarts.add_metric(label, one.restarts)
        for app, seconds in one.device_s.items():
            busy.add_metric((*label, app), seconds)
    if devices:
        yield from (up, used, whole, residents, waiting, hits, misses, evictions, moved, runs, restarts, busy)


def _of_workflows(apps: tuple[AppStatus, ...]) -> Iterator[Metric]:
    open_ = GaugeMetricFamily("fairlead_open_requests", "Requests that have not ended.", labels=("workflow",))
    objective = GaugeMetricFamily("fairlead_slo_seconds", "The objective.", labels=("workflow",))
    attainment = GaugeMetricFamily(
        "fairlead_recent_attainment_ratio", "Share in time, over the last ten seconds.", labels=("workflow",)
    )
    goodput = GaugeMetricFamily(
        "fairlead_recent_goodput_per_second", "Answers in time, over the last ten seconds.", labels=("workflow",)
    )
    slack = GaugeMetricFamily("fairlead_least_slack_seconds", "Of what waits.", labels=("workflow",))
    for app in apps:
        for workflow in app.workflows:
            label = (f"{app.name}.{workflow.name}",)
            open_.add_metric(label, workflow.open)
            _add(objective, label, workflow.slo_s)
            _add(attainment, label, workflow.recent_attainment)
            goodput.add_metric(label, workflow.recent_goodput_rps)
            _add(slack, label, workflow.least_slack_s)
    yield from (open_, objective, attainment, goodput, slack)


def _of_functions(apps: tuple[AppStatus, ...]) -> Iterator[Metric]:
    labels = ("app", "function")
    queue = GaugeMetricFamily("fairlead_queue_length", "Invocations that wait.", labels=labels)
    instances = GaugeMetricFamily("fairlead_instances", "Instances by state.", labels=(*labels, "state"))
    batches = CounterMetricFamily("fairlead_batches", "Batches that ran.", labels=labels)
    invocations = CounterMetricFamily("fairlead_invocations", "Invocations that ran.", labels=labels)
    transfer = CounterMetricFamily(
        "fairlead_transfer_seconds", "Time that batches waited for inputs from other nodes.", labels=labels
    )
    size = GaugeMetricFamily(
        "fairlead_recent_batch_size", "Invocations per batch, over the last 64 batches.", labels=labels
    )
    predicted = GaugeMetricFamily("fairlead_predicted_latency_seconds", "Of the last batch.", labels=labels)
    observed = GaugeMetricFamily("fairlead_observed_latency_seconds", "Of the last batch.", labels=labels)
    replicas = GaugeMetricFamily("fairlead_scaler_replicas", "Replicas that its scaler wants.", labels=labels)
    size_of_each = GaugeMetricFamily("fairlead_scaler_replica_vcpus", "vCPUs of each replica.", labels=labels)
    noted = GaugeMetricFamily("fairlead_scaler_note", "What its scaler says besides.", labels=(*labels, "note"))
    held = GaugeMetricFamily("fairlead_held_vcpus", "vCPUs that its instances hold.", labels=labels)
    used = CounterMetricFamily("fairlead_cpu_seconds", "CPU time of its instances.", labels=labels)
    ratio = GaugeMetricFamily("fairlead_observed_to_predicted_ratio", "Of the last batch.", labels=labels)
    for app in apps:
        for function in app.functions:
            label = (app.name, function.name)
            queue.add_metric(label, function.waiting)
            for state in ("starting", "idle", "busy"):
                instances.add_metric((*label, state), getattr(function, state))
            batches.add_metric(label, function.batches)
            invocations.add_metric(label, function.invocations)
            transfer.add_metric(label, function.transfer_s)
            _add(size, label, function.recent_batch_size)
            _add(predicted, label, function.predicted_s)
            _add(observed, label, function.observed_s)
            if function.predicted_s and function.observed_s is not None:
                ratio.add_metric(label, function.observed_s / function.predicted_s)
            _add(replicas, label, function.replicas)
            _add(size_of_each, label, function.replica_vcpus)
            for name, value in function.notes.items():
                noted.add_metric((*label, name), value)
            held.add_metric(label, function.vcpus)
            if function.cpu_s is not None:
                used.add_metric(label, function.cpu_s)
    yield from (queue, instances, batches, invocations, transfer, size, predicted, observed, ratio)
    yield from (replicas, size_of_each, noted, held, used)


def _of_caches(apps: tuple[AppStatus, ...]) -> Iterator[Metric]:
    labels = ("app", "function")
    asked = CounterMetricFamily(
        "fairlead_cache_lookups",
        "Invocations that met a prediction cache: hit, joined (answered after a wait), miss, or skipped (too large).",
        labels=(*labels, "outcome"),
    )
    evictions = CounterMetricFamily("fairlead_cache_evictions", "Answers that made way for others.", labels=labels)
    entries = GaugeMetricFamily("fairlead_cache_entries", "Answers that are kept.", labels=labels)
    size = GaugeMetricFamily("fairlead_cache_bytes", "What they take.", labels=labels)
    for app in apps:
        for function in app.functions:
            if (cache := function.cache) is not None:
                label = (app.name, function.name)
                asked.add_metric((*label, "hit"), cache.hits)
                asked.add_metric((*label, "joined"), cache.joined)
                asked.add_metric((*label, "miss"), cache.misses - cache.joined)
                asked.add_metric((*label, "skipped"), cache.skipped)
                evictions.add_metric(label, cache.evictions)
                entries.add_metric(label, cache.entries)
                size.add_metric(label, cache.bytes)
    yield from (asked, evictions, entries, size)


def _of_journal(stats: JournalStats) -> Iterator[Metric]:
    yield _gauge("fairlead_journal_open", "Accepted requests that have not ended.", stats.open)
    yield _gauge("fairlead_journal_finished", "Ended requests that are kept.", stats.finished)
    yield _gauge("fairlead_journal_unwritten", "Endings that are not on disk yet.", stats.unwritten)
    yield _gauge("fairlead_journal_bytes", "Size of the file and its log.", stats.bytes)
    yield _gauge("fairlead_journal_is_faulty", "1 if nothing can be written now.", stats.fault is not None)
    yield _gauge("fairlead_journal_last_commit_seconds", "How long the last commit took.", stats.last_commit_s)
    yield _counter("fairlead_journal_commits", "Transactions.", stats.commits)
    yield _counter("fairlead_journal_operations", "What they wrote.", stats.operations)
    yield _counter("fairlead_journal_errors", "Transactions that failed.", stats.errors)
    yield _counter("fairlead_journal_pruned", "Ended requests that were forgotten.", stats.pruned)


def _of_callbacks(stats: CourierStats) -> Iterator[Metric]:
    yield _gauge("fairlead_callbacks_waiting", "Callbacks to be made.", stats.waiting)
    family = CounterMetricFamily(
        "fairlead_callbacks", "Callbacks that were made, by how they ended.", labels=("outcome",)
    )
    family.add_metric(("delivered",), stats.delivered)
    family.add_metric(("failed",), stats.failed)
    yield family


def _add(family: GaugeMetricFamily, label: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        family.add_metric(label, value)
