"""What a round trip to an instance costs over each kind of link, and what a value of another node costs to read.

`python benchmarks/live/bench_links.py [--calls 3000] [--size-mb 16]`

The gateway's end runs on uvloop, as in `fairlead serve`; the agent runs in the same process, the instance in its own.
The function gives its input of 1 kB back.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import getloadavg
from pathlib import Path
from statistics import median
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "live"))

import uvloop
from agent_world import make_certificates, world

from fairlead.engine.live.contracts import Inventory
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.providers.local import LocalProvider
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import encode
from fairlead.model import Node
from fairlead.testing.backends import Heard, Opened, Stored, write_app

KINDS = ("pair", "unix", "tcp", "tls")


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Opened]:
    """A back end whose instances are reached over this kind of link."""
    heard = Heard()
    if kind == "pair":
        store = Store.make(folder)
        local = LocalProvider(store)
        await local.open(heard)
        nodes = (Node(name="one", kind="machine", vcpus=4),)
        local.declare(nodes)
        try:
            yield Opened(local, LocalValues(store), write_app(folder), heard, Inventory(nodes))
        finally:
            await local.close()
            store.close()
        return
    pems = make_certificates(folder) if kind == "tls" else None
    async with world(folder, kind, pems) as made:
        made.agent("one")
        provider = made.provider()
        inventory = await provider.open(heard)
        try:
            yield Opened(provider, provider.values, write_app(folder), heard, inventory)
        finally:
            await provider.close()


async def measure(kind: str, calls: int, size_mb: float) -> tuple[float, float, float, float]:
    """Milliseconds of a round trip, median and least; calls per second with 32 in flight; MB/s of a value."""
    with tempfile.TemporaryDirectory(prefix="fairlead-links-") as folder:
        async with opened(kind, Path(folder)) as b:
            key = await b.start("echo")
            given = "x" * 1000
            took = []
            for batch in range(calls):
                began = perf_counter()
                b.run(key, batch, "echo", given)
                await b.answer(key, batch)
                took.append(perf_counter() - began)
            began = perf_counter()
            for batch in range(calls, 2 * calls):
                b.run(key, batch, "echo", given)
                if batch >= calls + 32:
                    await b.answer(key, batch - 32)
            await b.answer(key, 2 * calls - 1)
            rate = calls / (perf_counter() - began)
            value = b.values.put(encode(bytes(int(size_mb * 1e6))))
            speeds = []
            for batch in range(2 * calls, 2 * calls + 5):
                began = perf_counter()
                b.run(key, batch, "echo", Stored(value))  # the instance reads it, and makes another
                result = (await b.answer(key, batch)).results[0]
                b.values.release(result.value)
                speeds.append(size_mb / (perf_counter() - began))
            return 1000 * median(took[100:]), 1000 * min(took), rate, median(speeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--size-mb", type=float, default=16.0)
    options = parser.parse_args()
    print(f"load average {getloadavg()[0]:.1f}")
    print("| link | p50 (ms) | least (ms) | calls/s, 32 in flight | value in and out (MB/s) |")
    print("|---|---|---|---|---|")
    for kind in KINDS:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            p50, least, rate, speed = runner.run(measure(kind, options.calls, options.size_mb))
        print(f"| {kind} | {p50:.3f} | {least:.3f} | {rate:,.0f} | {speed:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
