"""Measuring an app within a time budget: some points of each function's space for real, the rest predicted.

One instance at a time runs, so that functions do not disturb each other. Sizes of an instance are reached by resizing
it, which costs nothing, so only cold starts pay for a start.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from time import perf_counter

import msgspec

from fairlead.app.fusion import unfused_workflow
from fairlead.app.manifest import FunctionSpec, Manifest
from fairlead.engine.live.instances import Instances
from fairlead.engine.live.measuring.bench import Bench, UnmeasurableError
from fairlead.engine.live.measuring.examples import Examples, collect
from fairlead.engine.live.measuring.machine import OthersMeter
from fairlead.engine.live.measuring.samples import StopRule, mean, percentile, pooled_noise
from fairlead.engine.live.values import Result, Value
from fairlead.model import Configuration, Node
from fairlead.profile.host import cpu_name
from fairlead.profile.laws import space
from fairlead.profile.measured import ColdStart, Machine, MeasuredFunction, MeasuredProfiles, Point
from fairlead.profile.predict import complete, next_to_measure

Watch = Callable[[float, str], None]
"""Is told the share of the budget that is used, and what is being measured."""

_POINTS_AHEAD = 6  # a point gets this part of what its function has left: the corners, the middle, and one more
_WARM_UP_RUNS = 2


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure: seconds in all, cold starts per function, and how exact is exact enough."""

    budget_s: float = 30.0
    cold_starts: int = 3
    rule: StopRule = StopRule()
    prediction_tolerance: float = 0.05


QUICK = Effort(budget_s=5.0, cold_starts=1, rule=StopRule(tolerance=0.1, least=3), prediction_tolerance=0.1)
"""A rough look."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; `skipped` says why a function is not in the profiles."""

    profiles: MeasuredProfiles
    skipped: Mapping[str, str]


async def measure(
    manifest: Manifest,
    instances: Instances,
    *,
    effort: Effort = Effort(),
    functions: Collection[str] | None = None,
    limits: str = "",
    watch: Watch = lambda share, doing: None,
    node: Node | None = None,
) -> Measurement:
    """Measure the functions of an app on instances of its own, which are started and stopped here.

    Takes about the budget, and longer where a few runs of a slow function already do. `functions` names those wanted.
    `limits` is how CPU limits are kept, for the record. Without a `node`, it is the fastest, and of those the largest.
    """
    bench = Bench(instances, perf_counter)
    others = OthersMeter()
    instances.claim(bench)
    await instances.open()
    try:
        found, skipped = await _Session(manifest, bench, effort, watch, node).measure(functions)
    finally:
        await instances.close()
    cores = sum(node.vcpus for node in instances.nodes)
    machine = Machine(cpu=cpu_name(), cores=max(1, round(cores)), limits=limits, others_share=others.share())
    profiles = MeasuredProfiles(app=manifest.name, machine=machine, functions=found)
    return Measurement(profiles=profiles, skipped=skipped)


class _Session:
    """One measuring of one app."""

    def __init__(self, manifest: Manifest, bench: Bench, effort: Effort, watch: Watch, node: Node | None) -> None:
        self._manifest = manifest
        self._bench = bench
        self._running = bench.instances
        self._effort = effort
        self._watch = watch
        self._began = perf_counter()
        self._specs = {spec.name: spec for spec in manifest.measurable}
        # What is measured on the fastest node holds elsewhere by the nodes' speeds.
        self._node: Node = node or max(self._running.nodes, key=lambda node: (node.speed, node.vcpus))
        self._instances: dict[str, int] = {}

    async def measure(self, functions: Collection[str] | None) -> tuple[dict[str, MeasuredFunction], dict[str, str]]:
        wanted = [name for name in self._specs if functions is None or name in functions]
        examples = await collect(self._manifest, wanted, self._call)
        found: dict[str, MeasuredFunction] = {}
        skipped: dict[str, str] = {}
        for i, name in enumerate(wanted):
            share_s = self._left_s() / (len(wanted) - i)
            try:
                found[name] = await self._function(self._specs[name], examples, perf_counter() + share_s)
            except UnmeasurableError as error:
                skipped[name] = str(error)
            instance = self._instances.pop(name, None)
            if instance is not None:
                self._running.stop(instance, now=True)
        self._watch(1.0, "done")
        for values in (*examples.outputs.values(), *([v for _, v in pairs] for pairs in examples.inputs.values())):
            for value in values:
                self._running.values.release(value)
        return found, skipped

    async def _call(self, function: str, stage: str, argument: Value) -> Result:
        """One invocation on the function's instance, which is started where it has none."""
        self._tell(f"{function}: taking the example through")
        spec = self._specs[function]
        if function not in self._instances:
            self._instances[function] = await self._start(spec, self._most(spec))
        try:
            (result,) = await self._run(spec, [stage], [argument])
        except UnmeasurableError:  # it may be gone, or hang: the next call gets another
            self._running.stop(self._instances.pop(function), now=True)
            raise
        return result

    async def _function(self, spec: FunctionSpec, examples: Examples, until: float) -> MeasuredFunction:
        if spec.name not in examples.inputs:
            raise UnmeasurableError(examples.faults.get(spec.name) or _no_example(self._manifest, spec.name))
        here = self._here(spec)
        if not here:
            raise UnmeasurableError(f"no configuration of it fits this machine, which has {self._node.vcpus:g} vCPU")
        if spec.name not in self._instances:  # a later call failed
            self._instances[spec.name] = await self._start(spec, self._most(spec))
        cold_start = await self._cold_start(spec, min(until, perf_counter() + (until - perf_counter()) / 3))
        samples: dict[Configuration, list[float]] = {}
        cpu_s: dict[Configuration, list[float]] = {}
        times: dict[Configuration, float] = {}
        while (configuration := next_to_measure(here, times, self._effort.prediction_tolerance)) is not None:
            left_s = until - perf_counter()
            if times and left_s <= 0:
                break
            self._tell(f"{spec.name}: {configuration}")
            samples[configuration], cpu_s[configuration] = await self._point(
                spec, configuration, examples, max(0.0, left_s) / _POINTS_AHEAD
            )
            times[configuration] = mean(samples[configuration])
        return self._summary(spec, samples, cpu_s, cold_start, examples)

    async def _point(
        self, spec: FunctionSpec, configuration: Configuration, examples: Examples, limit_s: float
    ) -> tuple[list[float], list[float]]:
        """Seconds of warm runs on a node of speed 1, until they agree or the time is over; and of their CPU time.

        The latter are none where the instance does not tell.
        """
        self._running.resize(self._instances[spec.name], configuration.vcpus)
        stages, inputs = examples.batch(spec.name, configuration.batch)
        until = perf_counter() + limit_s
        for _ in range(_WARM_UP_RUNS):
            await self._timed(spec, stages, inputs)
            if perf_counter() > until:
                break
        samples: list[float] = []
        used = [self._running.runs_cpu_s(self._instances[spec.name])]
        while not self._effort.rule.is_enough(samples, is_late=perf_counter() > until):
            samples.append(await self._timed(spec, stages, inputs) * self._node.speed)
            used.append(self._running.runs_cpu_s(self._instances[spec.name]))
        known = [each for each in used if each is not None]
        return samples, [after - before for before, after in pairwise(known)] if len(known) == len(used) else []

    async def _cold_start(self, spec: FunctionSpec, until: float) -> ColdStart:
        """As an instance starts that nobody was prepared for: in the least configuration there is."""
        least = min(self._here(spec), key=lambda c: (c.vcpus, c.batch))
        totals: list[float] = []
        parts: list[tuple[float, float]] = []
        while len(totals) < self._effort.cold_starts and (not totals or perf_counter() < until):
            self._tell(f"{spec.name}: cold start")
            instance, seconds = await self._bench.start(
                spec.name,
                self._with_memory(spec, least),
                self._node.name,
                spec.start_limit_s,
                is_kernel=spec.kernel is not None,
            )
            totals.append(seconds * self._node.speed)
            parts.append(self._running.started(instance))
            self._running.stop(instance, now=True)
        load_s, setup_s = (mean([part[i] for part in parts]) * self._node.speed for i in (0, 1))
        return ColdStart(
            mean_s=mean(totals),
            p95_s=percentile(totals, 0.95),
            count=len(totals),
            process_s=max(0.0, mean(totals) - load_s - setup_s),
            load_s=load_s,
            setup_s=setup_s,
        )

    def _summary(
        self,
        spec: FunctionSpec,
        samples: Mapping[Configuration, Sequence[float]],
        cpu_s: Mapping[Configuration, Sequence[float]],
        cold_start: ColdStart,
        examples: Examples,
    ) -> MeasuredFunction:
        if spec.kernel is not None:  # it has one configuration
            declared = self._here(spec)
        else:
            declared = [c for c in space(spec.batch, spec.vcpus, spec.vgpus) if not c.vgpus]
        predicted, predictor = complete(declared, {c: mean(each) for c, each in samples.items()})
        points = [
            _measured(c, samples[c], cpu_s[c])
            if c in samples
            else Point(batch=c.batch, vcpus=c.vcpus, mean_s=predicted[c], is_predicted=True)
            for c in declared
        ]
        peak = self._running.usage(self._instances[spec.name]).peak_bytes or 0
        sizes = [self._running.values.size_bytes(value) for value in examples.outputs[spec.name]]
        return MeasuredFunction(
            points=tuple(points),
            cold_start=cold_start,
            memory_gb=round(peak / 2**30, 4),
            output_mb=round(mean(sizes) / 2**20, 6),
            noise=round(pooled_noise(list(samples.values())), 4),
            cpu_noise=round(pooled_noise(list(cpu_s.values())), 4) if any(cpu_s.values()) else None,
            held_out_error=None if predictor.held_out_error is None else round(predictor.held_out_error, 4),
        )

    async def _start(self, spec: FunctionSpec, configuration: Configuration) -> int:
        is_kernel = spec.kernel is not None
        instance, _ = await self._bench.start(
            spec.name, configuration, self._node.name, spec.start_limit_s, is_kernel=is_kernel
        )
        return instance

    async def _run(self, spec: FunctionSpec, stages: Sequence[str], inputs: Sequence[Value]) -> Sequence[Result]:
        results, self._last_s = await self._bench.run(self._instances[spec.name], stages, inputs, spec.run_limit_s)
        return results

    async def _timed(self, spec: FunctionSpec, stages: Sequence[str], inputs: Sequence[Value]) -> float:
        results = await self._run(spec, stages, inputs)
        for result in results:
            self._running.values.release(result.value)
        await asyncio.sleep(0)  # lets progress and signals in where runs are very short
        return self._last_s

    def _here(self, spec: FunctionSpec) -> list[Configuration]:
        """The part of its space that can be measured here."""
        whole = space(spec.batch, spec.vcpus, spec.vgpus)
        return [c for c in whole if c.vcpus <= self._node.vcpus and (not c.vgpus or spec.kernel is not None)]

    def _most(self, spec: FunctionSpec) -> Configuration:
        here = self._here(spec)
        most = max(here, key=lambda c: (c.vcpus, c.batch)) if here else Configuration(vcpus=self._node.vcpus)
        return self._with_memory(spec, most)

    def _with_memory(self, spec: FunctionSpec, configuration: Configuration) -> Configuration:
        return msgspec.structs.replace(configuration, memory_gb=spec.memory_gb)

    def _left_s(self) -> float:
        return max(0.0, self._effort.budget_s - (perf_counter() - self._began))

    def _tell(self, doing: str) -> None:
        self._watch(min(0.99, (perf_counter() - self._began) / self._effort.budget_s), doing)


def _measured(configuration: Configuration, samples: Sequence[float], cpu_s: Sequence[float]) -> Point:
    return Point(
        batch=configuration.batch,
        vcpus=configuration.vcpus,
        vgpus=configuration.vgpus,
        mean_s=mean(samples),
        p50_s=percentile(samples, 0.5),
        p95_s=percentile(samples, 0.95),
        p99_s=percentile(samples, 0.99),
        cpu_s=mean(cpu_s) if cpu_s else None,
        count=len(samples),
    )


def _no_example(manifest: Manifest, function: str) -> str:
    plain = map(unfused_workflow, manifest.workflows)
    users = [w for w in (*manifest.workflows, *plain) if any(stage.function == function for stage in w.stages)]
    if not users:
        return "no workflow uses it, so there is nothing to call it with"
    without = [workflow.name for workflow in users if workflow.example is None]
    if without:
        return f"workflow {without[0]!r} has no example to call it with; declare it with example=..."
    return "the examples of its workflows do not reach it"
