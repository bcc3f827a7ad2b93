"""Does the simulator foresee what an app does on three nodes of a Ray cluster? Live and predicted, side by side.

`python benchmarks/cluster/bench_prediction.py [--load 0.4 ...] [--seconds 15] [--repeat N] [--times N] [--json FILE]`,
with the Python of an environment that has Fairlead and Ray (`make setup`).

The cluster is three raylets of this machine with one CPU each, which share its cores. An app of several stages, whose
instances are spread over them, is measured there as `fairlead profile --host --backend ray` does. Then it is served at
shares of the capacity that this found, and simulated with the same arrivals. The exit code is 1 unless p50 is within
10 %, p99 within 25 % and the share in time within 3 points at every load. With `--times 2` each load is served twice
with the same arrivals, so that the distance of a prediction stands beside that of a live run from itself. A live run
beside which other programs used more than 15 % of the CPUs is made again, at most twice.

Apps: spread_app.py computes, waiting_app.py waits, forked_app.py does both, in a map and a fork.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "live"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "live"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import msgspec
from processes import adopt_orphans
from ray_cluster import raylets

from fairlead.app.scenario import place_of_profile
from fairlead.cli.profile import profile
from fairlead.cli.ray_profile import serve_options
from fairlead.league.live.app import LiveApp
from fairlead.league.live.cells import predict_cell, run_cell
from fairlead.league.live.figures import Figures, LiveCell
from fairlead.league.live.usage import Snapshot
from fairlead.profile.host import machine_file, read_machine

HERE = Path(__file__).resolve().parent
LOADS = (0.4, 0.8, 1.5)
POLICY = "fairlead"
NODES = 3
P50, P99, IN_TIME = 0.10, 0.25, 0.03
_TRIES = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--app", type=Path, default=HERE / "spread_app.py", help="the app to serve")
    parser.add_argument("--load", action="append", type=float, help="share of the capacity; repeatable")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each load is counted")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of each load, each with its own seed")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="live runs of each load and seed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the profiles there, or use those of before")
    options = parser.parse_args()
    adopt_orphans()
    os.environ["PYTHONPATH"] = str(HERE.parents[1] / "src")  # for agents and instances
    rows = []
    one = {"num_cpus": 1}
    with tempfile.TemporaryDirectory(prefix="fl-bench-") as name, raylets(head=one, others=(one,) * (NODES - 1)) as ray:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["XDG_DATA_HOME"] = str(folder / "data")
        path = shutil.copy(options.app, folder / "app.py")
        if not (machine_file().is_file() and place_of_profile(path).is_file()):
            before = Snapshot.take()
            profile(str(path), budget="12s", is_host=True, policies=[POLICY], backend="ray", address=ray.address)
            others = Snapshot.take().since(before, os.getpid()).others
            print(f"Other programs used {others:.0%} of the CPUs while all this was measured.", flush=True)
        app = LiveApp(path)
        host = read_machine(machine_file()).host
        assert app.measured is not None
        assert app.measured.served is not None, "the app could not be served"
        capacity_rps = app.measured.served.capacity_rps
        for seed in range(options.repeat):
            for load in options.load or LOADS:
                rate_rps = load * capacity_rps
                last: Figures | None = None
                for _ in range(options.times):
                    live = undisturbed(app, rate_rps, options.seconds, seed, serve_options(ray.address))
                    made = predict_cell(app, POLICY, rate_rps, options.seconds, seed, host=host, spin_s=live.spin_s)
                    rows.append((load, seed, live, made))
                    print(line(load, rate_rps, live.live, made), *live.marks, flush=True)
                    if last is not None:
                        print("  live, live again:", line(load, rate_rps, last, live.live), flush=True)
                    last = live.live
    if options.json is not None:
        found = [
            {"load": load, "seed": seed, "live": msgspec.to_builtins(live), "predicted": msgspec.to_builtins(made)}
            for load, seed, live, made in rows
        ]
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(is_within(live.live, made) for _, _, live, made in rows) else 1


def undisturbed(app: LiveApp, rate_rps: float, seconds: float, seed: int, serve: Sequence[str]) -> LiveCell:
    """One live run; again, at most twice, while other programs or the load generator were busy beside it."""
    for _ in range(_TRIES):
        live = run_cell(app, POLICY, rate_rps, seconds, seed, serve_options=serve)
        if not live.marks:
            break
        print(f"  again: {', '.join(live.marks)}", flush=True)
    return live


def line(load: float, rate_rps: float, live: Figures, made: Figures) -> str:
    """One load: live / predicted, and how far off."""
    shares = f"in time {live.share:6.1%} / {made.share:6.1%} ({100 * (made.share - live.share):+.1f} points)"
    times = [
        f"{name} {_ms(one)} / {_ms(other)} ms ({_off(one, other):+.0%})"
        for name, one, other in (("p50", live.p50_s, made.p50_s), ("p99", live.p99_s, made.p99_s))
    ]
    verdict = "within" if is_within(live, made) else "NOT WITHIN"
    return f"{load:4.0%} ({rate_rps:.0f}/s): {shares}, {times[0]}, {times[1]}: {verdict}"


def is_within(live: Figures, made: Figures) -> bool:
    """Whether all three figures are near enough."""
    is_share = abs(made.share - live.share) <= IN_TIME
    return is_share and abs(_off(live.p50_s, made.p50_s)) <= P50 and abs(_off(live.p99_s, made.p99_s)) <= P99


def _off(live_s: float | None, made_s: float | None) -> float:
    """The error of a prediction, as a share of what was seen; infinite where only one of both is known."""
    if live_s is None or made_s is None:
        return 0.0 if live_s is made_s else float("inf")
    return made_s / live_s - 1


def _ms(value_s: float | None) -> str:
    return "–" if value_s is None else f"{value_s * 1e3:.1f}"


if __name__ == "__main__":
    sys.exit(main())
