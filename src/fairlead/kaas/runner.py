"""What happens to a request on its device: `load`, then `run`. The two may be called by two threads.

Loading makes room, pins, compiles and uploads. Running launches the kernels in order, waits for the device once, and
downloads the outputs. Whatever happens, the request's memory is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition
from time import perf_counter
from typing import NamedTuple

from fairlead.kaas.devices import Allocation, Device, Program
from fairlead.kaas.devices.base import Bytes
from fairlead.kaas.errors import RequestError
from fairlead.kaas.graph import Graph
from fairlead.kaas.memory import Key, Memory, Plan
from fairlead.kaas.values import Values
from fairlead.kaas.wire import Counts, Report, Resident, Timings

_MOST_RESIDENTS = 1000


@dataclass
class Loaded:
    """A request whose buffers are on the device."""

    graph: Graph
    plan: Plan
    programs: Sequence[Program]
    buffers: dict[str, Allocation]
    own: list[Allocation]
    counts: Counts
    began: float
    compiled_at: float
    ready_at: float


class Finished(NamedTuple):
    """What a request took, and the instants between which it did."""

    timings: Timings
    counts: Counts
    began: float
    ended: float


class Runner:
    """The requests of one device, whose memory has a cap of `memory_bytes`. `evicted` is told what makes room."""

    def __init__(
        self,
        device: Device,
        memory_bytes: int,
        values: Values,
        evicted: Callable[[tuple[Key, ...]], None] = lambda keys: None,
    ) -> None:
        self._device = device
        self._values = values
        self._evicted = evicted
        self._memory = Memory(memory_bytes)
        self._turn = Condition()  # guards the books; told when a request gives its memory back
        self._cached: dict[Key, Allocation] = {}

    def load(self, tenant: str, graph: Graph, keys: dict[str, str], inputs: Bytes) -> Loaded:
        """Bring everything that a request needs onto the device. Waits for requests under way if it must.

        The inputs are not needed any more when it returns.
        """
        if inputs.size != graph.sent_bytes:
            raise RequestError(f"Inputs of {graph.name} have {graph.sent_bytes} bytes; got {inputs.size}.")
        began = perf_counter()
        programs, compiled = self._device.compile(graph)
        compiled_at = perf_counter()
        places = _places(tenant, graph, keys)
        plan = self._plan(graph, places)
        own: list[Allocation] = []
        try:
            loaded_bytes = self._load_constants(plan)
            buffers = self._load_rest(graph, places, inputs, own)
            self._device.settle()
        except BaseException:
            self._release(plan, own, failed=True)
            raise
        counts = _counts(
            plan,
            hits=len(plan.hits) - plan.ahead,
            compiled=compiled,
            loaded_bytes=loaded_bytes,
            input_bytes=inputs.size,
            output_bytes=graph.returned_bytes,
        )
        return Loaded(graph, plan, programs, buffers, own, counts, began, compiled_at, perf_counter())

    def load_ahead(self, tenant: str, graph: Graph, keys: dict[str, str]) -> Finished:
        """Compile a graph and load its constants for a request that comes later, and make room for all that it needs.

        What is there already is no hit yet.
        """
        began = perf_counter()
        _, compiled = self._device.compile(graph)
        compiled_at = perf_counter()
        plan = self._plan(graph, _places(tenant, graph, keys), is_load=True)
        try:
            loaded_bytes = self._load_constants(plan)
            self._device.settle()
        except BaseException:
            self._release(plan, [], failed=True)
            raise
        self._release(plan, [])
        counts = _counts(plan, hits=0, compiled=compiled, loaded_bytes=loaded_bytes)
        ended = perf_counter()
        timings = Timings(compile_s=compiled_at - began, load_s=ended - compiled_at)
        return Finished(timings, counts, began, ended)

    def run(self, loaded: Loaded, outputs: Bytes, begin: Callable[[float], None]) -> Finished:
        """Launch the kernels, and fetch the outputs. `begin` is told the instant of the first launch."""
        device, graph, buffers = self._device, loaded.graph, loaded.buffers
        try:
            began = perf_counter()
            begin(began)
            launches = [
                device.bind(program, [buffers[argument.buffer] for argument in kernel.arguments])
                for program, kernel in zip(loaded.programs, graph.kernels, strict=True)
            ]
            for _ in range(graph.iterations):
                for launch in launches:
                    device.launch(launch)
            device.finish()
            ran = perf_counter()
            start = 0
            for buffer in graph.buffers:
                if buffer.is_returned:
                    device.download(buffers[buffer.name], outputs[start : start + buffer.size])
                    start += buffer.size
            ended = perf_counter()
        finally:
            self._release(loaded.plan, loaded.own)
        timings = Timings(
            compile_s=loaded.compiled_at - loaded.began,
            load_s=loaded.ready_at - loaded.compiled_at,
            queue_s=began - loaded.ready_at,
            run_s=ran - began,
            download_s=ended - ran,
        )
        return Finished(timings, loaded.counts, loaded.began, ended)

    def forget(self, tenant: str) -> None:
        """Free what a tenant has on the device."""
        with self._turn:
            self._free(self._memory.forget(tenant))

    def report(self, identity: int) -> Report:
        """What lies on the device."""
        with self._turn:
            memory, residents = self._memory, self._memory.residents()
            largest = sorted(residents.items(), key=lambda each: (-each[1], each[0]))[:_MOST_RESIDENTS]
            listed = tuple(Resident(key.tenant, key.key, size) for key, size in largest)
            books = memory.used, memory.pinned, memory.peak, memory.capacity, memory.evictions
        return Report(identity, *books, listed)

    def _plan(self, graph: Graph, places: dict[str, Key], *, is_load: bool = False) -> Plan:
        """Wait for room, and free what had to make it."""
        cached = [places[b.name] for b in graph.buffers if b.is_cached]
        own = [b.size for b in graph.buffers if not b.is_cached]
        with self._turn:
            while (plan := self._memory.plan(cached, own, is_load=is_load)) is None:
                self._turn.wait()
        self._free(plan.evicted)
        if plan.evicted:
            self._evicted(plan.evicted)
        return plan

    def _load_constants(self, plan: Plan) -> int:
        for key in plan.misses:
            data = self._values.read(key.tenant, key.key, key.offset, key.size)
            allocation = self._device.alloc(key.size, is_zeroed=False)
            self._cached[key] = allocation
            self._device.upload(allocation, data)
        return sum(key.size for key in plan.misses)

    def _load_rest(
        self, graph: Graph, places: dict[str, Key], inputs: Bytes, own: list[Allocation]
    ) -> dict[str, Allocation]:
        buffers: dict[str, Allocation] = {}
        start = 0
        for buffer in graph.buffers:
            if buffer.is_cached:
                buffers[buffer.name] = self._cached[places[buffer.name]]
                continue
            data = None
            if buffer.kind == "constant":
                data = self._values.read(*places[buffer.name])
            elif buffer.is_sent:
                data = inputs[start : start + buffer.size]
                start += buffer.size
            allocation = self._device.alloc(buffer.size, is_zeroed=data is None)
            own.append(allocation)
            buffers[buffer.name] = allocation
            if data is not None:
                self._device.upload(allocation, data)
        return buffers

    def _release(self, plan: Plan, own: list[Allocation], *, failed: bool = False) -> None:
        for allocation in own:
            self._device.free(allocation)
        with self._turn:
            self._free(self._memory.release(plan, failed=failed))
            self._turn.notify_all()

    def _free(self, keys: tuple[Key, ...]) -> None:
        for key in keys:
            allocation = self._cached.pop(key, None)
            if allocation is not None:  # one whose load failed may never have been allocated
                self._device.free(allocation)


def _places(tenant: str, graph: Graph, keys: dict[str, str]) -> dict[str, Key]:
    """Where the value of each constant is. RequestError for keys of something else."""
    constants = {b.name: b for b in graph.buffers if b.kind == "constant"}
    wrong = sorted(keys.keys() - constants.keys())
    if wrong:
        raise RequestError(f"keys must name constants of {graph.name}; got {', '.join(wrong)[:200]}.")
    return {name: Key(tenant, keys.get(name, graph.key_of(b)), b.offset, b.size) for name, b in constants.items()}


def _counts(
    plan: Plan, *, hits: int, compiled: int, loaded_bytes: int, input_bytes: int = 0, output_bytes: int = 0
) -> Counts:
    return Counts(
        hits=hits,
        compulsory_misses=len(plan.misses) - plan.capacity_misses,
        capacity_misses=plan.capacity_misses,
        evictions=len(plan.evicted),
        compiled=compiled,
        loaded_bytes=loaded_bytes,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
    )
