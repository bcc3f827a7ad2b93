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
from dataclasses import asdict, dataclass
from os import getloadavg
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "live"))

from agent_processes import Cluster, Load, answered_twice, cluster, kill_gateway
from serving import wait_for

LOSS_S, RECOVERY_S, ANSWER_S = 2.0, 5.0, 2.0
BEFORE_S = 5.0  # over which the level is taken
TOLERANCE = 0.05


@dataclass
class Fault:
    """One fault, and what followed."""

    kind: str
    at: float
    level: float | None = None
    corrected_s: float | None = None
    recovered_s: float | None = None
    adopted: str = ""
    waited_s: float | None = None  # for a CPU that other programs used, of a gateway that started


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
        for fault in faults:
            fault.level = load.attainment(fault.at - BEFORE_S, fault.at)
            if fault.level is not None:
                fault.recovered_s = load.recovery_s(fault.at, fault.level - TOLERANCE)
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
    print(f"\naccepted asynchronous requests   {len(load.accepted)}")
    print(f"lost                             {len(lost)}")
    print(f"twice or unended in the journal  {len(twice)}")
    print(f"late answers dropped, at least   {late}")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"faults": [asdict(fault) for fault in faults], "lost": lost, "twice": twice})
        )
    missed = [f"{len(lost)} lost, {len(twice)} twice"] if lost or twice else []
    missed += [f"{fault.kind}: {what}" for fault in faults for what in misses(fault)]
    print("\n" + ("\n".join(f"MISSED {line}" for line in missed) or "every bar is met"))
    return 1 if missed else 0


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


def misses(fault: Fault) -> list[str]:
    """The bars that a fault missed."""
    found = []
    corrected_s = fault.corrected_s or 0.0
    if fault.adopted:
        if corrected_s > ANSWER_S:
            found.append(f"the first answer came after {corrected_s:.2f} s")
        kept, _, before = fault.adopted.partition(" of ")
        if kept != before:
            found.append(f"{fault.adopted} instances were adopted")
    elif corrected_s > LOSS_S:
        found.append(f"capacity was corrected after {corrected_s:.2f} s")
    if fault.recovered_s is None or fault.recovered_s > RECOVERY_S:
        found.append(f"attainment was back after {shown(fault.recovered_s)} s")
    return found


def table(faults: list[Fault]) -> str:
    lines = [
        "| fault | attainment before | corrected, or first answer (s) | of it, waited for a CPU (s) "
        "| attainment back (s) | adopted |",
        "|---|---|---|---|---|---|",
    ]
    for fault in faults:
        level = "-" if fault.level is None else f"{100 * fault.level:.1f} %"
        corrected, recovered = shown(fault.corrected_s), shown(fault.recovered_s)
        waited = "-" if fault.waited_s is None else shown(fault.waited_s)
        lines.append(f"| {fault.kind} | {level} | {corrected} | {waited} | {recovered} | {fault.adopted or '-'} |")
    return "\n".join(lines)


def shown(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.2f}"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
