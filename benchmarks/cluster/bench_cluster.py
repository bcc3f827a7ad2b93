"""The same stages and the same load on one Ray cluster: on Fairlead, on Ray Serve, and on Fairlead's local back end.

`make bench-ray ARGS="[--quick] [--repeat N] [--json FILE] [--markdown FILE]"`.

The cluster is three raylets of this machine with 2, 1 and 1 CPUs, and it stays up for the whole run, so that all
systems have the same neighbours. Every function has one instance, and one replica at Ray Serve, whose best set-up
counts. Capacity is what a closed loop of 32 users gets, of Ray Serve in the set-up for throughput: with few places at a
replica, users who find none wait for up to half a second before each try, and such a loop says nothing. Goodput is at
shares of that, within 50 ms and within 250 ms, for a stage whose batch of n takes 8 + 2n ms. The exit code is 1 if a
demand is missed.

A run may be cut in parts: with `--json FILE --for 300`, nothing new is begun after 300 s, and the same command goes on
where it ended, on a new cluster of the same kind. Each system's stage is measured in one part.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from time import monotonic
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "live"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "live"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import msgspec
from bench_live import run_system, say
from cluster_app import VCPUS
from compare import interleaved
from gates import Figures, Gate, goodput_share, p50_s, rate_rps
from processes import adopt_orphans
from ray_cluster import raylets
from rows import CLOSED, DEADLINE_S, LIGHT, QUICK, Lengths, Row, load_name
from systems import BATCHED, CHAIN, NOOP, STAGES, Command, System, ray_command
from tables import capacity_table, gate_table, noop_table, overload_table

HERE = Path(__file__).resolve().parent
ON_RAY, LOCAL = "fairlead-ray", "fairlead-local"
SERVES = {  # the first one's capacity is that of all
    "throughput": "256 ongoing, optimised for throughput",
    "default": "defaults",
    "shed": "few ongoing and queued, optimised for throughput",
}
SHARES = (1.3, 3.0, 10.0)
LOOSE_S = 0.25
LENGTHS = Lengths(light_s=4.0, closed_s=3.0, point_s=5.0, short_warm_up_s=0.5, point_warm_up_s=1.0, patience_s=2.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short rows, for a look")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs, of which the median counts")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this system; repeatable")
    parser.add_argument("--stage", action="append", choices=STAGES, help="only this stage; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every row there, and go on where it ends")
    parser.add_argument("--for", dest="for_s", type=float, default=inf, metavar="SECONDS", help="begin nothing later")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    options = parser.parse_args()
    until = monotonic() + options.for_s
    adopt_orphans()
    os.environ["PYTHONPATH"] = str(HERE.parents[1] / "src")  # for agents and instances
    known = {system.name: system for system in systems("")}
    if unknown := set(options.only or ()) - known.keys():
        parser.error(f"--only {min(unknown)}: is none of {', '.join(known)}.")
    names = [name for name in known if not options.only or name in options.only]
    todo = [
        Part(number, system.name, stage)
        for number, system in interleaved([known[name] for name in names], options.repeat)
        for stage in options.stage or STAGES
    ]
    done = read_parts(options.json)
    failures: list[str] = []
    left = [part for part in todo if part not in done]
    if left and monotonic() < until:
        failures += run_parts(left, done, QUICK if options.quick else LENGTHS, options.json, until)
    rows = [row for found in done.values() for row in found]
    found = demands(rows)
    tables = [table(rows, [known[name] for name in names]) for table in (noop_table, capacity_table, overload_table)]
    missing = [part for part in todo if part not in done]
    if missing:
        failures.append(f"Not measured yet: {len(missing)} of {len(todo)} parts. The same command goes on with them.")
    text = "\n\n".join([*tables, gate_table(found), range_table(rows), *failures])
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(f"{text}\n", encoding="utf-8")
    return 1 if failures or any(demand.is_met is False for demand in found) else 0


class Part(NamedTuple):
    """What is measured in one go: a stage of a system, in one of the repeats."""

    number: int
    system: str
    stage: str


Done = dict[Part, list[Row]]


def run_parts(left: Sequence[Part], done: Done, lengths: Lengths, file: Path | None, until: float) -> list[str]:
    """Measure these parts on a cluster, as far as time allows, and keep each; gives what went wrong."""
    failures: list[str] = []
    # A kind stands for nodes of one size: the larger one has a kind of its own.
    head, *others = ({"num_cpus": vcpus, "labels": {"fairlead.io/kind": f"cpu-{vcpus}"}} for vcpus in VCPUS)
    with raylets(head=head, others=others) as cluster:
        # So that what was measured is shown then, too. Ray sets a handler of its own when a node starts.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        known = {system.name: system for system in systems(cluster.address)}
        try:
            for part in left:
                if monotonic() >= until:
                    break
                system = known[part.system]
                say(f"[{part.number + 1}] {system.label}")
                capacity_rps = capacity_of_serve(part, done)
                rows = run_system(system, (part.stage,), lengths, failures, SHARES, (DEADLINE_S, LOOSE_S), capacity_rps)
                if rows:
                    done[part] = rows
                    write_parts(done, file)
        except KeyboardInterrupt:
            failures.append("Interrupted.")
    return failures


def capacity_of_serve(part: Part, done: Done) -> float | None:
    """What the first set-up of Ray Serve answered at most, for the others; None for all else."""
    first, *others = (f"ray-{setup}" for setup in SERVES)
    if part.system not in others:
        return None
    rows = [row for key, found in done.items() if key.system == first for row in found]
    return Figures(rows).get(first, BATCHED, CLOSED, rate_rps)


def read_parts(file: Path | None) -> Done:
    """What an earlier part of the run left."""
    if file is None or not file.exists():
        return {}
    return dict(msgspec.json.decode(file.read_bytes(), type=list[tuple[Part, list[Row]]]))


def write_parts(done: Done, file: Path | None) -> None:
    if file is not None:
        draft = file.with_name(f".{file.name}.new")
        draft.write_bytes(msgspec.json.encode(list(done.items())) + b"\n")
        draft.replace(file)


def systems(address: str) -> list[System]:
    """Who is measured on the cluster at this address."""
    host = address.partition(":")[0]
    ray = ("--backend", "ray", "--address", address, "--agents-listen", f"{host}:0")
    return [
        _fairlead(ON_RAY, "Fairlead on Ray", *ray),
        _fairlead(LOCAL, "Fairlead, local back end"),
        *(
            System(
                name=f"ray-{setup}",
                label=f"Ray Serve, {label}",
                commands={stage: ray_command(Path(sys.executable), stage, setup, address) for stage in STAGES},
            )
            for setup, label in SERVES.items()
        ),
    ]


def _fairlead(name: str, label: str, *options: str) -> System:
    def command(stage: str) -> Command:
        serve = (sys.executable, "-m", "fairlead", "serve", f"{HERE / 'cluster_app.py'}:{stage}", "--port", "0")
        return lambda folder: [*serve, "--state", str(folder), *options]

    return System(
        name=name,
        label=label,
        commands={stage: command(stage) for stage in STAGES},
        paths={stage: f"/v1/workflows/{stage}" for stage in STAGES},
    )


def demands(rows: list[Row]) -> list[Gate]:
    """What serving on Ray has to show beside Ray Serve and beside the local back end."""
    figures = Figures(rows)
    serves = [f"ray-{setup}" for setup in SERVES]
    found = []
    for stage, label in ((NOOP, "no-op"), (CHAIN, "three stages")):
        ours = figures.get(ON_RAY, stage, LIGHT, p50_s)
        theirs = figures.best(serves, stage, LIGHT, p50_s, min)
        found.append(_demand(f"{label}: p50 over Ray Serve's", 0.2, ours, theirs, lambda one, other: one / other))
    ours = figures.get(ON_RAY, NOOP, CLOSED, rate_rps)
    theirs = figures.best(serves, NOOP, CLOSED, rate_rps, max)
    found.append(
        _demand("no-op: throughput over Ray Serve's", 8.0, ours, theirs, lambda one, other: one / other, is_least=True)
    )
    for share in SHARES:
        load = load_name(share)
        figure = figures.get(ON_RAY, BATCHED, load, goodput_share)
        theirs = [(setup, figures.get(f"ray-{setup}", BATCHED, load, goodput_share)) for setup in SERVES]
        beside = ", ".join(f"{setup} {share:.0%}" for setup, share in theirs if share is not None)
        name = f"goodput at {load[:-1]} % over capacity"
        detail = f"Ray Serve, of its capacity: {beside}" if beside else ""
        found.append(Gate(name=name, figure=figure, limit=0.95, is_least=True, detail=detail))
    for stage, label in ((NOOP, "no-op"), (CHAIN, "three stages"), (BATCHED, "8 + 2n ms stage")):
        ours, local = (figures.get(name, stage, LIGHT, p50_s) for name in (ON_RAY, LOCAL))
        name = f"{label}: p50 minus the local back end's, in ms"
        found.append(_demand(name, 0.3, ours, local, lambda one, other: 1e3 * (one - other)))
    return found


def range_table(rows: Sequence[Row]) -> str:
    """The lowest and the highest figure of the repeats, by system."""
    figures = Figures(rows)
    loads = [load_name(share, deadline_s) for deadline_s in (DEADLINE_S, LOOSE_S) for share in SHARES]
    wanted: list[tuple[str, str, str, Callable[[Row], float | None], float]] = [
        ("no-op, p50 ms", NOOP, LIGHT, p50_s, 1e3),
        ("no-op, 32 users, /s", NOOP, CLOSED, rate_rps, 1),
        ("three stages, p50 ms", CHAIN, LIGHT, p50_s, 1e3),
        ("three stages, 32 users, /s", CHAIN, CLOSED, rate_rps, 1),
        ("8 + 2n ms stage, p50 ms", BATCHED, LIGHT, p50_s, 1e3),
        ("8 + 2n ms stage, capacity, /s", BATCHED, CLOSED, rate_rps, 1),
        *((f"goodput, % of capacity, {load}", BATCHED, load, goodput_share, 100) for load in loads),
    ]
    names = [system.name for system in systems("") if any(row.system == system.name for row in rows)]
    lines = [f"| lowest to highest | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for label, stage, load, read, scale in wanted:
        cells = []
        for name in names:
            values = [scale * value for row in figures.rows(name, stage, load) if (value := read(row)) is not None]
            low, high = (f"{pick(values):,.{0 if scale == 1 else 2}f}" for pick in (min, max)) if values else ("", "")
            cells.append(f"{low} to {high} ({len(values)})" if values else "–")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _demand(name, limit, ours, theirs, compare, *, is_least=False) -> Gate:
    if ours is None or not theirs:
        return Gate(name=name, figure=None, limit=limit, is_least=is_least)
    unit, scale = ("/s", 1.0) if is_least else (" ms", 1e3)
    detail = f"{ours * scale:,.2f}{unit} against {theirs * scale:,.2f}{unit}"
    return Gate(name=name, figure=compare(ours, theirs), limit=limit, is_least=is_least, detail=detail)


if __name__ == "__main__":
    sys.exit(main())
