"""Does the simulator foresee what really happens? A live run at several loads, each replayed under its own policy.

    python benchmarks/live/sim_vs_live.py [--policy fairlead --policy fifo] [--seconds 15]

Capacity is the closed loop of 32 users, measured first for each policy. Every load gets a fresh `fairlead serve`; its
records are then replayed in the simulator with another seed, and must show p50 within 10 %, p99 within 25 %, and the
share in time within 3 points. The exact replay must be identical. Ends with 1 if anything is not so.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from fairlead.load import Closed, Open, Plan, run_load
from fairlead.replay import Deviation, check_exactly, deviation, read_logged_run, replay
from fairlead.replay.physics import NEAR
from fairlead.report import Summary, summarise
from fairlead.report.live import latest_run
from fairlead.report.numbers import show

LOADS = (0.5, 0.9, 1.5)
WITHIN = Deviation(p50=0.10, p99=0.25, attainment=0.03)
BODY = b'{"input":1}'
APP = """
import time

from fairlead.app import App

app = App("stage")


@app.function(batch=(1, 2, 4, 8), batched=True)
def work(values):
    time.sleep(0.008 + 0.002 * len(values))
    return values


app.workflow("main", work, slo="100ms")
"""


@contextmanager
def served(folder: Path, policy: str) -> Iterator[str]:
    """The URL of a fresh gateway, which is ended in the end."""
    (folder / "app.py").write_text(APP, encoding="utf-8")
    command = [sys.executable, "-m", "fairlead", "serve", "app.py", "--port", "0", "--state", "state"]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen([*command, "--policy", policy], cwd=folder, stdout=log, stderr=log)
        try:
            yield _url(folder, process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _url(folder: Path, process: "subprocess.Popen[bytes]") -> str:
    told = folder / "state" / "gateway.json"
    until = monotonic() + 60
    while monotonic() < until and process.poll() is None:
        if told.exists():
            return str(json.loads(told.read_bytes())["url"])
        sleep(0.1)
    raise SystemExit(f"fairlead serve did not start:\n{(folder / 'serve.log').read_text()}")


def measure_capacity(policy: str, seconds: float) -> float:
    """Answers per second with 32 users, who wait for theirs."""
    with tempfile.TemporaryDirectory() as name, served(Path(name), policy) as url:
        plan = Plan(arrivals=Closed(users=32), duration_s=seconds, warm_up_s=1.0, deadline_s=10.0, body=BODY)
        return run_load(f"{url}/v1/workflows/main", plan).goodput_rps or 0.0


def compare(policy: str, rate_rps: float, seconds: float, near: int) -> tuple[Summary, Summary, Deviation, bool]:
    """One load: what was recorded, what the replay says, how far off that is, and whether it is exact."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served(folder, policy) as url:
            plan = Plan(arrivals=Open(rate_rps=rate_rps), duration_s=seconds, body=BODY)
            result = run_load(f"{url}/v1/workflows/main", plan)
        if not result.answered:
            log = (folder / "serve.log").read_text()
            raise SystemExit(f"nothing was answered: {result.refused} {result.errors}\n{log}")
        found = latest_run(folder / "state")
        assert found is not None, "nothing was recorded"
        run = read_logged_run(found)
        is_exact = check_exactly(run) is None
        recorded, replayed = summarise(run.recording), summarise(replay(run, seed=run.head.seed + 1, near=near))
    return recorded, replayed, deviation(recorded, replayed), is_exact


def holds(off: Deviation) -> bool:
    """Whether all three are within their bounds; what cannot be compared is not counted against it."""
    pairs = ((off.p50, WITHIN.p50), (off.p99, WITHIN.p99), (off.attainment, WITHIN.attainment))
    return all(value is None or bound is None or abs(value) <= bound for value, bound in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", action="append", help="who dispatches; repeatable")
    parser.add_argument("--seconds", type=float, default=15.0, help="per load")
    parser.add_argument("--near", type=int, default=NEAR, help="among how many batches of about the same time to draw")
    given = parser.parse_args()
    policies = given.policy or ["fairlead", "fifo"]
    print("policy      load   in time live/sim       p50 live/sim          p99 live/sim          off        exact")
    is_good = True
    for policy in policies:
        capacity_rps = measure_capacity(policy, min(given.seconds, 6.0))
        print(f"{policy:<11} capacity {capacity_rps:.0f}/s", flush=True)
        for load in LOADS:
            live, sim, off, is_exact = compare(policy, load * capacity_rps, given.seconds, given.near)
            good = holds(off) and is_exact
            is_good = is_good and good
            print(
                f"{policy:<11} {load:4.0%}   "
                f"{show(live.slo_attainment, 'share'):>8} / {show(sim.slo_attainment, 'share'):<8} "
                f"{show(live.latency_s.p50, 'seconds'):>9} / {show(sim.latency_s.p50, 'seconds'):<9} "
                f"{show(live.latency_s.p99, 'seconds'):>9} / {show(sim.latency_s.p99, 'seconds'):<9} "
                f"{_signed(off)}  {'identical' if is_exact else 'DIFFERS'}  {'ok' if good else 'NOT WITHIN'}",
                flush=True,
            )
    raise SystemExit(0 if is_good else 1)


def _signed(off: Deviation) -> str:
    parts = [
        "–" if off.p50 is None else f"{off.p50:+.1%}",
        "–" if off.p99 is None else f"{off.p99:+.1%}",
        "–" if off.attainment is None else f"{100 * off.attainment:+.1f} pt",
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    main()
