"""How long a turn of the controller takes in a large cluster, on virtual time: no process is started.

    python benchmarks/live/bench_scale.py [--nodes 1000] [--instances 10000] [--functions 2000] [--rate 5000]

Workflows of two functions each are called at random, at `--rate` requests per second together. A turn is what the
runtime does at one instant: it tells the controller what happened and has its wishes carried out. Its time is CPU time
of the thread, so other load on the machine does not count. The gate is a 99th percentile of at most 10 ms.

The clock is virtual: a turn takes none of its time, so each event has a turn of its own. `busy` says which share of
real time these turns would take. With `--charged` the clock moves on by the CPU time of every turn, as it does in a
gateway: what happens meanwhile is handled together in the next turn, and deadlines are missed where one gateway is not
enough. `--profile` shows where the time goes.
"""

import argparse
import asyncio
import cProfile
import pstats
import resource
from dataclasses import replace
from time import perf_counter, thread_time

import numpy as np

from fairlead.app import App
from fairlead.app.scenario import scenario_of
from fairlead.engine.live.clock import Clock
from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.instances import Instances, SharedProvider
from fairlead.engine.live.runtime import Runtime
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import Ending, encode
from fairlead.model import Cluster, Node
from fairlead.testing.virtual import Traits, VirtualCluster, VirtualLoop, VirtualProvider, run, sleep
from fairlead.workload import PolicyChoice

GATE_S = 0.010
WORK_S = 0.020  # of one function, for one invocation
SETTLE_S = 1.0  # virtual seconds of load before anything is measured


class Timed:
    """Takes the CPU time of every turn of a runtime."""

    def __init__(self, runtime: Runtime, charged: VirtualLoop | None) -> None:
        self.turns_s: list[float] = []
        self.events = 0
        self._runtime = runtime
        self._charged = charged
        self._take = runtime._take_turn
        runtime._take_turn = self._timed  # type: ignore[method-assign]

    def _timed(self) -> None:
        self.events += len(self._runtime._events)
        began = thread_time()
        self._take()
        turn_s = thread_time() - began
        self.turns_s.append(turn_s)
        if self._charged is not None:
            self._charged.pass_time(turn_s)


def make_app(number: int, functions: int, warm: int) -> App:
    """An app whose functions are called two by two."""
    app = App(f"app{number}")
    made = []
    for index in range(functions):

        def work(value: object) -> object:
            sleep(WORK_S)
            return value

        made.append(app.function(work, name=f"f{index}", warm=warm, memory_gb=0.25, keep_alive_s=3600.0))
    for index in range(0, functions - 1, 2):
        app.workflow(f"w{index}", made[index] >> made[index + 1], slo="1s")
    return app


async def bench(given: argparse.Namespace) -> dict[str, float]:
    """Serve, load, measure."""
    loop = asyncio.get_running_loop()
    rng = np.random.default_rng(given.seed)
    per_node = -(-given.instances // given.nodes)
    vcpus = 2.0 * per_node
    nodes = tuple(
        Node(name=f"n{number}", kind="node", vcpus=vcpus, memory_gb=float(per_node)) for number in range(given.nodes)
    )
    apps = [
        make_app(number, given.functions // given.apps, given.instances // given.functions)
        for number in range(given.apps)
    ]
    traits = Traits(start_s=(0.1, 0.5), delay_s=(0.0002, 0.001))
    cluster = VirtualCluster(nodes, lambda file: apps[int(file)], rng, traits)
    shared = SharedProvider(VirtualProvider(cluster))
    await shared.open()
    store = Store.make()
    began = perf_counter()
    runtimes = []
    for number, app in enumerate(apps):
        scenario = replace(
            scenario_of(app.manifest(), cluster=_share_of(nodes, number, given.apps)),
            policy=PolicyChoice(name=given.policy),
        )
        instances = Instances(shared, LocalValues(store), AppCode(str(number)), number + 1, lambda _: None)
        clock = Clock(loop.time, loop.time)
        runtime = Runtime(app.manifest(), scenario, instances, lambda _: None, is_watched=False, clock=clock)
        await runtime.open()
        runtimes.append(runtime)
    opened_s = perf_counter() - began
    print(
        f"{len(nodes)} nodes, {len(cluster.instances())} instances, {given.functions} functions, {given.apps} app(s), "
        f"policy {given.policy}; opened in {opened_s:.0f} s"
    )
    assert isinstance(loop, VirtualLoop)
    timed = [Timed(runtime, loop if given.charged else None) for runtime in runtimes]
    endings: list[Ending] = []
    workflows = [(runtime, spec.name) for runtime in runtimes for spec in runtime.manifest.workflows]
    value = encode(1)

    async def load(seconds: float) -> None:
        at = loop.time()
        until = at + seconds
        while True:
            at += float(rng.exponential(1 / given.rate))
            if at >= until:
                return
            if at > loop.time():
                await asyncio.sleep(at - loop.time())
            else:
                await asyncio.sleep(0)
            runtime, name = workflows[rng.integers(len(workflows))]
            runtime.submit(name, value, deadline_s=None, budget_usd=None, done=endings.append, late_limit_s=30.0)

    await load(SETTLE_S)
    for each in timed:
        each.turns_s.clear()
        each.events = 0
    endings.clear()
    profile = cProfile.Profile() if given.profile else None
    if profile is not None:
        profile.enable()
    began_cpu_s, began_s = thread_time(), loop.time()
    await load(given.seconds)
    cpu_s, elapsed_s = thread_time() - began_cpu_s, loop.time() - began_s
    if profile is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    turns_s = np.array([turn for each in timed for turn in each.turns_s])
    completed = [ending for ending in endings if ending.outcome == "completed"]
    for runtime in runtimes:
        await runtime.close()
    await shared.close()
    store.close()
    quantiles = np.quantile(turns_s, (0.5, 0.99, 0.999, 1.0)) * 1e3
    return {
        "turns": len(turns_s),
        "events": sum(each.events for each in timed),
        "mean_ms": float(turns_s.mean() * 1e3),
        "p50_ms": float(quantiles[0]),
        "p99_ms": float(quantiles[1]),
        "p999_ms": float(quantiles[2]),
        "max_ms": float(quantiles[3]),
        "busy": float(turns_s.sum() / elapsed_s),
        "cpu_per_s": cpu_s / elapsed_s,
        "in_time": sum(ending.is_in_time for ending in completed) / max(1, len(endings)),
        "ended_rps": len(endings) / elapsed_s,
    }


def _share_of(nodes: tuple[Node, ...], number: int, apps: int) -> Cluster:
    """The nodes that an app may use: its part of them, as long as there are several apps."""
    return Cluster(nodes=tuple(node for index, node in enumerate(nodes) if index % apps == number))


def main() -> None:
    """Run one size, or with `--sweep` larger and larger ones until the gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--functions", type=int, default=2000)
    parser.add_argument("--apps", type=int, default=1)
    parser.add_argument("--rate", type=float, default=5000.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=2.0, help="of virtual time that are measured")
    parser.add_argument("--policy", default="fairlead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--charged", action="store_true", help="turns take time of the clock")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    began = perf_counter()
    row = run(bench(given))
    print("  ".join(f"{name} {value:.3g}" for name, value in row.items()))
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"gate p99 <= {GATE_S * 1e3:g} ms: {'met' if row['p99_ms'] <= GATE_S * 1e3 else 'missed'}; ", end="")
    print(f"{perf_counter() - began:.0f} s, {memory_mb:.0f} MB")


if __name__ == "__main__":
    main()
