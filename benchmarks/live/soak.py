"""An app served at 90 % of its capacity for an hour: do memory, descriptors, threads or latency grow?

`python benchmarks/live/soak.py [--minutes 60] [--load 0.9] [--window 20] [--json FILE]`

Capacity is measured first, by a closed loop of 32 users. Then windows of open-loop load follow one another; between two
of them the processes are looked at, and asynchronous requests with large values go through the journal and the shared
memory. Each series gets a robust line; what grows beyond its tolerance is printed, and the exit code is 1. The number
of instances is shown and not judged: a policy starts more at a busy moment, and they stay for their keep-alive time.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from time import monotonic

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "live"))

from serving import Serving, rss_bytes, serving, wait_for, write_app

from fairlead.load import Closed, Open, Plan, run_load

APP = """
@app.function(batch=range(1, 9))
def work(items):
    time.sleep(0.008 + 0.002 * len(items))
    return items

@app.function
def make(size):
    return bytes(size)

@app.function
def weigh(data):
    return len(data)

app.workflow("work", work, slo="50ms")
app.workflow("large", make >> weigh)
"""
USERS = 32
DEADLINE_S = 0.05
BODY = b'{"input": 1}'
LARGE = 200_000  # bytes: beyond what travels in a channel
ASYNCHRONOUS = 20  # per window
PER_INSTANCE = 3  # descriptors of the gateway: the channel, the process, its output
WARM_UP_SHARE = 0.2  # of the windows: caches fill, pools settle


@dataclass(frozen=True)
class Sample:
    """The processes after a window, and the window itself."""

    at_s: float
    gateway_mb: float
    instance_mb: float  # on average
    instances: int
    descriptors: int  # of the gateway, without those of its instances
    threads: int  # of the gateway
    journal_mb: float
    records_mb: float
    shared_mb: float
    offered: int
    in_time: int
    errors: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Tolerance:
    """How much a series may rise over the whole time: a share of its level, or so much, whichever is more."""

    share: float
    least: float


TOLERANCES: Mapping[str, Tolerance] = {
    "gateway_mb": Tolerance(0.05, 8.0),
    "instance_mb": Tolerance(0.05, 4.0),
    "descriptors": Tolerance(0.0, 3.0),
    "threads": Tolerance(0.0, 1.0),
    "shared_mb": Tolerance(0.0, 1.0),
    "p50_ms": Tolerance(0.3, 3.0),
    "p99_ms": Tolerance(0.5, 15.0),
}


@dataclass(frozen=True)
class Trend:
    """The line through a series: its level, what it rises by from first to last, and how sure that is."""

    name: str
    level: float
    rise: float
    is_rising: bool  # beyond chance
    is_growth: bool  # and beyond tolerance


def trend(name: str, times: Sequence[float], values: Sequence[float], tolerance: Tolerance) -> Trend:
    """The Theil-Sen line: the median of the slopes between any two points, which outliers do not move.

    It rises beyond chance if pairs in rising order outnumber those in falling order by 2.5 standard deviations
    (Mann-Kendall), which fewer than six points never do.
    """
    pairs = [(b - a, y - x) for (a, x), (b, y) in combinations(zip(times, values, strict=True), 2)]
    slope = median(dy / dt for dt, dy in pairs) if pairs else 0.0
    n = len(values)
    surplus = sum((dy > 0) - (dy < 0) for _, dy in pairs)
    spread = (n * (n - 1) * (2 * n + 5) / 18) ** 0.5
    level, rise = median(values), slope * (times[-1] - times[0])
    is_rising = surplus > 2.5 * spread
    return Trend(name, level, rise, is_rising, is_rising and rise > max(tolerance.share * level, tolerance.least))


def trends(samples: Sequence[Sample]) -> list[Trend]:
    """Of every series that must not grow, after the warm-up."""
    kept = samples[int(WARM_UP_SHARE * len(samples)) :]
    times = [sample.at_s for sample in kept]
    return [
        trend(name, times, [getattr(sample, name) for sample in kept], tolerance)
        for name, tolerance in TOLERANCES.items()
    ]


def soak(minutes: float, load: float, window_s: float, policy: str | None) -> tuple[float, list[Sample]]:
    """The capacity, and a sample per window."""
    with tempfile.TemporaryDirectory(prefix="fl-soak-") as folder:
        app = write_app(Path(folder) / "app.py", APP, "soak")
        options = ["--policy", policy] if policy else []
        with serving(app, Path(folder) / "state", *options) as world:
            url = f"http://127.0.0.1:{world.port}/v1/workflows/work"
            calibration_s = min(10.0, max(2.0, minutes * 3))
            closed = Plan(arrivals=Closed(USERS), duration_s=calibration_s, warm_up_s=calibration_s / 4, body=BODY)
            capacity_rps = run_load(url, closed).answered_rps
            print(
                f"capacity {capacity_rps:.0f}/s; soaking at {load * capacity_rps:.0f}/s for {minutes:g} min", flush=True
            )
            gateway, began = world.gateway, monotonic()
            samples: list[Sample] = []
            while monotonic() - began < minutes * 60:
                arrivals = Open(rate_rps=load * capacity_rps, seed=len(samples))
                plan = Plan(arrivals=arrivals, duration_s=window_s, deadline_s=DEADLINE_S, body=BODY)
                result = run_load(url, plan)
                _pass_large_values(world)
                if world.gateway != gateway:
                    raise SystemExit(f"the gateway died:\n{world.err[-3000:]}")
                errors = sum(result.errors.values()) + result.unsent
                times = (result.latency.p50_s or 0.0, result.latency.p99_s or 0.0)
                samples.append(_look(world, monotonic() - began, result.offered, result.in_time, errors, times))
                _show(samples[-1], len(samples) == 1)
            code = world.stop()
            if code:
                raise SystemExit(f"serve ended with {code}:\n{world.err[-3000:]}")
    return capacity_rps, samples


def _pass_large_values(world: Serving) -> None:
    """Through the journal, and through shared memory from stage to stage."""
    ids = [world.send("large", LARGE).json["id"] for _ in range(ASYNCHRONOUS)]
    for id in ids:
        assert world.wait_for_end(id, 60)["state"] == "completed"
    wait_for(lambda: not _shared_files(world.gateway), 10, lambda: "values were left in shared memory")


def _shared_files(gateway: int | None) -> list[Path]:
    return [file for folder in Path("/dev/shm").glob(f"fairlead-{gateway}-*") for file in folder.iterdir()]


def _look(world: Serving, at_s: float, offered: int, in_time: int, errors: int, times: tuple[float, float]) -> Sample:
    gateway = world.gateway
    assert gateway is not None
    instances = [rss_bytes(pid) for pid in world.instances]
    return Sample(
        at_s=at_s,
        gateway_mb=rss_bytes(gateway) / 2**20,
        instance_mb=sum(instances) / max(1, len(instances)) / 2**20,
        instances=len(instances),
        descriptors=len(os.listdir(f"/proc/{gateway}/fd")) - PER_INSTANCE * len(instances),
        threads=len(os.listdir(f"/proc/{gateway}/task")),
        journal_mb=sum(path.stat().st_size for path in world.state.glob("journal.sqlite*")) / 2**20,
        records_mb=sum(path.stat().st_size for path in (world.state / "runs").rglob("*") if path.is_file()) / 2**20,
        shared_mb=sum(path.stat().st_size for path in _shared_files(gateway)) / 2**20,
        offered=offered,
        in_time=in_time,
        errors=errors,
        p50_ms=times[0] * 1e3,
        p99_ms=times[1] * 1e3,
    )


def _show(sample: Sample, is_first: bool) -> None:
    if is_first:
        print("  min  gateway  instance  n  fds  thr  journal  records   offered  in time  errors   p50 ms   p99 ms")
    print(
        f"{sample.at_s / 60:5.1f} {sample.gateway_mb:5.1f} MB {sample.instance_mb:6.1f} MB {sample.instances:2d} "
        f"{sample.descriptors:4d} {sample.threads:4d} {sample.journal_mb:5.1f} MB {sample.records_mb:5.1f} MB "
        f"{sample.offered:9d} {sample.in_time / max(1, sample.offered):8.1%} {sample.errors:7d} {sample.p50_ms:8.1f} "
        f"{sample.p99_ms:8.1f}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--load", type=float, default=0.9, help="share of the measured capacity")
    parser.add_argument("--window", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--policy", default=None)
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="where to leave all figures")
    options = parser.parse_args()
    capacity_rps, samples = soak(options.minutes, options.load, options.window, options.policy)
    found = trends(samples)
    print(f"\n{'series':12} {'level':>9} {'rise':>9}  over {samples[-1].at_s / 60:.1f} min")
    for one in found:
        verdict = "GROWS" if one.is_growth else "rises within tolerance" if one.is_rising else "steady"
        print(f"{one.name:12} {one.level:9.2f} {one.rise:+9.2f}  {verdict}")
    errors = sum(sample.errors for sample in samples)
    offered = sum(sample.offered for sample in samples)
    in_time = sum(sample.in_time for sample in samples)
    print(f"{offered:,} requests, {in_time / max(1, offered):.2%} in time, {errors} errors")
    if options.json is not None:
        figures = {
            "capacity_rps": capacity_rps,
            "samples": [asdict(s) for s in samples],
            "trends": [asdict(t) for t in found],
        }
        options.json.write_text(json.dumps(figures, indent=1))
    return 1 if errors or any(one.is_growth for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
