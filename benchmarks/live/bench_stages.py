"""Short and long stages on one machine at twice its capacity: does the default hold what hand-tuning reaches?

Every setting serves the same app and the same arrivals, interleaved: the default, and every hand-tuned setting (a
policy, how often the machine's vCPUs are promised). With `--baseline CHECKOUT` also the default of that checkout.
Capacity is what a closed loop gets from the default in this run. The exit code is 1 if the default has less than 97 %
of the goodput of the best hand-tuned setting, or less than 1.3 times that of the baseline.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # the load generator is this checkout's

from processes import StartError, adopt_orphans, serving
from rows import settle, wait_for_calm

from fairlead.load import Closed, LoadResult, Open, Plan, run_load

HERE = Path(__file__).resolve().parent
USERS = 8
DEADLINE_S = 0.15
OF_TUNED, OF_BASELINE = 0.97, 1.3


@dataclass(frozen=True)
class Setting:
    """How the app is served."""

    name: str
    arguments: tuple[str, ...] = ()
    source: Path = HERE.parents[1] / "src"

    def command(self, state: Path) -> list[str]:
        app = f"{HERE / 'stages_app.py'}:app"
        return [sys.executable, "-m", "fairlead", "serve", app, "--port", "0", "--state", str(state), *self.arguments]


def settings(baseline: Path | None, policies: list[str], overcommits: list[float]) -> list[Setting]:
    found = [Setting("default")]
    if baseline is not None:
        found.append(Setting("baseline", source=baseline.resolve() / "src"))
    for policy in policies:
        for overcommit in overcommits:
            name = f"{policy}, vCPUs promised {overcommit:g} times"
            found.append(Setting(name, ("--policy", policy, "--overcommit", f"{overcommit:g}")))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", type=Path, metavar="CHECKOUT", help="beside the default of that checkout")
    parser.add_argument("--policy", action="append", metavar="NAME", help="to tune by hand; repeatable")
    parser.add_argument("--overcommit", action="append", type=float, metavar="F", help="to try; repeatable")
    parser.add_argument("--load", type=float, default=2.0, help="share of the capacity that is offered")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each point")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs, of which the median counts")
    parser.add_argument("--limits", metavar="KIND", help="how CPU is limited, as of `fairlead serve`")
    parser.add_argument("--capacity", type=float, metavar="RPS", help="offered load is a share of this instead")
    options = parser.parse_args()
    adopt_orphans()
    chosen = settings(
        options.baseline, options.policy or ["earliest-deadline", "pard"], options.overcommit or [1.0, 2.0, 4.0, 8.0]
    )
    if options.limits:
        chosen = [replace(one, arguments=(*one.arguments, "--limits", options.limits)) for one in chosen]
    capacity = options.capacity or serve(chosen[0], None, options.seconds).answered_rps
    say(f"capacity {capacity:,.0f}/s; {options.load:.0%} of it are offered")
    results: dict[str, list[LoadResult]] = {one.name: [] for one in chosen}
    for number in range(options.repeat):
        for setting in chosen if number % 2 == 0 else chosen[::-1]:
            result = serve(setting, options.load * capacity, options.seconds)
            results[setting.name].append(result)
            p50_ms = (result.latency.p50_s or 0) * 1e3
            attained = f"in time {result.attainment or 0:.1%}"
            say(
                f"[{number + 1}] {setting.name:40} goodput {result.goodput_rps:7.1f}/s, {attained}, p50 {p50_ms:.1f} ms"
            )
    return report(results)


def serve(setting: Setting, rate_rps: float | None, seconds: float) -> LoadResult:
    """One point: an open loop at this rate, or without one a closed loop."""
    arrivals = Closed(USERS) if rate_rps is None else Open(rate_rps=rate_rps)
    deadline_s = None if rate_rps is None else DEADLINE_S
    plan = Plan(
        arrivals=arrivals,
        duration_s=seconds,
        warm_up_s=2.0,
        deadline_s=deadline_s,
        body=b'{"input":1}',
        timeout_s=10.0,
        max_in_flight=1500,
    )
    with tempfile.TemporaryDirectory(prefix="fl-stages-", ignore_cleanup_errors=True) as folder:
        state, log = Path(folder) / "state", Path(folder) / "server.log"
        with serving(setting.command(state), log, {"PYTHONPATH": str(setting.source)}) as url:
            target = f"{url.rstrip('/')}/v1/workflows/five"
            settle(target)
            wait_for_calm(10.0)
            return run_load(target, plan)


def report(results: dict[str, list[LoadResult]]) -> int:
    """Print the table and the verdicts; 1 if a demand is missed."""
    goodput = {name: median(one.goodput_rps for one in runs) for name, runs in results.items()}
    print("| setting | goodput | lowest to highest | default / it |\n|---|---:|---:|---:|")
    for name, runs in results.items():
        values = sorted(one.goodput_rps for one in runs)
        ratio = goodput["default"] / max(goodput[name], 1e-9)
        print(f"| {name} | {goodput[name]:,.0f}/s | {values[0]:,.0f} to {values[-1]:,.0f} | {ratio:.3f} |")
    tuned = [name for name in goodput if name not in ("default", "baseline")]
    is_missed = False
    demands = [(max(tuned, key=lambda name: goodput[name]), OF_TUNED)] if tuned else []
    demands += [("baseline", OF_BASELINE)] if "baseline" in goodput else []
    for name, least in demands:
        ratio = goodput["default"] / max(goodput[name], 1e-9)
        is_missed |= ratio < least
        print(f"- default over {name}: {ratio:.3f}, asked {least}: {'met' if ratio >= least else 'MISSED'}")
    return int(is_missed)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StartError as error:
        sys.exit(str(error))
