"""Some seventy bad graphs, one by one, on an executor that serves another tenant meanwhile: what each of them does.

    python benchmarks/kaas_bad_graphs.py [--device opencl:0]

The first kind breaks the format. The parser must name the field; where the graph can be read at all, it is also sent
past the parser, and the executor's process must refuse it. The second kind has the right form, and fails on the
device. Around each, another tenant sends requests, and each must be answered right. Printed for each bad graph: what is
said, whether the process is the same, and how long the other tenant waited for its next answer. Fails if one of them is
not refused, or if that wait was longer than 2 s from when the bad graph was answered.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

os.environ.setdefault("POCL_DEVICES", "basic basic")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kaas"))

import msgspec
import numpy as np
import uvloop
from bad_graphs import CHANGES, REMOVED, spoiled
from msgspec.structs import replace

from fairlead.kaas import Executor, ExecutorSettings, GraphError, KernelError, Request, Values, parse_graph
from fairlead.kaas.graph import VERSION, Argument, Buffer, Graph, Kernel, Literal, Source
from fairlead.kaas.graphs import gemm_chain, scaling

LIMIT_S = 2.0
CAP = 1 << 20


@dataclass
class Row:
    """What became of a bad graph."""

    what: str
    said: str = "NOTHING"
    is_refused: bool = False
    process: str = "-"
    next_s: float = 0.0


def one_kernel(name: str, opencl: str, reference: str | None = "scale", **changes: object) -> Graph:
    """A graph that multiplies 64 numbers, but for what is changed."""
    literals = (Literal(type="int32", value=64), Literal(type="float32", value=2.0))
    arguments = (Argument(buffer="x", access="read"), Argument(buffer="y", access="write"))
    kernel = Kernel(
        name=name, source="k", reference=reference, grid=(1,), block=(64,), literals=literals, arguments=arguments
    )
    buffers = (Buffer(name="x", kind="input", shape=(64,)), Buffer(name="y", kind="output", shape=(64,)))
    return Graph(
        version=VERSION, name=name, sources={"k": Source(opencl=opencl)}, buffers=buffers,
        kernels=(replace(kernel, **changes),),
    )  # fmt: skip


def on_the_device(device: str) -> list[tuple[str, Request]]:
    """Requests whose graphs have the right form."""
    good = scaling()
    code = good.graph.sources["kernels"].opencl or ""
    body = "(int n, float f, __global const float *x, __global float *y) "

    def ask(graph: Graph, limit_s: float = 60.0, **more: object) -> Request:
        inputs = {b.name: np.zeros(b.shape, b.type) for b in graph.buffers if b.is_sent}
        return Request(tenant="bad", graph=graph, limit_s=limit_s, **{"inputs": inputs, **more})

    chain = gemm_chain(16, 1)
    large = replace(good.graph, name="large", buffers=tuple(replace(b, shape=(1 << 20,)) for b in good.graph.buffers))
    both = [
        ("inputs are missing", ask(good.graph, inputs={})),
        ("an input of another size", ask(good.graph, inputs={"x": np.zeros(63, np.float32)})),
        ("an input of another type", ask(good.graph, inputs={"x": np.zeros(64)})),
        ("a key for what is no constant", ask(good.graph, keys={"x": "key"})),
        ("a constant without a value", ask(chain.graph)),
        ("a constant whose value is too short", ask(chain.graph, keys={"w0": "short"})),
        ("larger than the cap", ask(large)),
    ]
    if device == "numpy":
        sizes = (Literal(type="int32", value=4), Literal(type="int32", value=10**7))
        one = (Argument(buffer="y", access="write"),)
        silent = one_kernel("nothing", code, None)
        crooked = one_kernel(
            "scale", code, literals=(Literal(type="int32", value=-5), good.graph.kernels[0].literals[1])
        )
        endless = one_kernel("hold", code, "hold", literals=sizes, arguments=one)
        endless = replace(endless, buffers=endless.buffers[1:])
        return [
            *both,
            ("a kernel without a reference", ask(silent)),
            ("a negative size", ask(crooked)),
            ("a kernel that does not end", ask(endless, 0.5)),
        ]
    wide = (Literal(type="int64", value=64), Literal(type="float32", value=2.0))
    return [
        *both,
        ("source that is cut off", ask(one_kernel("scale", f"__kernel void scale{body}{{"))),
        ("source with an unknown name", ask(one_kernel("scale", f"__kernel void scale{body}{{ y[0] = z; }}"))),
        ("source that is no code", ask(one_kernel("scale", "what is this"))),
        ("no kernel of that name in the source", ask(one_kernel("scales", code))),
        ("another number of parameters", ask(one_kernel("scale", "__kernel void scale(__global float *y) {}"))),
        ("a literal of another size", ask(one_kernel("scale", f"__kernel void scale{body}{{ }}", literals=wide))),
        ("a work group that no device has", ask(one_kernel("scale", code, grid=(1,), block=(1 << 16,)))),
        (
            "a kernel that does not end",
            ask(one_kernel("spin", f"__kernel void spin{body}{{ volatile float v = f; while (v > 0) v += n; }}"), 1.0),
        ),
        (
            "a kernel that ends its process",
            ask(one_kernel("crash", f"__kernel void crash{body}{{ *(volatile __global int *)8 = n; }}")),
        ),
    ]


class Neighbour:
    """Another tenant, whose every answer is checked."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._example = scaling()
        self.answered = 0

    async def ask(self) -> None:
        x = np.random.default_rng(self.answered).standard_normal(64).astype(np.float32)
        request = Request(tenant="good", graph=self._example.graph, inputs={"x": x}, limit_s=60)
        answer = await self._executor.run(request)
        np.testing.assert_array_equal(answer.array("y"), 2 * x)
        self.answered += 1


async def beside(row: Row, executor: Executor, neighbour: Neighbour, request: Request) -> Row:
    """Run a bad request between good ones."""
    process, restarts = executor.process_id, executor.restarts
    before = asyncio.ensure_future(neighbour.ask())
    bad = asyncio.ensure_future(executor.run(request))
    after = [asyncio.ensure_future(neighbour.ask()) for _ in range(3)]
    try:
        await bad
        row.said = "it was answered"
    except (KernelError, ValueError) as error:
        row.said, row.is_refused = f"{type(error).__name__}: {error}", True
    told_at = perf_counter()
    await neighbour.ask()
    row.next_s = perf_counter() - told_at
    await asyncio.gather(before, *after)
    is_same = process == executor.process_id
    row.process = "the same" if is_same else f"restarted {executor.restarts - restarts} times"
    return row


def unchecked(document: dict) -> Request | None:
    """A request with a bad graph that no parser has seen, if it can be made at all."""
    try:
        graph = msgspec.json.decode(json.dumps(document), type=Graph)
        inputs = {b.name: bytes(b.size) for b in graph.buffers if b.is_sent and 0 <= b.size <= CAP}
        return Request(tenant="bad", graph=graph, inputs=inputs, limit_s=60)
    except (msgspec.MsgspecError, ValueError):
        return None


async def main(options: argparse.Namespace) -> int:
    rows = []
    with tempfile.TemporaryDirectory(prefix="fl-bad-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        Values(folder / "values").put("bad", "short", b"abcd")
        settings = ExecutorSettings(
            device=options.device, memory_bytes=CAP, values=folder / "values", cache=folder / "cache", attempts=2
        )
        async with Executor(settings) as executor:
            neighbour = Neighbour(executor)
            await neighbour.ask()  # its code is compiled
            for path, value, where in CHANGES:
                shown = "removed" if value is REMOVED else json.dumps(value)[:24]
                row = Row(f"{path} = {shown}")
                document = spoiled(path, value)
                try:
                    parse_graph(json.dumps(document))
                except GraphError as error:
                    faults = {fault.path: fault.message for fault in error.faults}
                    row.said = f"{where or '(top)'}: {faults.get(where, 'NOT NAMED')}"
                    row.is_refused = where in faults
                request = unchecked(document)
                if request is not None:
                    sent = await beside(Row(row.what), executor, neighbour, request)
                    row.is_refused &= sent.is_refused
                    row.process, row.next_s = sent.process, sent.next_s
                rows.append(row)
            kernel = '{"name":"scale","reference":"scale","grid":[1],"block":[1],"arguments":[]}'
            million = f'{{"version":1,"name":"n","buffers":[],"kernels":[{",".join([kernel] * 10**6)}]}}'
            row = Row("10^6 kernels")
            try:
                parse_graph(million)
            except GraphError as error:
                row.said, row.is_refused = str(error), True
            rows.append(row)
            for what, request in on_the_device(options.device):
                rows.append(await beside(Row(what), executor, neighbour, request))
    for number, row in enumerate(rows, 1):
        took = f"{1e3 * row.next_s:7.1f} ms" if row.process != "-" else " " * 10
        said = " ".join(row.said.split())
        print(f"{number:3}  {row.what[:52]:52}  {row.process:18}  {took}  {said[:110]}")
    wrong = [row.what for row in rows if not row.is_refused or row.next_s > LIMIT_S]
    slowest = max(row.next_s for row in rows)
    print(
        f"{len(rows)} bad graphs, {len(rows) - len(wrong)} refused; the other tenant had {neighbour.answered} right "
        f"answers, the next at most {1e3 * slowest:.0f} ms after a bad graph was answered"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="numpy")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main(parser.parse_args())))
