"""A cloud's functions on one core: 10,000 functions on 4,096 nodes, a million and a hundred million invocations.

Traffic comes from the generator that is fitted to the published statistics of the Azure Functions trace of 2019; both
sizes are the beginning of the same day. Each size runs in a fresh process, so that its peak of memory is its own.
Times include the making of the arrivals. The day of the full trace is projected from a slice of it: as many functions
and as many invocations a minute, for some minutes around noon.

Part of `make bench`; alone: `python benchmarks/bench_fleet.py [--quick] [--json FILE]`.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time

from measure import Answer, Gate, Row, Sample, pin
from rich.console import Console
from rich.table import Table
from showing import markdown, row_json, show_gates

from fairlead.engine.sim.compiled import CompiledRun
from fairlead.policy.fifo import Fifo
from fairlead.workload.traces import chunks, generate

TITLE = "Fleet: keep-alive of 10 minutes, fifo, no records"
MINUTES = 1440
FEW, MANY = 10**6, 10**8
LEAST_SHARE, MOST_GIB = 0.7, 4.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """One run: the first `invocations`, in whole minutes, from `start_minute` of a day with so many in all."""

    functions: int = 10_000
    nodes: int = 4_096
    vcpus: int = 4
    memory_gb: float = 16.0
    invocations_per_day: int = MANY
    start_minute: int = 0
    invocations: int = MANY
    keep_alive_s: float = 600.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run took and found."""

    invocations: int
    unfinished: int
    cold_starts: int
    idle_gb_s: float
    latency_mean_s: float
    end_s: float
    cpu_s: float
    wall_s: float
    peak_gib: float

    @property
    def rate(self) -> float:
        """Invocations per second of CPU time."""
        return self.invocations / self.cpu_s


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What is shown: rows and demands."""

    rows: Sequence[Row]
    gates: Sequence[Gate]
    page: str  # as Markdown


def run(load: Load) -> Outcome:
    """One run in this process. What does not grow with the run, as compiling and declaring, is not part of its time."""
    trace = generate(functions=load.functions, minutes=MINUTES, invocations=load.invocations_per_day, seed=load.seed)
    scenario = trace.scenario(
        nodes=load.nodes, vcpus=load.vcpus, memory_gb=load.memory_gb, keep_alive_s=load.keep_alive_s, is_streamed=True
    )
    before = trace.calls_before - trace.calls_before[load.start_minute]
    last = min(int(before.searchsorted(load.invocations)), trace.minutes)
    first = chunks(trace, load.seed, start_minute=load.start_minute, minutes=1)
    CompiledRun(scenario, Fifo(), seed=load.seed, record="none", arrivals=first).go()
    arriving = chunks(trace, load.seed, start_minute=load.start_minute, minutes=last - load.start_minute)
    fleet = CompiledRun(scenario, Fifo(), seed=load.seed, record="none", arrivals=arriving)
    clock, cpu = perf_counter(), process_time()
    fleet.go()
    cpu_s, wall_s = process_time() - cpu, perf_counter() - clock
    totals = fleet.totals()
    return Outcome(
        invocations=totals.invocations,
        unfinished=totals.unfinished,
        cold_starts=totals.cold_starts,
        idle_gb_s=totals.idle_gb_s,
        latency_mean_s=totals.latency_mean_s,
        end_s=totals.end_s,
        cpu_s=cpu_s,
        wall_s=wall_s,
        peak_gib=getrusage(RUSAGE_SELF).ru_maxrss / 2**20,
    )


def run_apart(load: Load) -> Outcome:
    """One run in a process of its own."""
    command = [sys.executable, __file__, "--run", json.dumps(asdict(load))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"a run failed: {ran.stderr}")
    return Outcome(**json.loads(ran.stdout.splitlines()[-1]))


def measure(console: Console, *, quick: bool, invocations_per_day: int = 900_000_000, functions: int = 50_000) -> Fleet:
    """Both sizes and the slice, with a table."""
    few, many = (FEW // 10, FEW) if quick else (FEW, MANY)
    loads = {
        f"{few:,} invocations": Load(invocations=few),
        f"{many:,} invocations": Load(invocations=many),
        "slice of the full trace": Load(
            functions=functions,
            invocations_per_day=invocations_per_day,
            start_minute=MINUTES // 2,
            invocations=few if quick else 10 * few,
        ),
    }
    found: dict[str, Outcome] = {}
    with console.status("") as status:
        for name, load in loads.items():
            status.update(f"Fleet: {name}")
            found[name] = run_apart(load)
    headings, lines = _cells(loads, found)
    table = Table(title=TITLE, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for line in lines:
        table.add_row(*line)
    console.print(table, highlight=False)
    small, large, day = found.values()
    gates = [
        Gate(
            name=f"fleet: rate at {many:,} invocations over that at {few:,}",
            figure=large.rate / small.rate,
            limit=LEAST_SHARE,
        ),
        Gate(
            name=f"fleet: peak of memory at {many:,} invocations, GiB",
            figure=large.peak_gib,
            limit=MOST_GIB,
            is_least=False,
        ),
    ]
    rows = [Row(name=name, samples=(_sample(outcome),)) for name, outcome in found.items()]
    hours = invocations_per_day / day.rate / 3600
    projected = (
        f"A day of the full trace ({invocations_per_day:,} invocations of {functions:,} functions) would take "
        f"{hours:.2f} hours of CPU time at the slice's rate."
    )
    console.print(projected, highlight=False)
    page = f"{markdown(TITLE, headings, lines)}\n{projected}\n"
    return Fleet(rows=rows, gates=gates, page=page)


def _sample(outcome: Outcome) -> Sample:
    answer = Answer(cold_starts=outcome.cold_starts, latency_mean_s=outcome.latency_mean_s)
    return Sample(cpu_s=outcome.cpu_s, count=outcome.invocations, answer=answer)


def _cells(loads: dict[str, Load], found: dict[str, Outcome]) -> tuple[list[str], list[list[str]]]:
    headings = ["run", "functions", "nodes", "invocations", "per CPU s", "CPU s", "cold", "mean, s", "peak GiB"]
    lines = [
        [
            name,
            f"{loads[name].functions:,}",
            f"{loads[name].nodes:,}",
            f"{one.invocations:,}",
            f"{one.rate:,.0f}",
            f"{one.cpu_s:,.1f}",
            f"{one.cold_starts / one.invocations:.2%}",
            f"{one.latency_mean_s:.3f}",
            f"{one.peak_gib:.2f}",
        ]
        for name, one in found.items()
    ]
    return headings, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the size, for a look")
    parser.add_argument("--invocations-per-day", type=int, default=900_000_000, help="of the full trace")
    parser.add_argument("--functions", type=int, default=50_000, help="of the full trace")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to a file")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(asdict(run(Load(**json.loads(options.run))))))
        return 0
    pin()
    console = Console(width=120)
    fleet = measure(
        console,
        quick=options.quick,
        invocations_per_day=options.invocations_per_day,
        functions=options.functions,
    )
    show_gates(console, fleet.gates)
    if options.json:
        options.json.write_text(json.dumps([row_json(row) for row in fleet.rows], indent=1) + "\n")
    return int(any(gate.is_met is False for gate in fleet.gates))


if __name__ == "__main__":
    sys.exit(main())
