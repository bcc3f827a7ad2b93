"""What an executor adds to a warm kernel graph, against calling pyopencl directly, in the same run.

    python benchmarks/bench_kaas.py [--device opencl:0] [--rounds 20] [--json FILE]

Direct: buffers, programs and arguments are made once; a call copies the input, launches the kernels, and copies the
output, which waits. Executor: the same request over its channel, from an event loop. The two alternate in blocks of 20
calls. Also prints a cold start (empty compile cache), a cached one (new process, same cache), and the parts of a warm
one, whose sum is the whole.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

os.environ.setdefault("POCL_DEVICES", "basic basic")

import numpy as np
import uvloop

from fairlead.kaas import Executor, ExecutorSettings, Request, Values
from fairlead.kaas.devices.base import literal_value
from fairlead.kaas.devices.opencl import OpenCLDevice
from fairlead.kaas.graphs import SHIPPED, Example
from fairlead.kaas.wire import Timings

BLOCK = 20
PARTS = Timings.__struct_fields__


class Direct:
    """A graph on a device of this process, as one would write it with pyopencl: everything is made beforehand.

    Each launch has a kernel object of its own, whose arguments are set once. A call copies, launches, waits and copies.
    """

    def __init__(self, number: int, example: Example, cache: Path) -> None:
        device = OpenCLDevice(number, cache)  # finds the device, and makes old PoCL take new processors
        graph, self._cl, self._queue = example.graph, device._cl, device._runs
        context, flags = device._context, device._cl.mem_flags.READ_WRITE
        program = self._cl.Program(context, graph.sources["kernels"].opencl).build(cache_dir=False)
        buffers = self._buffers = {b.name: self._cl.Buffer(context, flags, b.size) for b in graph.buffers}
        for name, value in example.constants.items():
            self._cl.enqueue_copy(self._queue, buffers[name], value)
        self._iterations = graph.iterations
        self._launches = []
        for kernel in graph.kernels:
            code = self._cl.Kernel(program, kernel.name)
            arguments = [buffers[argument.buffer] for argument in kernel.arguments]
            code.set_args(*map(literal_value, kernel.literals), *arguments)
            size = tuple(g * b for g, b in zip(kernel.grid, kernel.block, strict=True))
            self._launches.append((code, size, kernel.block))
        self._inputs = [(buffers[n], np.ravel(v)) for n, v in example.inputs.items()]
        self.outputs = {b.name: np.empty(b.size, np.uint8) for b in graph.buffers if b.is_returned}
        self._results = [(into, buffers[name]) for name, into in self.outputs.items()]

    def run(self) -> None:
        cl, queue = self._cl, self._queue
        for buffer, data in self._inputs:
            cl.enqueue_copy(queue, buffer, data, is_blocking=False)
        for _ in range(self._iterations):
            for code, size, block in self._launches:
                cl.enqueue_nd_range_kernel(queue, code, size, block)
        for into, buffer in self._results:
            cl.enqueue_copy(queue, into, buffer)


async def compare(executor: Executor, direct: Direct, request: Request, rounds: int) -> dict[str, float]:
    ours: list[float] = []
    parts: list[Timings] = []
    theirs: list[float] = []
    for _ in range(rounds):
        for _ in range(BLOCK):
            began = perf_counter()
            direct.run()
            theirs.append(perf_counter() - began)
        for _ in range(BLOCK):
            began = perf_counter()
            answer = await executor.run(request)
            ours.append(perf_counter() - began)
            parts.append(answer.timings)
    for name, value in direct.outputs.items():
        assert bytes(answer.outputs[name]) == value.tobytes(), f"{request.graph.name}: {name} differs"
    return {
        "direct_p50_ms": 1e3 * statistics.median(theirs),
        "executor_p50_ms": 1e3 * statistics.median(ours),
        "executor_p99_ms": 1e3 * sorted(ours)[int(0.99 * len(ours))],
        "added_p50_ms": 1e3 * (statistics.median(ours) - statistics.median(theirs)),
        **{f"{part[:-2]}_ms": 1e3 * statistics.median(getattr(each, part) for each in parts) for part in PARTS},
    }


async def bench(options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp())
    values = Values(folder / "values")
    settings = ExecutorSettings(device=options.device, values=folder / "values", cache=folder / "cache")
    number = int(options.device.partition(":")[2] or 0)
    results: dict[str, dict[str, float]] = {}
    started: list[dict[str, float]] = []
    for kind in ("cold_ms", "cached_ms"):
        async with Executor(settings) as executor:
            for name, make in SHIPPED.items():
                example = make()
                for key, value in example.values().items():
                    values.put("t", key, value)
                request = Request(tenant="t", graph=example.graph, inputs=example.inputs, limit_s=120)
                began = perf_counter()
                await executor.run(request)
                results.setdefault(name, {})[kind] = 1e3 * (perf_counter() - began)
                if kind == "cached_ms":
                    results[name] |= await compare(
                        executor, Direct(number, example, folder / "direct"), request, options.rounds
                    )
            process = executor.process_id
            began = perf_counter()
            os.kill(process, 9)
            await executor.run(request)
            started.append({"restart_ms": 1e3 * (perf_counter() - began)})
    for name, result in results.items():
        print(f"{name:12}", "  ".join(f"{key} {value:9.3f}" for key, value in result.items()))
    print(f"kill to the next answer: {started[-1]['restart_ms']:.0f} ms")
    if options.json:
        Path(options.json).write_text(json.dumps({"graphs": results, **started[-1]}, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bench(parser.parse_args()))
