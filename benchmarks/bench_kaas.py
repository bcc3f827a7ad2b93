"""What an executor adds to a warm kernel graph, against calling pyopencl directly, in the same run.

    python benchmarks/bench_kaas.py [--device opencl:0] [--rounds 20] [--json FILE]

Direct: buffers and programs are made once; a call uploads the input, launches the kernels, waits, and downloads the
output. Executor: the same request over its channel, from an event loop. The two alternate in blocks of 20 calls. Also
prints a cold start (empty compile cache), a cached one (new process, same cache) and a warm one.
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
from fairlead.kaas.devices.opencl import OpenCLDevice
from fairlead.kaas.graphs import SHIPPED, Example

BLOCK = 20


class Direct:
    """A graph on a device of this process, everything made beforehand."""

    def __init__(self, device: OpenCLDevice, example: Example) -> None:
        self._device, self._graph = device, example.graph
        self._inputs = {n: np.ravel(v).view(np.uint8) for n, v in example.inputs.items()}
        self._buffers = {b.name: device.alloc(b.size, is_zeroed=True) for b in example.graph.buffers}
        for name, value in example.constants.items():
            device.upload(self._buffers[name], np.ravel(value).view(np.uint8))
        device.settle()
        self._launches = [
            (device.compile(example.graph, k)[0], k, [self._buffers[a.buffer] for a in k.arguments])
            for k in example.graph.kernels
        ]
        self.outputs = {b.name: np.empty(b.size, np.uint8) for b in example.graph.buffers if b.is_returned}

    def run(self) -> None:
        device = self._device
        for name, data in self._inputs.items():
            device.upload(self._buffers[name], data)
        device.settle()
        for _ in range(self._graph.iterations):
            for program, kernel, buffers in self._launches:
                device.launch(program, kernel, buffers)
        device.finish()
        for name, into in self.outputs.items():
            device.download(self._buffers[name], into)


async def compare(executor: Executor, direct: Direct, request: Request, rounds: int) -> dict[str, float]:
    ours: list[float] = []
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
    for name, value in direct.outputs.items():
        assert bytes(answer.outputs[name]) == value.tobytes(), f"{request.graph.name}: {name} differs"
    return {
        "direct_p50_ms": 1e3 * statistics.median(theirs),
        "executor_p50_ms": 1e3 * statistics.median(ours),
        "executor_p99_ms": 1e3 * sorted(ours)[int(0.99 * len(ours))],
        "added_p50_ms": 1e3 * (statistics.median(ours) - statistics.median(theirs)),
    }


async def bench(options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp())
    values = Values(folder / "values")
    settings = ExecutorSettings(device=options.device, values=folder / "values", cache=folder / "cache")
    device = OpenCLDevice(int(options.device.partition(":")[2] or 0), folder / "direct")
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
                    results[name] |= await compare(executor, Direct(device, example), request, options.rounds)
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
