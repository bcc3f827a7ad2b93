"""What sampling costs: CPU time of the monitor's thread per second, for each node, with and without its probes.

    python benchmarks/monitor_overhead.py [--seconds 10] [--nodes 4] [--every 0.5]

Nodes are emulated, each with instances that do nothing, where control groups can be made; otherwise each is the whole
machine. The exit code is 1 where a node costs 1 % of a core or more. Time of a thread is counted by the kernel, so that
others on the machine do not add to it, except through the caches.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fairlead.engine.live.limits import make_limiter
from fairlead.engine.live.limits.places import find_places
from fairlead.model import Node
from fairlead.monitor import Place, Sampler, choose, local_place

LIMIT = 0.01
IDLE = (
    "import threading, time\n"
    "for _ in range(7): threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
    "time.sleep(3600)"
)


@contextmanager
def emulated(count: int, instances: int) -> Iterator[Sequence[Place]]:
    """Nodes of a quarter of a core, with instances of eight threads."""
    limiter = make_limiter()
    if limiter.kind == "affinity":
        yield [local_place(name=f"n{i}") for i in range(count)]
        return
    limiter.open([Node(name=f"n{i}", kind="n", vcpus=0.25) for i in range(count)])
    run = limiter._trees["cpu"].run  # type: ignore[attr-defined]
    places = [place for place in find_places() if place.cgroup is not None and place.cgroup.parent == run]
    processes = []
    try:
        for i in range(count * instances):
            process = subprocess.Popen([sys.executable, "-I", "-S", "-c", IDLE])
            processes.append(process)
            limiter.admit(i, process.pid, f"n{i % count}", 0.25, 0.0)
        yield places
    finally:
        for process in processes:
            process.kill()
            process.wait()
        limiter.close()


def measure(places: Sequence[Place], *, probe_every_s: float | None, every_s: float, seconds: float) -> float:
    """The share of a core that one node costs."""
    provider, _ = choose(places, probe_every_s=probe_every_s)
    with Sampler(provider, places, every_s=every_s, with_instances=True) as sampler:
        time.sleep(seconds)
        return sampler.overhead() / len(places)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (default: 10)")
    parser.add_argument("--nodes", type=int, default=4, help="nodes of this host (default: 4)")
    parser.add_argument("--instances", type=int, default=3, help="instances of eight threads per node (default: 3)")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between samples (default: 0.5)")
    options = parser.parse_args()
    worst = 0.0
    with emulated(options.nodes, options.instances) as places:
        cases = [(f"{options.nodes} nodes", places), ("1 node", places[:1]), ("this machine", [local_place()])]
        for name, some in cases:
            for probe_every_s in (None, 2.0, options.every):
                cost = measure(some, probe_every_s=probe_every_s, every_s=options.every, seconds=options.seconds)
                probes = "without probes" if probe_every_s is None else f"probes every {probe_every_s:g} s"
                is_default = probe_every_s == 2.0 or probe_every_s is None
                worst = max(worst, cost if is_default else 0.0)
                print(f"{name:>14}, {probes:<20} {100 * cost:6.3f} % of a core per node", flush=True)
    is_met = worst < LIMIT
    print(f"under 1 % of a core per node, as sampled by default: {'met' if is_met else 'missed'}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
