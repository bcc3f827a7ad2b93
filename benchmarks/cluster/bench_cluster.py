"""The same stages and the same load on one Ray cluster: on Fairlead, on Ray Serve, and on Fairlead's local back end.

`python benchmarks/cluster/bench_cluster.py [--quick] [--repeat N] [--json FILE] [--markdown FILE]`, with the Python of
an environment that has Fairlead and `ray[serve]` (requirements/bench-live.txt).

The cluster is three raylets of this machine with 2, 1 and 1 CPUs, and it stays up for the whole run, so that all
systems have the same neighbours. Every function has one instance, and one replica at Ray Serve, whose better set-up
counts. Capacity is what a closed loop of 32 users gets; goodput is at shares of each one's own capacity, with 50 ms for
a stage whose batch of n takes 8 + 2n ms. The exit code is 1 if a demand is missed.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

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
from rows import CLOSED, LIGHT, QUICK, Lengths, Row
from systems import BATCHED, CHAIN, NOOP, STAGES, Command, System, ray_command
from tables import capacity_table, gate_table, noop_table, overload_table

HERE = Path(__file__).resolve().parent
ON_RAY, LOCAL = "fairlead-ray", "fairlead-local"
SERVES = {"throughput": "256 ongoing, optimised for throughput", "256": "256 ongoing"}
SHARES = (1.3, 3.0, 10.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short rows, for a look")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs, of which the median counts")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this system; repeatable")
    parser.add_argument("--stage", action="append", choices=STAGES, help="only this stage; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    options = parser.parse_args()
    adopt_orphans()
    os.environ["PYTHONPATH"] = str(HERE.parents[1] / "src")  # for agents and instances
    rows: list[Row] = []
    failures: list[str] = []
    lengths = QUICK if options.quick else Lengths()
    # A kind stands for nodes of one size: the larger one has a kind of its own.
    head, *others = ({"num_cpus": vcpus, "labels": {"fairlead.io/kind": f"cpu-{vcpus}"}} for vcpus in VCPUS)
    with raylets(head=head, others=others) as cluster:
        # So that what was measured is shown then, too. Ray sets a handler of its own when a node starts.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        known = systems(cluster.address)
        if unknown := set(options.only or ()) - {system.name for system in known}:
            parser.error(f"--only {min(unknown)}: is none of {', '.join(system.name for system in known)}.")
        chosen = [system for system in known if not options.only or system.name in options.only]
        try:
            for number, system in interleaved(chosen, options.repeat):
                say(f"[{number + 1}/{options.repeat}] {system.label}")
                for stage in options.stage or STAGES:
                    rows += run_system(system, (stage,), lengths, failures, SHARES)
        except KeyboardInterrupt:
            failures.append("Interrupted.")
    found = demands(rows)
    tables = [table(rows, chosen) for table in (noop_table, capacity_table, overload_table)]
    text = "\n\n".join([*tables, gate_table(found), *failures])
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(f"{text}\n", encoding="utf-8")
    if options.json is not None:
        options.json.write_text(json.dumps(msgspec.to_builtins(rows), indent=1) + "\n", encoding="utf-8")
    return 1 if failures or any(demand.is_met is False for demand in found) else 0


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
        load = f"{share:.0%}"
        figure = figures.get(ON_RAY, BATCHED, load, goodput_share)
        found.append(Gate(name=f"goodput at {load[:-1]} % over capacity", figure=figure, limit=0.95, is_least=True))
    for stage, label in ((NOOP, "no-op"), (CHAIN, "three stages"), (BATCHED, "8 + 2n ms stage")):
        ours, local = (figures.get(name, stage, LIGHT, p50_s) for name in (ON_RAY, LOCAL))
        name = f"{label}: p50 minus the local back end's, in ms"
        found.append(_demand(name, 0.3, ours, local, lambda one, other: 1e3 * (one - other)))
    return found


def _demand(name, limit, ours, theirs, compare, *, is_least=False) -> Gate:
    if ours is None or not theirs:
        return Gate(name=name, figure=None, limit=limit, is_least=is_least)
    unit, scale = ("/s", 1.0) if is_least else (" ms", 1e3)
    detail = f"{ours * scale:,.2f}{unit} against {theirs * scale:,.2f}{unit}"
    return Gate(name=name, figure=compare(ours, theirs), limit=limit, is_least=is_least, detail=detail)


if __name__ == "__main__":
    sys.exit(main())
