"""An app on three raylets under load (`--backend ray`), one fault after the other: what is lost, and for how long?

`python benchmarks/cluster/bench_faults.py [--requests 10000] [--share 0.7] [--gcs rocksdb|memory] [--only FAULT]
[--json FILE] [--figure FILE.svg]`, with the Python of an environment that has Fairlead and Ray.

The app's only function sleeps for 50 ms. The nodes have two CPUs each, so there is room for six instances. Capacity is
what a closed loop of 32 users gets. The load is a share of it: synchronous requests with an objective of 0.5 s, and
asynchronous ones with an objective of a minute, sent whether earlier ones were answered or not. A synchronous request
is in time if its client has the answer 0.5 s after it was due. Ray has its own default times for the health of nodes.

For each fault the table has the time until the gateway does not count on what was lost (after a kill of the gateway:
until the next one answers), the time until attainment is within five points of the seconds before in three consecutive
windows of one second, the attainment of what was sent in the 10 s after it, and the time until all nodes are used
again. In the end every accepted asynchronous request must have been completed, once. The exit code is 1 if a bar is
missed: a request lost or answered twice, capacity corrected later than 2 s, attainment back later than 5 s, a gateway
that answers later than 2 s or whose instances were started again.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "live"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "live"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from agent_processes import Load, answered_twice, kill_gateway
from faults import BEFORE_S, Fault, accounts, judge, say, table, verdict
from faulty_app import CODE, SLO_S, capacity_rps, prepare
from processes import adopt_orphans
from ray_cluster import RayNode, RayServed, raylets, serving_on
from serving import kill, wait_for

from fairlead.report.figure import line_figure

GAP_S = 12.0  # after a fault has been mended, before the next
SYNC_SHARE = 0.4  # of all requests
WINDOW_S = 1.0  # of a point in the figure
BACK_S = 90.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="accepted asynchronous requests, at least")
    parser.add_argument("--share", type=float, default=0.7, help="of the measured capacity that is offered")
    parser.add_argument(
        "--gcs", choices=("rocksdb", "memory"), default="rocksdb", help="where Ray's GCS keeps its data"
    )
    parser.add_argument("--only", action="append", choices=FAULTS, help="only this fault; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write attainment over time as SVG")
    options = parser.parse_args()
    adopt_orphans()
    chosen = [name for name in FAULTS if not options.only or name in options.only]
    with tempfile.TemporaryDirectory(prefix="fairlead-faults-") as name:
        folder = Path(name)
        with served(folder, options.gcs) as made:
            capacity = capacity_rps(made)
            rate = options.share * capacity
            say(f"capacity {capacity:.1f}/s; offered {rate:.1f}/s")
            load = Load(
                made, SYNC_SHARE * rate, (1 - SYNC_SHARE) * rate, async_workflow="task", slo_s=SLO_S, threads=128
            )
            began = time.monotonic()
            faults: list[Fault] = []
            with load.running():
                time.sleep(2 * BEFORE_S)
                for kind in chosen:
                    say(f"{time.monotonic() - began:5.0f} s: {kind}")
                    faults.append(befall(made, kind))
                    time.sleep(GAP_S)
                wait_for(lambda: len(load.accepted) >= options.requests, 600)
            seconds = time.monotonic() - began
            judge(faults, load)
            say(f"{seconds:5.0f} s: the load ends; waiting for what is open")
            ends = load.ends()
            lost = [id for id in load.accepted if ends.get(id) != "completed"]
            late = made.late_answers
            log = made.served.err
        twice = answered_twice(folder / "state", load.accepted)
    shares = [
        (at - began, load.attainment(at, at + WINDOW_S))
        for at in (began + WINDOW_S * number for number in range(int(seconds / WINDOW_S)))
    ]
    print(
        f"\ncapacity {capacity:.1f}/s, offered {rate:.1f}/s for {seconds:.0f} s; GCS data in {options.gcs}; "
        f"{len(load.sent)} synchronous requests, {100 * (load.attainment(began, began + seconds) or 0):.1f} % in time"
    )
    print(table(faults))
    print(f"\n{accounts(load, lost, twice, late)}")
    if options.json is not None:
        found = {"capacity_rps": capacity, "offered_rps": rate, "gcs": options.gcs, "accepted": len(load.accepted)}
        rows = [{**asdict(fault), "at": fault.at - began} for fault in faults]
        found |= {"faults": rows, "lost": lost, "twice": twice, "attainment": shares, "log": log.splitlines()}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.figure is not None:
        points = [(at, 100 * share) for at, share in shares if share is not None]
        svg = line_figure(
            "Synchronous requests on three Ray nodes: share in time, per second",
            {"in time": points},
            x_label="seconds",
            y_label="%",
            marks={fault.kind: fault.at - began for fault in faults},
        )
        options.figure.write_text(svg, encoding="utf-8", newline="\n")
    return verdict(faults, lost, twice)


@contextmanager
def served(folder: Path, gcs: str) -> Iterator[RayServed]:
    """The app on three raylets."""
    if gcs == "rocksdb":
        (folder / "gcs").mkdir()
        os.environ |= {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(folder / "gcs")}
    prepare()
    with raylets(head={"num_cpus": 2, "_system_config": {}}, others=({"num_cpus": 2},) * 2) as cluster:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray has set one of its own
        with serving_on(cluster.address, folder, code=CODE) as gateway:
            yield RayServed(cluster, gateway)


# --- faults --------------------------------------------------------------------------------------------------------


def befall(made: RayServed, kind: str) -> Fault:
    """One fault, and the time until all is there again."""
    nodes = len(made.nodes)
    fault = Fault(kind, time.monotonic())
    FAULTS[kind](made, fault)
    wait_for(lambda: len(made.nodes) == nodes, BACK_S, lambda: f"a node is missing: {made.served.err}")
    fault.whole_s = time.monotonic() - fault.at
    return fault


def kill_instance(made: RayServed, fault: Fault) -> None:
    said = made.served.err.count("ended by SIGKILL")
    victim = victim_of(made).instances[0]
    fault.at = time.monotonic()
    kill(victim)
    wait_for(lambda: made.served.err.count("ended by SIGKILL") > said, 30)
    fault.corrected_s = time.monotonic() - fault.at


def kill_agent(made: RayServed, fault: Fault) -> None:
    lose(made, fault, lambda node: kill(node.agent))


def kill_raylet(made: RayServed, fault: Fault) -> None:
    lose(made, fault, made.cluster.remove)
    made.cluster.add(num_cpus=2)


def freeze(made: RayServed, fault: Fault) -> None:
    node = lose(made, fault, RayNode.freeze)
    time.sleep(6.0)
    node.thaw()


def kill_gcs(made: RayServed, fault: Fault) -> None:
    fault.at = time.monotonic()
    made.cluster.kill_gcs()
    time.sleep(5.0)
    made.cluster.start_gcs()


def kill_the_gateway(made: RayServed, fault: Fault) -> None:
    fault.at = time.monotonic()
    restart = kill_gateway(made)
    kept = len(restart.before.keys() & restart.after.keys())
    fault.corrected_s, fault.waited_s = restart.first_answer_s, restart.waited_s
    fault.adopted = f"{kept} of {len(restart.before)}"


def lose(made: RayServed, fault: Fault, act: Callable[[RayNode], object]) -> RayNode:
    """Do something to a node by which it is lost, and wait until the gateway knows."""
    node = victim_of(made)
    name = made.name_of(node)
    fault.at = time.monotonic()
    act(node)
    made.wait_for_loss(name, 60)
    fault.corrected_s = time.monotonic() - fault.at
    return node


def victim_of(made: RayServed) -> RayNode:
    """A node other than the head, which has the GCS."""
    return made.cluster.nodes[1]


FAULTS: dict[str, Callable[[RayServed, Fault], None]] = {
    "kill -9 of an instance": kill_instance,
    "kill -9 of an agent": kill_agent,
    "kill -9 of a raylet, a new one": kill_raylet,
    "a node is frozen for 8 s": freeze,
    "kill -9 of the GCS, for 5 s": kill_gcs,
    "kill -9 of the gateway": kill_the_gateway,
}


if __name__ == "__main__":
    sys.exit(main())
