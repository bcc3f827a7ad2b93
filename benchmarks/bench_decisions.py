"""How long a decision takes with 1,000 and with 20,000 waiting invocations, for every dispatcher, on 16 nodes.

Requests of three workflows with different objectives fill the queues; each is a chain of three functions with batches
of 1, 2, 4 and 8. Then batches end one at a time, and as many requests arrive as were answered, so that the backlog
stays. The figure is CPU time per call of the policy, `observe` included, after the queues were filled; the time to take
in an arrival while they fill is shown apart. Objectives are so loose that nothing is late. A policy that still
refuses requests, or needs longer than `--limit-s` to take them in, holds fewer: its mean backlog is in the table.
The exit code is 1 if a policy takes more than 1.5 times as long with the largest backlog as with the smallest.
Usage: python benchmarks/bench_decisions.py [--policy NAME ...] [--json FILE]
"""

import argparse
import gc
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf
from pathlib import Path
from statistics import fmean
from time import thread_time

from rich.console import Console
from rich.table import Table as Sheet

from fairlead.engine.core import Controller
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.books import NoRows
from fairlead.engine.core.site import make_site, prepare
from fairlead.model import SLO, Buffer, Cluster, Device, Node, Record, Request, Workflow
from fairlead.policy import make_policy, policy_class, policy_names, role
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Scenario

NODES = 16
BATCHES = (1, 2, 4, 8)
SLOS_S = {"tight": 1000.0, "middle": 2000.0, "loose": 4000.0}
BASES_S = {"first": 0.05, "second": 0.08, "third": 0.03}  # time of one invocation; eight take 3.8 times as long
COLD_S = 0.05
CHUNK = 100  # requests that arrive at one instant while the queues fill
GAP_S = 1e-6  # between two of these instants
MOST_MORE = 2048  # requests beyond the backlog, since some run
MOST_RATIO = 1.5
GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are spread evenly

GPU = {"aquatope", "clockwork", "clockwork-naive", "esg", "fairlead", "fast-gshare", "infless", "orion", "pard"}
KERNELS = {"mqfq-sticky"}  # besides those whose names begin with kaas-


def spread(number: int) -> float:
    """A number in [0, 1), different for each `number`."""
    return number * GOLDEN % 1


def world(name: str) -> Scenario:
    """16 nodes of 16 vCPUs; with an accelerator of 7 vGPUs each in the worlds `gpu` and `kernels`."""
    flows = {key: Workflow.chain(key, *BASES_S, slo=SLO(latency_s=slo_s)) for key, slo_s in SLOS_S.items()}
    on = cluster(NODES, vcpus=16, vgpus=0 if name == "cpu" else 7)
    if name == "kernels":
        device = Device(vgpus=7, memory_gb=40, load_gb_per_s=8, allocation_s=0.01, executor_start_s=0.5)
        on = Cluster(nodes=tuple(Node(name=f"n{i}", kind="gpu", vcpus=16, devices=(device,)) for i in range(NODES)))
    functions = {key: _function(name, base_s) for key, base_s in BASES_S.items()}
    return scenario(functions, workflows=flows, arrivals=(), on=on, duration_s=1e6)


def _function(world: str, base_s: float) -> object:
    times_s = {batch: base_s * (0.6 + 0.4 * batch) for batch in BATCHES}
    if world == "cpu":
        rows = [Row(batch=batch, vcpus=4, seconds=seconds) for batch, seconds in times_s.items()]
    else:
        vcpus = 0 if world == "kernels" else 1
        rows = [
            Row(batch=batch, vcpus=vcpus, vgpus=vgpus, seconds=seconds / vgpus**0.7)
            for batch, seconds in times_s.items()
            for vgpus in (1, 2, 4)
        ]
    if world == "kernels":
        buffers = (Buffer(name="weights", size_mb=1024), Buffer(name="input", size_mb=8, kind="input"))
        return declared(Table(tuple(rows)), idle_holds="memory", buffers=buffers)
    return declared(Table(tuple(rows)), cold_start_s=COLD_S, keep_alive_s=1e6)


@dataclass(frozen=True)
class Measured:
    """One run: the mean backlog, and microseconds of CPU time per decision, on average and at most but for 1 %."""

    waiting: float
    decision_us: float
    p99_us: float
    arrival_us: float
    decisions: int
    refused: int


class Run:
    """A controller with one policy, and the world that it asks to act."""

    def __init__(self, name: str, world: Scenario) -> None:
        policy = make_policy(name)
        arrivals = [(0.0, flow) for flow in SLOS_S] if policy.clairvoyant else None
        prepare([policy], [name], world, 0, arrivals)
        self.observed_s = 0.0
        if policy.observes:
            self._observe = policy.observe
            policy.observe = self._timed  # type: ignore[method-assign]
        self.controller = Controller(world, policy, None, thread_time, (name, "scaler"), NoRows())
        self.kinds = {node.name: node.kind for node in world.cluster.nodes}
        self.profiles = make_site(world).profiles
        self.now, self.finished, self.refused, self.answered = 0.0, 0, 0, 0
        self._requests = count()
        self._events: list[tuple[float, int, ev.Event]] = []
        self._order = count()

    def _timed(self, record: Record) -> None:
        before = thread_time()
        self._observe(record)
        self.observed_s += thread_time() - before

    @property
    def waiting(self) -> int:
        """Invocations that wait now."""
        return len(self.controller.waiting.tasks)

    @property
    def busy_s(self) -> float:
        """CPU time spent in the policy so far."""
        return sum(self.controller.decisions.times_s) + self.observed_s

    def arrive(self, requests: int) -> Iterator[ev.Event]:
        """New requests: of the workflows in turn, with deadlines up to half as far again as their objective."""
        for id in (next(self._requests) for _ in range(requests)):
            workflow = list(SLOS_S)[id % len(SLOS_S)]
            yield ev.Arrived(Request(id, workflow, self.now, self.now + SLOS_S[workflow] * (1 + spread(id) / 2)))

    def tell(self, *events: ev.Event) -> None:
        """Let these events happen now, and note what follows."""
        for effect in self.controller.handle(self.now, events):
            match effect:
                case fx.StartInstance():
                    self._later(effect.at + COLD_S, ev.InstanceReady(effect.instance))
                case fx.RunBatch():
                    profile = self.profiles[effect.function]
                    seconds = profile.latency_s(effect.configuration, self.kinds[effect.node])
                    seconds *= 0.8 + 0.4 * spread(effect.batch)  # no two end at one instant
                    self._later(effect.at + seconds, ev.Finished(effect.batch, seconds))
                case fx.Answer():
                    self.answered += 1
                case fx.Refuse():
                    self.refused += 1

    def _later(self, at: float, event: ev.Event) -> None:
        heappush(self._events, (at, next(self._order), event))

    def fill(self, backlog: int, limit_s: float) -> float:
        """Let requests arrive until `backlog` invocations wait; gives the CPU time per arrival."""
        sent = 0
        while self.waiting < backlog and sent < backlog + MOST_MORE and self.busy_s < limit_s:
            more = min(CHUNK, backlog - self.waiting)
            self.tell(*self.arrive(more))
            self.now += GAP_S
            sent += more
        return self.busy_s / sent

    def step(self) -> bool:
        """Go on to the next instant at which anything happens; False if there is none."""
        wake = self.controller.next_wake
        at = min(wake, self._events[0][0] if self._events else inf)
        if at == inf:
            return False
        self.now = max(self.now, at)
        due = []
        while self._events and self._events[0][0] <= self.now:
            due.append(heappop(self._events)[2])
        self.finished += sum(isinstance(event, ev.Finished) for event in due)
        answered, self.answered = self.answered, 0
        self.tell(*due, *self.arrive(answered))
        return True


def measure(name: str, where: Scenario, backlog: int, completions: int, limit_s: float) -> Measured:
    """Fill the queues, let a few batches end, then measure until `completions` more have ended."""
    run = Run(name, where)
    gc.collect()
    gc.disable()
    try:
        arrival_s = run.fill(backlog, limit_s)
        while run.finished < completions // 6 and run.busy_s < 2 * limit_s and run.step():
            pass
        began_s, decided, until = run.busy_s, len(run.controller.decisions.times_s), run.finished + completions
        seen = [run.waiting]
        while run.finished < until and run.busy_s < 3 * limit_s and run.step():
            seen.append(run.waiting)
    finally:
        gc.enable()
    times_s = sorted(run.controller.decisions.times_s[decided:])
    decision_s = (run.busy_s - began_s) / len(times_s) if times_s else inf
    p99_s = times_s[int(0.99 * (len(times_s) - 1))] if times_s else inf
    return Measured(fmean(seen), 1e6 * decision_s, 1e6 * p99_s, 1e6 * arrival_s, len(times_s), run.refused)


def compare(name: str, options: argparse.Namespace) -> tuple[Measured, Measured]:
    """The quickest run with each backlog, of several in turn; runs that take long are not repeated."""
    where = world_of(name)
    runs: tuple[list[Measured], list[Measured]] = ([], [])
    for _ in range(options.repeats):
        before = thread_time()
        for found, backlog in zip(runs, options.waiting, strict=True):
            found.append(measure(name, world(where), backlog, options.completions, options.limit_s))
        if thread_time() - before > options.limit_s / 4:
            break
    small, large = (min(found, key=lambda run: run.decision_us) for found in runs)
    return small, large


def world_of(policy: str) -> str:
    """Which world a policy is measured in."""
    if policy in KERNELS or policy.startswith("kaas-"):
        return "kernels"
    return "gpu" if policy in GPU else "cpu"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    dispatchers = [name for name in policy_names() if role(policy_class(name)) == "dispatch"]
    parser.add_argument("--policy", action="append", choices=dispatchers, help="one policy (may be repeated)")
    parser.add_argument("--waiting", type=int, nargs=2, default=(1_000, 20_000), help="the two backlogs")
    parser.add_argument("--completions", type=int, default=300, help="batches that end while it is measured")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the quickest counts (default: 3)")
    parser.add_argument("--limit-s", type=float, default=60.0, help="CPU time to fill the queues (default: 60)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to a file")
    options = parser.parse_args()
    small, large = options.waiting
    heads = ("policy", "world", f"us at {small:,}", f"at {large:,}", "p99", "ratio", "us per arrival", "backlogs held")
    sheet = Sheet(*heads)
    console, written, missed = Console(width=120), {}, []
    for name in options.policy or dispatchers:
        where, found = world_of(name), compare(name, options)
        ratio = found[1].decision_us / found[0].decision_us
        missed += [name] if ratio > MOST_RATIO else []
        cells = [f"{each.decision_us:,.0f}" for each in found]
        arrivals = " / ".join(f"{each.arrival_us:,.1f}" for each in found)
        held = " / ".join(f"{each.waiting:,.0f}" for each in found)
        p99s = " / ".join(f"{each.p99_us:,.0f}" for each in found)
        sheet.add_row(name, where, *cells, p99s, f"{ratio:.2f}", arrivals, held)
        console.print(name, *cells, f"{ratio:.2f}", held, highlight=False, style="dim")
        written[name] = {"world": where, "ratio": ratio, "runs": [asdict(each) for each in found]}
    console.print(sheet)
    if missed:
        console.print(f"More than {MOST_RATIO} times: {', '.join(missed)}", highlight=False)
    if options.json:
        options.json.write_text(json.dumps(written, indent=1) + "\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
