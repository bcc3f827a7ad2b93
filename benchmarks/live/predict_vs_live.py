"""Does the simulator predict what clients of `fairlead serve` see? Three apps, four policies, three loads.

    python benchmarks/live/predict_vs_live.py [--app chain] [--policy fifo] [--load 0.5] [--seconds 8] [--json FILE]

For each app the machine is calibrated and the app profiled first, as `fairlead profile --host APP` does. Capacity is
that of a closed loop of 32 users under the policy. A cell is a fresh `fairlead serve` under an open loop. The
prediction knows the profiles and the instants of arrival, nothing of the live run. The target: the share in time within
3 points in 90 % of the cells, p50 within 15 %, p99 within 30 %. `others` is the share of the CPUs that other
programs used during the cell. A cell with more than `--quiet` of it is repeated, and marked where it stays so.
"""

import argparse
import asyncio
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from time import monotonic

import msgspec

from fairlead.app.describe import describe
from fairlead.app.prediction import as_served
from fairlead.app.scenario import scenario_of
from fairlead.calibrate import calibrate
from fairlead.calibrate.serving import served
from fairlead.engine.core import events as ev
from fairlead.engine.live.measuring import Effort, measure_app
from fairlead.engine.sim import simulate
from fairlead.load import Closed, LoadResult, Open, Plan, run_load
from fairlead.model import Request
from fairlead.profile.measured import MeasuredProfiles, write_measured
from fairlead.report import summarise
from fairlead.workload import PolicyChoice, Scenario

FOLDER = Path(__file__).parent / "predicted"
APPS = ("chain", "sleeping", "forkjoin")
POLICIES = ("fairlead", "earliest-deadline", "fifo", "clockwork")
LOADS = (0.5, 1.0, 2.0)
WARM_UP_S = 1.0
MOST_OPEN = 1_900  # below the connections that a gateway takes
BODY = b'{"input":1}'


class Figures(msgspec.Struct, frozen=True):
    """Share in time, and latencies of answers in seconds; None without any."""

    in_time: float
    p50_s: float | None
    p99_s: float | None


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison."""

    app: str
    policy: str
    load: float
    rate_rps: float
    live: Figures
    predicted: Figures
    bare: Figures  # the same without a host
    others: float
    lag_p99_s: float

    def off(self) -> tuple[float, float | None, float | None]:
        """Points of the share in time, and shares of p50 and p99, by which the prediction is off."""
        live, predicted = self.live, self.predicted
        return (
            predicted.in_time - live.in_time,
            _share(predicted.p50_s, live.p50_s),
            _share(predicted.p99_s, live.p99_s),
        )


def _share(predicted: float | None, live: float | None) -> float | None:
    return None if predicted is None or not live else predicted / live - 1


class Others:
    """The share of the CPUs that programs other than this one and the servers it starts use."""

    def __init__(self) -> None:
        self._began, self._used = monotonic(), self._read()

    def share(self) -> float:
        """Since this was made, in [0, 1]."""
        used = self._read()
        (all_s, ours_s), (all_before, ours_before) = used, self._used
        spent_s = (all_s - all_before) - (ours_s - ours_before)
        return max(0.0, spent_s / (monotonic() - self._began) / (os.cpu_count() or 1))

    def _read(self) -> tuple[float, float]:
        user, nice, system, _idle, _wait, irq, soft, steal = map(
            int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
        )
        tick = os.sysconf("SC_CLK_TCK")
        session, ours = os.getsid(0), 0.0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[3]) == session:
                ours += sum(map(int, fields[11:15]))  # its children that ended included
        return (user + nice + system + irq + soft + steal) / tick, ours / tick


def run_live(app: Path, policy: str, plan: Plan) -> LoadResult:
    """One load on a fresh gateway."""
    with tempfile.TemporaryDirectory() as name, served(app, Path(name), policy) as gateway:
        return run_load(f"{gateway.url}/v1/workflows/main", plan)


def figures_of(scenario: Scenario, rate_rps: float, seconds: float, seed: int) -> Figures:
    """What the simulator says of the very arrivals that the live run gets."""
    slo = scenario.workflows["main"].slo
    instants = Open(rate_rps=rate_rps, seed=seed).instants(seconds)
    given = [
        (at, ev.Arrived(Request(i, "main", at, at + slo.latency_s, slo.cost_usd), 1)) for i, at in enumerate(instants)
    ]
    run = replace(scenario, arrivals=(), duration_s=seconds, warmup_s=WARM_UP_S)
    summary = summarise(simulate(run, given=given, seed=seed))
    return Figures(summary.slo_attainment or 0.0, summary.latency_s.p50, summary.latency_s.p99)


class App:
    """One app on this machine, calibrated and profiled now."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.file = folder / f"{name}.py"
        self.file.write_text((FOLDER / f"{name}.py").read_text(encoding="utf-8"), encoding="utf-8")
        self._manifest = describe(self.file)
        machine = calibrate([policy for policy in POLICIES if policy != "fifo"])
        self._host = machine.host
        self._measured: MeasuredProfiles = asyncio.run(
            measure_app(str(self.file), self._manifest, effort=Effort(budget_s=8.0))
        ).profiles
        write_measured(self._measured, self.file.with_suffix(".profile.json"))
        print(
            f"{name}: others used {machine.others_share or 0:.0%} of the CPUs while the machine was measured",
            flush=True,
        )

    def scenarios(self, policy: str) -> tuple[Scenario, Scenario]:
        """Its scenario with and without the host."""
        bare = scenario_of(self._manifest, profiles=self._measured.profiles())
        bare = replace(bare, policy=PolicyChoice(name=policy))
        return as_served(bare, self._manifest, self._measured, self._host), bare

    def capacity_rps(self, policy: str) -> float:
        """Answers per second with 32 users."""
        plan = Plan(arrivals=Closed(32), duration_s=4.0, warm_up_s=WARM_UP_S, deadline_s=10.0, body=BODY)
        return run_live(self.file, policy, plan).goodput_rps

    def compare(self, policy: str, load: float, rate_rps: float, seconds: float, seed: int) -> Cell:
        """One cell."""
        served_here, bare = self.scenarios(policy)
        slo_s = bare.workflows["main"].slo.latency_s
        plan = Plan(
            arrivals=Open(rate_rps=rate_rps, seed=seed),
            duration_s=seconds,
            warm_up_s=WARM_UP_S,
            deadline_s=slo_s,
            sends_deadline=False,
            body=BODY,
            max_in_flight=MOST_OPEN,
        )
        others = Others()
        live = run_live(self.file, policy, plan)
        disturbed = others.share()
        return Cell(
            app=self.name,
            policy=policy,
            load=load,
            rate_rps=rate_rps,
            live=Figures(live.attainment or 0.0, live.latency.p50_s, live.latency.p99_s),
            predicted=figures_of(served_here, rate_rps, seconds, seed),
            bare=figures_of(bare, rate_rps, seconds, seed),
            others=disturbed,
            lag_p99_s=live.lag.p99_s or 0.0,
        )


def show(cell: Cell, quiet: float) -> str:
    """One row of the table."""
    points, p50, p99 = cell.off()
    parts = [
        f"{cell.app} | {cell.policy} | {cell.load:.0%} | {cell.rate_rps:.0f}",
        f"{cell.live.in_time:.1%} | {cell.predicted.in_time:.1%} | {cell.bare.in_time:.1%}",
        f"{_ms(cell.live.p50_s)} | {_ms(cell.predicted.p50_s)}",
        f"{_ms(cell.live.p99_s)} | {_ms(cell.predicted.p99_s)}",
        f"{100 * points:+.1f} | {_percent(p50)} | {_percent(p99)}",
        f"{cell.others:.0%}{' *' if cell.others > quiet else ''} | {cell.lag_p99_s * 1e3:.1f}",
    ]
    return f"| {' | '.join(parts)} |"


def verdict(cells: list[Cell]) -> str:
    """How many cells are within the target."""
    offs = [cell.off() for cell in cells]
    lines = []
    for what, values, bound in (
        ("share in time within 3 points", [abs(points) for points, _, _ in offs], 0.03),
        ("p50 within 15 %", [abs(p50) for _, p50, _ in offs if p50 is not None], 0.15),
        ("p99 within 30 %", [abs(p99) for _, _, p99 in offs if p99 is not None], 0.30),
    ):
        met = sum(value <= bound for value in values)
        lines.append(f"{what}: {met} of {len(values)} cells ({met / max(1, len(values)):.0%})")
    bare = sum(abs(cell.bare.in_time - cell.live.in_time) <= 0.03 for cell in cells)
    return "\n".join([*lines, f"without the host, the share in time within 3 points: {bare} of {len(cells)}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--app", action="append", choices=APPS)
    parser.add_argument("--policy", action="append")
    parser.add_argument("--load", action="append", type=float)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quiet", type=float, default=0.15, help="share of the CPUs that others may use in a cell")
    parser.add_argument("--repeat", type=int, default=2, help="how often a disturbed cell is repeated")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    cells: list[Cell] = []
    print(
        "| app | policy | load | /s | in time live | predicted | bare | p50 ms live | predicted "
        "| p99 ms live | predicted | off: points | p50 | p99 | others | lag p99 ms |"
    )
    print("|---|---|--:" + "|--:" * 13 + "|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for app_name in given.app or APPS:
            app = App(app_name, Path(name))
            for policy in given.policy or POLICIES:
                capacity_rps = app.capacity_rps(policy)
                for load in given.load or LOADS:
                    tries = []
                    while not tries or (tries[-1].others > given.quiet and len(tries) <= given.repeat):
                        tries.append(app.compare(policy, load, load * capacity_rps, given.seconds, given.seed))
                    cell = min(tries, key=lambda one: one.others)
                    cells.append(cell)
                    print(show(cell, given.quiet), flush=True)
    print(verdict(cells))
    if given.json is not None:
        given.json.write_text(json.dumps(msgspec.to_builtins(cells), indent=1) + "\n", encoding="utf-8")


def _ms(value_s: float | None) -> str:
    return "–" if value_s is None else f"{value_s * 1e3:.1f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:+.0%}"


if __name__ == "__main__":
    main()
