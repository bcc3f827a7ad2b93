"""Three agents as processes on loopback, one app under load, one fault after the other: what is lost, and for how long?

`python benchmarks/live/bench_faults.py [--rounds 3] [--rate 20] [--async-rate 10] [--settle 6] [--json FILE]`

Each round kills an agent (SIGKILL), freezes a node (SIGSTOP of the agent and its instances), cuts a node's connections,
and kills the gateway. For each fault the table has the time until the gateway does not count on the node any more, and
the time until attainment is back at its level: within five points of what it was in the seconds before, in three
consecutive windows of one second. At the end every accepted asynchronous request must have been completed, once.

A gateway that starts again uses about a second of CPU time; on a machine that does much else most of its start is
waiting for a CPU, which the table shows. The exit code is 1 if a bar is missed: a request lost or answered twice,
capacity corrected later than 2 s, attainment back later than 5 s, a gateway that answers later than 2 s or whose
instances were started again.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from os import getloadavg
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "live"))

from agent_processes import Cluster, Load, answered_twice, cluster, kill_gateway
from faults import BEFORE_S, Fault, accounts, judge, say, table, verdict
from serving import wait_for


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=20.0, help="synchronous requests per second")
    parser.add_argument("--async-rate", type=float, default=10.0, help="asynchronous requests per second")
    parser.add_argument("--settle", type=float, default=6.0, help="seconds between two faults")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    options = parser.parse_args()
    load_before = getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fairlead-faults-") as folder, cluster(Path(folder)) as made:
        load = Load(made, options.rate, options.async_rate)
        faults: list[Fault] = []
        with load.running():
            time.sleep(BEFORE_S)
            for number in range(options.rounds):
                say(f"round {number + 1} of {options.rounds}")
                faults += one_round(made, options.settle)
        judge(faults, load)
        load.accepted += made.lingering
        ends = load.ends()
        lost = [id for id in load.accepted if ends.get(id) != "completed"]
        late = made.late_answers
        made.served.stop()
        twice = answered_twice(Path(folder) / "state", load.accepted)
    print(
        f"\nload average before {load_before:.1f}, after {getloadavg()[0]:.1f}; {len(load.sent)} synchronous requests"
    )
    print(table(faults))
    print(f"\n{accounts(load, lost, twice, late)}")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"faults": [asdict(fault) for fault in faults], "lost": lost, "twice": twice})
        )
    return verdict(faults, lost, twice)


def one_round(made: Cluster, settle_s: float) -> list[Fault]:
    """Every fault once, each with time to recover."""
    faults = []
    a, _, c = made.agents.values()

    faults.append(Fault("kill -9 of an agent", time.monotonic()))
    a.kill()
    faults[-1].corrected_s = made.wait_for_loss(a.name, 30)
    time.sleep(settle_s)
    a.start()
    wait_for(lambda: a.name in made.nodes)
    time.sleep(settle_s)

    frozen = made.freeze_while_busy()
    faults.append(Fault("a busy node is frozen", time.monotonic()))
    faults[-1].corrected_s = made.wait_for_loss(frozen.name, 30)
    time.sleep(settle_s)
    frozen.thaw()
    wait_for(lambda: frozen.name in made.nodes)
    time.sleep(settle_s)

    faults.append(Fault("a node is cut off", time.monotonic()))
    c.proxy.cut()
    faults[-1].corrected_s = made.wait_for_loss(c.name, 30)
    time.sleep(settle_s)
    c.proxy.mend()
    wait_for(lambda: c.name in made.nodes)
    time.sleep(settle_s)

    faults.append(Fault("kill -9 of the gateway", time.monotonic()))
    restart = kill_gateway(made)
    faults[-1].corrected_s = restart.first_answer_s
    kept = len(restart.before.keys() & restart.after.keys())
    faults[-1].adopted = f"{kept} of {len(restart.before)}"
    faults[-1].waited_s = restart.waited_s
    time.sleep(settle_s)
    return faults


if __name__ == "__main__":
    sys.exit(main())
