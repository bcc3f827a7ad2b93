"""Nodes of a Ray cluster come and go under load: how fast is a new one of use, and is anything lost when one leaves?

`python benchmarks/cluster/bench_growth.py [--only PART] [--json FILE] [--figure FOLDER]`, with the Python of an
environment that has Fairlead and Ray. The app is that of bench_faults.py: 50 ms of sleep, an objective of 0.5 s.

- join: three raylets with two CPUs each are offered 150 % of their capacity, and a fourth is started. The time counts
  from then until goodput is at 95 % of the new capacity, four thirds of the measured one, in three windows of a second,
  and ends with the first of them.
- leave: that node is drained under 60 % of the new capacity, half of it asynchronous. No accepted request may be lost.
- grow: a cluster with Ray's own autoscaler and its fake provider of machines, which starts raylets here. The policy has
  `--grow`; it asks for nodes when the load goes from 40 to 150 % of the capacity, and gives them back afterwards.

The exit code is 1 if goodput is not there within 10 s, or a request was lost or answered twice.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "live"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "live"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from agent_processes import Load, Watched, answered_twice
from autoscaled import autoscaled
from faults import percent, say, shown
from faulty_app import CODE, SLEEP_S, SLO_S, capacity_rps, prepare
from processes import adopt_orphans
from ray_cluster import RayServed, raylets, serving_on
from serving import wait_for

from fairlead.report.figure import line_figure

JOIN_S = 10.0
REACHED = 0.95
WORKERS = 3  # that the autoscaler may have
LOW, HIGH = 0.4, 1.5
JOINED = "join: at_new_capacity_s"
Found = dict[str, float | None]


class Course:
    """A part of the run: its load, what happened when, and the accounts at its end."""

    def __init__(self, title: str, made: Watched, rate: float, async_rate: float) -> None:
        self.title = title
        self.made = made
        self.load = Load(made, rate, async_rate, async_workflow="task", slo_s=SLO_S, threads=256)
        self.began = time.monotonic()
        self.marks: dict[str, float] = {}
        self.lost: list[str] = []
        self.log = ""

    def mark(self, what: str) -> float:
        """Something happens now: the instant."""
        now = time.monotonic()
        self.marks[what] = now - self.began
        say(f"{now - self.began:5.1f} s: {what}")
        return now

    def goodput_s(self, since: float, level: float) -> float | None:
        """Seconds until goodput is at a level for three windows of a second: the end of the first of them."""
        at = since
        while at + 3 <= max((due for due, _ in self.load.sent), default=since):
            if all(self.load.goodput(at + n, at + n + 1) >= level for n in range(3)):
                return at + 1 - since
            at += 0.25
        return None

    def close(self) -> None:
        """Wait for what is open, and see what became of it."""
        ends = self.load.ends()
        self.lost = [id for id in self.load.accepted if ends.get(id) != "completed"]
        self.log = self.made.served.err

    def points(self) -> list[tuple[float, float]]:
        """Goodput per second of the course."""
        seconds = range(int(max(due for due, _ in self.load.sent) - self.began))
        return [(at, self.load.goodput(self.began + at, self.began + at + 1)) for at in map(float, seconds)]


def join_and_leave(folder: Path) -> tuple[list[Course], Found]:
    """A fourth node joins under overload, and is drained under a mixed load."""
    with (
        raylets(head={"num_cpus": 2, "_system_config": {}}, others=({"num_cpus": 2},) * 2) as cluster,
        serving_on(cluster.address, folder, code=CODE) as served,
    ):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray has set one of its own
        made = RayServed(cluster, served)
        capacity = capacity_rps(made)
        say(f"capacity {capacity:.1f}/s")
        joining = Course("a node joins", made, HIGH * capacity, 0.0)
        with joining.load.running():
            time.sleep(8.0)
            begun = joining.mark("a raylet is started")
            node = cluster.add(num_cpus=2)
            registered = joining.mark("Ray has it")
            wait_for(lambda: len(made.nodes) == 4, 60)
            joined = joining.mark("the gateway has it")
            time.sleep(15.0)
            ended = time.monotonic()
        rate = 0.6 * 4 / 3 * capacity
        leaving = Course("a node leaves", made, rate / 2, rate / 2)
        with leaving.load.running():
            time.sleep(6.0)
            name = made.name_of(node)
            asked = leaving.mark("a node is drained")
            assert served.ask("POST", f"/v1/nodes/{name}/drain").status == 202
            wait_for(lambda: name not in made.nodes, 60)
            left = leaving.mark("it has left")
            time.sleep(8.0)
        leaving.close()
    return [joining, leaving], {
        "capacity_rps": capacity,
        "join: offered_rps": HIGH * capacity,
        "join: goodput_before_rps": joining.load.goodput(begun - 5, begun),
        "join: goodput_after_rps": joining.load.goodput(ended - 10, ended),
        "join: wanted_rps": REACHED * 4 / 3 * capacity,
        "join: registered_s": registered - begun,
        "join: joined_s": joined - begun,
        JOINED: joining.goodput_s(begun, REACHED * 4 / 3 * capacity),
        "leave: offered_rps": rate,
        "leave: left_s": left - asked,
        "leave: attainment_before": leaving.load.attainment(asked - 5, asked),
        "leave: attainment_in_10_s_after": leaving.load.attainment(asked, asked + 10),
    }


def grow(folder: Path) -> tuple[list[Course], Found]:
    """The policy asks Ray's autoscaler for nodes when the load rises, and gives them back when it falls."""
    with (
        autoscaled(folder, most=WORKERS) as address,
        serving_on(address, folder, "--grow", f"cpu=2..{WORKERS + 1}", code=CODE) as served,
    ):
        made = Watched()
        made.served = served
        wait_for(lambda: len(made.nodes) == 2, 60)  # the head, and the first worker
        capacity = 3 / SLEEP_S  # of three vCPUs; a closed loop that measures it would make the cluster grow
        course = Course("the policy grows and shrinks the cluster", made, LOW * capacity, 0.1 * capacity)
        with course.load.running():
            time.sleep(10.0)
            raised = course.mark(f"the load rises to {HIGH:.0%}")
            course.load.rate = HIGH * capacity
            wait_for(lambda: len(made.nodes) > 2, 120, lambda: served.err)
            joined = course.mark("a node has joined")
            time.sleep(20.0)
            full = len(made.nodes)
            lowered = course.mark(f"the load falls to {LOW:.0%}")
            course.load.rate = LOW * capacity
            wait_for(lambda: "was given back" in served.err, 180, lambda: served.err)
            left = course.mark("a node was given back")
            time.sleep(5.0)
            ended = time.monotonic()
        course.close()
    return [course], {
        "capacity_rps": capacity,
        "grow: nodes_at_the_most": full,
        "grow: joined_s": joined - raised,
        "grow: goodput_before_rps": course.load.goodput(raised - 5, raised),
        "grow: goodput_when_grown_rps": course.load.goodput(lowered - 8, lowered),
        "grow: given_back_s": left - lowered,
        "grow: attainment_while_shrinking": course.load.attainment(lowered, ended),
    }


PARTS: dict[str, Callable[[Path], tuple[list[Course], Found]]] = {"nodes": join_and_leave, "grow": grow}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument("--figure", type=Path, metavar="FOLDER", help="write goodput over time as SVG files")
    options = parser.parse_args()
    adopt_orphans()
    prepare()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    missed: list[str] = []
    written: dict[str, object] = {}
    for part in options.only or PARTS:
        with tempfile.TemporaryDirectory(prefix="fairlead-growth-") as name:
            courses, found = PARTS[part](Path(name))
            for course in courses:
                twice = answered_twice(Path(name) / "state", course.load.accepted)
                accepted, lost = len(course.load.accepted), len(course.lost)
                print(f"\n{course.title}: {accepted} asynchronous requests, {lost} lost, {len(twice)} twice")
                if lost or twice:
                    missed.append(f"{course.title}: {lost} lost, {len(twice)} twice")
                written[course.title] = {"marks": course.marks, "goodput_rps": course.points(), "log": course.log}
                if options.figure is not None:
                    draw(course, options.figure)
        for what, figure in found.items():
            print(f"{what:35} {percent(figure) if 'attainment' in what else shown(figure)}")
        if JOINED in found and (found[JOINED] is None or found[JOINED] > JOIN_S):
            missed.append(f"goodput was at the new capacity after {shown(found[JOINED])} s")
        written[part] = found
    if options.json is not None:
        options.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print("\n" + ("\n".join(f"MISSED {line}" for line in missed) or "every bar is met"))
    return 1 if missed else 0


def draw(course: Course, folder: Path) -> None:
    """Write goodput over time, with what happened."""
    title = f"On Ray, {course.title}: answers in time per second"
    lines = {"goodput": course.points()}
    svg = line_figure(title, lines, x_label="seconds", y_label="requests/s", marks=course.marks)
    path = folder / f"ray-{course.title.replace(' ', '-')}.svg"
    path.write_text(svg, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    sys.exit(main())
