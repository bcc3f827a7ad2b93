"""How fast the journal takes requests in, against this disk's own fsync.

One waiter shows the latency of an acknowledgement; many share one fsync per group.
Usage: python benchmarks/bench_journal.py [--folder DIR] [--seconds 3] [--body-bytes 200]
"""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from fairlead.engine.live.journal import Accept, Final, Journal

ENDING = Final(state="completed", result=b"\xa2ok" * 20)


def fsync_s(folder: Path, count: int = 200) -> list[float]:
    """What appending a page and syncing it costs here, without any of our code."""
    taken = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(count):
            began = perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            taken.append(perf_counter() - began)
    return taken


async def accept_s(folder: Path, waiters: int, seconds: float, body: bytes, *, ends: bool) -> tuple[list[float], float]:
    """Latencies of acknowledgements, and operations per commit; with `ends`, each request also ends."""
    journal = Journal(folder / f"{waiters}-{ends}.sqlite", max_open=10_000_000, keep_finished=20_000)
    await journal.open()
    taken: list[float] = []
    until = perf_counter() + seconds

    async def wait() -> None:
        while (began := perf_counter()) < until:
            accepted = await journal.accept(Accept(workflow="bench.main", body=body))
            taken.append(perf_counter() - began)
            if ends:
                journal.finish(accepted.id, ENDING)

    await asyncio.gather(*(wait() for _ in range(waiters)))
    await journal.close(timeout_s=60)
    return taken, journal.stats().mean_group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("."), help="on the disk to be measured (default: here)")
    parser.add_argument("--seconds", type=float, default=3.0, help="per row (default: 3)")
    parser.add_argument("--body-bytes", type=int, default=200, help="size of an input (default: 200)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder, body = Path(name), b"x" * options.body_bytes
        p50, p99 = np.percentile(fsync_s(folder), [50, 99]) * 1e3
        print(f"{'bare fsync of a page':34}{p50:8.2f} ms p50{p99:8.2f} ms p99")
        for waiters, ends in ((1, False), (8, False), (64, False), (64, True), (512, False)):
            taken, group = asyncio.run(accept_s(folder, waiters, options.seconds, body, ends=ends))
            p50, p99 = np.percentile(taken, [50, 99]) * 1e3
            label = f"accept{' and finish' if ends else ''}, {waiters} waiters"
            rate = len(taken) / options.seconds
            print(f"{label:34}{p50:8.2f} ms p50{p99:8.2f} ms p99{rate:9,.0f}/s{group:8.1f} per commit")


if __name__ == "__main__":
    main()
