"""Random kernel graphs on one executor whose process is killed again and again, under a cap that forces evictions.

    python benchmarks/kaas_stress.py --device opencl:0 --requests 10000 --kill-seconds 1
    python benchmarks/kaas_stress.py --device opencl:0 --minutes 30 --kill-every 0 --pause 0.04 --warm-up 90000

Every answer is compared with NumPy's. A kill comes after a number of further answers (`--kill-every`), or
every few seconds (`--kill-seconds`), while others are under way; with `--minutes` it goes on for that long. Prints
what happened, and fails if an answer is wrong or lost, or if memory went over the cap.

Whether anything grows is for the reader: memory and open files of both processes, and the files that they leave, are
sampled every few seconds. The samples are cut into ten parts; printed are the mean of the first and of the last, and
the slope through all ten with its 95 % interval. Allocators and tables of an interpreter reach their size after some
90,000 requests (`--warm-up`). What belongs to the executor's process says nothing where that is killed.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from array import array
from contextlib import suppress
from pathlib import Path
from time import monotonic

import numpy as np
from scipy.stats import linregress, t

from fairlead.kaas import DeviceLostError, Executor, ExecutorSettings, Request, Values
from fairlead.kaas.graphs import Example, gemm_chain, jacobi, mlp, scaling
from fairlead.kaas.memory import blocks
from fairlead.kaas.reference import REFERENCE

CAP = 48 << 10  # bytes: not twice the largest of the graphs, so that nearly every request evicts
IN_FLIGHT = 6
PARTS = 10
SAMPLED = (
    "own memory, kB", "own open files", "executor's memory, kB", "executor's open files", "files in /dev/shm",
    "bytes of compiled code",
)  # fmt: skip


def examples(rng: np.random.Generator, count: int) -> list[Example]:
    """Random graphs that fit under the cap. Few sizes of work groups, as the code for each is compiled."""
    made: list[Example] = []
    while len(made) < count:
        n, depth = int(rng.integers(8, 64)), int(rng.integers(1, 4))
        kind = rng.integers(4)
        if kind == 0:
            example = gemm_chain(n, depth)
        elif kind == 1:
            example = mlp((16, *([n] * depth), 10), 4)
        elif kind == 2:
            example = jacobi(n, depth)
        else:
            example = scaling(n * depth * 8, float(n))
        if sum(blocks(buffer.size) for buffer in example.graph.buffers) <= CAP:
            made.append(example)
    return made


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
        self.rng = np.random.default_rng(options.seed)
        self.made = examples(self.rng, options.graphs)
        for example in self.made:
            for tenant in ("one", "two"):
                for key, value in example.values().items():
                    values.put(tenant, key, value)
        self.begun = self.answered = self.wrong = self.lost = self.kills = 0
        self.peak = 0
        self.samples = array("d")  # so that what is sampled grows but little
        self.folder = Path(executor.settings.cache)
        self.until: float | None = None

    def goes_on(self) -> bool:
        if not self.options.minutes:
            return self.begun < self.options.requests
        if self.until is None and self.answered >= self.options.warm_up:
            self.until = monotonic() + 60 * self.options.minutes
        return self.until is None or monotonic() < self.until

    async def client(self) -> None:
        while self.goes_on():
            if self.options.pause:
                await asyncio.sleep(self.options.pause)
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
            every = 0 if self.options.kill_seconds else self.options.kill_every
            if every and self.answered % every == 0:
                await self.kill()

    async def killer(self) -> None:
        while True:
            await asyncio.sleep(self.options.kill_seconds)
            await self.kill()

    async def watcher(self) -> None:
        while True:
            process = self.executor.process_id
            is_warm = self.answered >= self.options.warm_up
            if is_warm and process is not None and self.executor.ready is not None:
                with suppress(OSError):
                    own, its = _sizes(os.getpid()), _sizes(process)
                    shared = sum(1 for _ in os.scandir("/dev/shm"))
                    cached = sum(entry.stat().st_size for entry in self.folder.rglob("*") if entry.is_file())
                    self.samples.extend((monotonic(), *own, *its, shared, cached))
            await asyncio.sleep(self.options.sample)

    async def kill(self) -> None:
        process = self.executor.process_id
        if self.executor.ready is None or process is None:
            return
        try:
            status = await self.executor.status()
            self.peak = max(self.peak, status.peak_bytes)
            os.kill(process, signal.SIGKILL)
        except (DeviceLostError, OSError):
            return  # another kill came first
        self.kills += 1

    def growth(self) -> list[str]:
        """A line for each thing that could grow."""
        samples = np.array(self.samples).reshape(-1, 1 + len(SAMPLED))
        if len(samples) < 2 * PARTS:
            return []
        means = np.array([part.mean(axis=0) for part in np.array_split(samples, PARTS)])
        minutes = means[:, 0] / 60
        lines = []
        for name, values in zip(SAMPLED, means.T[1:], strict=True):
            fit = linregress(minutes, values)
            margin = t.ppf(0.975, PARTS - 2) * fit.stderr
            ends = f"{values[0]:12.1f} to {values[-1]:12.1f}"
            lines.append(f"  {name:24} {ends}   {fit.slope:+9.2f} +- {margin:.2f} per minute")
        return lines


def _sizes(process: int) -> tuple[int, int]:
    """A process's resident memory in kB, and how many files it has open."""
    status = Path(f"/proc/{process}/status").read_text()
    resident = next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")), "0")
    return int(resident), len(os.listdir(f"/proc/{process}/fd"))


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
        f"peak {max(run.peak, status.peak_bytes)} of {CAP} bytes"
    )
    print(*run.growth(), sep="\n")
    is_wrong = run.wrong or run.lost or max(run.peak, status.peak_bytes) > CAP or not status.counts.evictions
    return 1 if is_wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="numpy")
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--kill-every", type=int, default=100, help="requests; 0 for never")
    parser.add_argument("--kill-seconds", type=float, default=0.0, help="between kills; 0 for --kill-every")
    parser.add_argument("--graphs", type=int, default=40, help="how many different ones")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each request of a client")
    parser.add_argument("--warm-up", type=int, default=0, help="answers before the first look, and before the minutes")
    parser.add_argument("--sample", type=float, default=5.0, help="seconds between looks at what could grow")
    parser.add_argument("--folder")
    parser.add_argument("--cache")
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(asyncio.run(stress(parser.parse_args())))
