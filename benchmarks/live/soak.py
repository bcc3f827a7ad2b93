"""An app served at 90 % of its capacity for half an hour, with connections that come and go: does anything grow?

`python benchmarks/live/soak.py [--minutes 30] [--load 0.9] [--churn 20] [--window 20] [--json FILE]`

Capacity is measured first, by a closed loop of 32 users. Then windows of open-loop load follow one another. Beside
them, every 20th request has a connection of its own, of which some are broken off or left idle. Between two windows the
processes are looked at, and asynchronous requests with large values go through the journal and the shared memory.

After the first ten minutes (a third of a shorter run) each series must be flat: the gateway's memory grows by less than
2 MB with a slope that is not above 0 beyond chance; the others do not rise beyond both chance and tolerance. The exit
code is 1 if one is not. The number of instances is shown and not judged: a policy starts more at a busy moment, and
they stay for their keep-alive time.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "live"))

from churn import Churn
from serving import Serving, rss_bytes, serving, wait_for, write_app
from slopes import Tolerance, Trend, by_bin, trend

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
SETTLED_MIN = 10.0  # caches fill, pools settle; a third of a run that is shorter than twice that


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


TOLERANCES: Mapping[str, Tolerance] = {
    "gateway_mb": Tolerance(0.0, 2.0, is_strict=True),
    "instance_mb": Tolerance(0.05, 4.0),
    "descriptors": Tolerance(0.0, 3.0),
    "threads": Tolerance(0.0, 1.0),
    "shared_mb": Tolerance(0.0, 1.0),
    "p50_ms": Tolerance(0.1, 2.0),
    "p99_ms": Tolerance(0.1, 5.0),
}


def settled_s(minutes: float) -> float:
    """From when on series are judged."""
    return 60 * (SETTLED_MIN if minutes >= 2 * SETTLED_MIN else minutes / 3)


def trends(samples: Sequence[Sample], minutes: float) -> list[Trend]:
    """Of every series that must not grow: medians per minute (per tenth of a shorter run) once it has settled."""
    kept = [sample for sample in samples if sample.at_s >= settled_s(minutes)]
    times, length_s = [sample.at_s for sample in kept], min(60.0, 6 * minutes)
    is_short = minutes < 2 * SETTLED_MIN  # then caches still fill, and a slope says little
    return [
        trend(
            name,
            *by_bin(times, [getattr(sample, name) for sample in kept], length_s),
            replace(tolerance, is_strict=False) if is_short else tolerance,
        )
        for name, tolerance in TOLERANCES.items()
    ]


def soak(minutes: float, load: float, window_s: float, policy: str | None, every: int) -> tuple[float, list[Sample]]:
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
            rate_rps = load * capacity_rps
            churn = Churn(world.port, "/v1/workflows/work", BODY, max(rate_rps / every, 0.1)) if every else None
            if churn is not None:
                churn.start()
                rate_rps *= 1 - 1 / every
            while monotonic() - began < minutes * 60:
                arrivals = Open(rate_rps=rate_rps, seed=len(samples))
                plan = Plan(arrivals=arrivals, duration_s=window_s, deadline_s=DEADLINE_S, body=BODY)
                result = run_load(url, plan)
                _pass_large_values(world)
                if world.gateway != gateway:
                    raise SystemExit(f"the gateway died:\n{world.err[-3000:]}")
                errors = sum(result.errors.values()) + result.unsent
                times = (result.latency.p50_s or 0.0, result.latency.p99_s or 0.0)
                samples.append(_look(world, monotonic() - began, result.offered, result.in_time, errors, times))
                _show(samples[-1], len(samples) == 1)
            if churn is not None:
                churn.stop()
                print("connections of their own: " + ", ".join(f"{n} {c:,}" for n, c in churn.counts.most_common()))
                if churn.errors:
                    raise SystemExit("connections failed")
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
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--load", type=float, default=0.9, help="share of the measured capacity")
    parser.add_argument("--window", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument(
        "--churn", type=int, default=20, metavar="N", help="each N-th request has a connection; 0: none"
    )
    parser.add_argument("--policy", default=None)
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="where to leave all figures")
    options = parser.parse_args()
    capacity_rps, samples = soak(options.minutes, options.load, options.window, options.policy, options.churn)
    found = trends(samples, options.minutes)
    since, until = settled_s(options.minutes) / 60, samples[-1].at_s / 60
    print(f"\nfrom minute {since:.1f} to {until:.1f}; slopes per minute with their 95 % intervals")
    print(f"{'series':12} {'level':>9} {'growth':>9} {'allowed':>9} {'slope':>9}  {'interval':^20}")
    for one in found:
        slope = one.slope
        verdict = "flat" if one.is_flat else "GROWS"
        if one.is_flat and slope.low > 0:
            verdict = f"flat: rising, but within what is allowed (a slope below {one.negligible:.3f} is negligible)"
        interval = f"[{slope.low:+.4f}, {slope.high:+.4f}]"
        figures = f"{one.level:9.2f} {one.growth:+9.3f} {one.allowed:9.2f} {slope.value:+9.4f}"
        print(f"{one.name:12} {figures}  {interval:^20}  {verdict}")
    _, p99 = by_bin([sample.at_s for sample in samples], [sample.p99_ms for sample in samples], 60.0)
    print("p99 by minute, ms: " + " ".join(f"{value:.1f}" for value in p99))
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
    return 1 if errors or any(not one.is_flat for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
