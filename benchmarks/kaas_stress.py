"""Random kernel graphs on one executor whose process is killed again and again, under a cap that forces evictions.

    python benchmarks/kaas_stress.py --device opencl:0 --requests 10000 --kill-seconds 1
    python benchmarks/kaas_stress.py --device opencl:0 --minutes 30 --kill-seconds 60

Every answer is compared with NumPy's. A kill comes after a number of further answers (`--kill-every`), or
every few seconds (`--kill-seconds`), while others are under way; with `--minutes` it goes on for that long. Prints
what happened, and fails if an answer is wrong or lost, or if memory went over the cap. Whether anything grows is for
the reader: the sizes of the processes just before their kills, and the slope of this process's over time.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path
from time import monotonic

import numpy as np

from fairlead.kaas import DeviceLostError, Executor, ExecutorSettings, Request, Values
from fairlead.kaas.graphs import Example, gemm_chain, jacobi, mlp, scaling
from fairlead.kaas.reference import REFERENCE

CAP = 48 << 10  # bytes: not twice the largest of the graphs, so that nearly every request evicts
IN_FLIGHT = 6


def examples() -> list[Example]:
    """Small graphs of different sizes; few sizes of work groups, as each is compiled."""
    made = [gemm_chain(size=size, depth=depth, seed=depth) for size in (16, 32) for depth in (1, 2, 3)]
    made += [mlp(sizes=(16, hidden, 10), rows=4, seed=hidden) for hidden in (32, 64)]
    return [*made, jacobi(n=48), jacobi(n=64, iterations=5), scaling(n=1000), scaling(n=64, factor=3.0)]


def expected(example: Example, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    held = {b.name: np.zeros(b.size // 4, np.float32) for b in example.graph.buffers}
    for name, value in (*example.constants.items(), *inputs.items()):
        held[name][:] = np.ravel(value)
    for _ in range(example.graph.iterations):
        for kernel in example.graph.kernels:
            sizes = [literal.value for literal in kernel.literals]
            REFERENCE[kernel.reference].run(*sizes, *(held[argument.buffer] for argument in kernel.arguments))
    return {b.name: held[b.name].reshape(b.shape) for b in example.graph.buffers if b.is_returned}


class Stress:
    def __init__(self, options: argparse.Namespace, executor: Executor, values: Values) -> None:
        self.options, self.executor = options, executor
        self.made = examples()
        for example in self.made:
            for tenant in ("one", "two"):
                for key, value in example.values().items():
                    values.put(tenant, key, value)
        self.rng = np.random.default_rng(options.seed)
        self.begun = self.answered = self.wrong = self.lost = self.kills = 0
        self.peak, self.sizes, self.own = 0, [], []
        self.until = monotonic() + 60 * options.minutes if options.minutes else None

    def goes_on(self) -> bool:
        return monotonic() < self.until if self.until else self.begun < self.options.requests

    async def client(self) -> None:
        while self.goes_on():
            self.begun += 1
            example = self.made[self.rng.integers(len(self.made))]
            inputs = {n: self.rng.standard_normal(v.shape).astype(np.float32) for n, v in example.inputs.items()}
            tenant = "one" if self.rng.random() < 0.5 else "two"
            request = Request(tenant=tenant, graph=example.graph, inputs=inputs, limit_s=60)
            try:
                answer = await self.executor.run(request)
            except Exception as error:
                self.lost += 1
                print(f"{example.graph.name}: {error!r}")
                continue
            right = expected(example, inputs)
            if not all(np.allclose(answer.array(n), v, rtol=1e-3, atol=1e-4) for n, v in right.items()):
                self.wrong += 1
            self.answered += 1
            if not self.options.kill_seconds and self.answered % self.options.kill_every == 0:
                await self.kill()

    async def killer(self) -> None:
        while True:
            await asyncio.sleep(self.options.kill_seconds)
            await self.kill()

    async def watcher(self) -> None:
        while True:
            self.own.append((monotonic(), _own_kb()))
            await asyncio.sleep(1)

    async def kill(self) -> None:
        process = self.executor.process_id
        if self.executor.ready is None or process is None:
            return
        try:
            status = await self.executor.status()
            self.peak = max(self.peak, status.peak_bytes)
            self.sizes.append(_resident_kb(process))
            os.kill(process, signal.SIGKILL)
        except (DeviceLostError, OSError):
            return  # another kill came first
        self.kills += 1

    def slope_kb_per_minute(self) -> float:
        """Of this process's size, over the last three quarters of the run."""
        times, sizes = np.array(self.own[len(self.own) // 4 :]).T
        return 60 * float(np.polyfit(times, sizes, 1)[0]) if len(times) > 2 else 0.0


def _resident_kb(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


async def stress(options: argparse.Namespace) -> int:
    folder = Path(options.folder or tempfile.mkdtemp())
    cache = Path(options.cache) if options.cache else folder / "cache"
    values = Values(folder / "values")
    settings = ExecutorSettings(
        device=options.device, memory_bytes=CAP, values=folder / "values", cache=cache, attempts=10,
        environment={"POCL_DEVICES": os.environ.get("POCL_DEVICES", "basic basic")},
    )  # fmt: skip
    async with Executor(settings) as executor:
        run = Stress(options, executor, values)
        for example in run.made:  # compiled before the kills begin
            await executor.run(Request(tenant="one", graph=example.graph, inputs=example.inputs, limit_s=120))
        began = monotonic()
        beside = [asyncio.create_task(run.watcher())]
        if options.kill_seconds:
            beside.append(asyncio.create_task(run.killer()))
        await asyncio.gather(*(run.client() for _ in range(IN_FLIGHT)))
        elapsed_s = monotonic() - began
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        last = run.made[0]  # its answer shows that the executor runs again
        await executor.run(Request(tenant="one", graph=last.graph, inputs=last.inputs, limit_s=60))
        status = await executor.status()
    print(
        f"{run.answered} answered, {run.wrong} wrong, {run.lost} lost in {elapsed_s:.1f} s; {run.kills} kills, "
        f"{executor.restarts} restarts; {status.counts.evictions} evictions; "
        f"peak {max(run.peak, status.peak_bytes)} of {CAP} bytes; own memory {_own_kb()} kB, "
        f"{run.slope_kb_per_minute():+.0f} kB per minute"
    )
    quarter = len(run.sizes) // 4
    if quarter:
        first, last = np.median(run.sizes[:quarter]), np.median(run.sizes[-quarter:])
        print(f"processes just before their kills: {first:.0f} kB in the first quarter, {last:.0f} kB in the last")
    is_wrong = run.wrong or run.lost or max(run.peak, status.peak_bytes) > CAP or not status.counts.evictions
    return 1 if is_wrong else 0


def _own_kb() -> int:
    return _resident_kb(os.getpid())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="numpy")
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--kill-every", type=int, default=100, help="requests")
    parser.add_argument("--kill-seconds", type=float, default=0.0, help="between kills; 0 for --kill-every")
    parser.add_argument("--folder")
    parser.add_argument("--cache")
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(asyncio.run(stress(parser.parse_args())))
