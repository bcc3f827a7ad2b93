"""CPU time that one no-op costs the gateway: one request at a time, 20 a second, and 32 users at once.

`python benchmarks/live/bench_cpu.py [--baseline CHECKOUT] [--repeat 5]`

CPU time counts what the gateway's threads ran, by the kernel's own account, and not how long they waited for a core;
so it says more than latency where other programs use the machine. With a baseline, both versions are measured in
turn, and the ratios are of the pairs. `idle` is what the same gateway uses between requests; it is taken off.
"""

import argparse
import json
import socket
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic, sleep

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # the load generator is this checkout's

from compare import interleaved, versions
from processes import adopt_orphans, serving
from rows import BODY, USERS
from systems import HERE, NOOP, System, fairlead_command

from fairlead.load import Closed, Plan, run_load

LOADS = ("one at a time", "20/s", f"{USERS} users")
PACE_S = 0.05


class Client:
    """One connection that sends a request and reads its answer."""

    def __init__(self, url: str, path: str) -> None:
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
        self._request = head.encode() + b"content-length: %d\r\n\r\n" % len(BODY) + BODY

    def call(self) -> None:
        self._socket.sendall(self._request)
        answer = self._socket.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200"), answer

    def close(self) -> None:
        self._socket.close()


def cpu_s(pid: int) -> float:
    """Seconds that all threads of a process have run."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def measure(system: System, requests: int) -> dict[str, float]:
    """Microseconds of CPU time per request under each load."""
    with tempfile.TemporaryDirectory(prefix="fl-bench-", ignore_cleanup_errors=True) as folder:
        state = Path(folder) / "state"
        with serving(system.commands[NOOP](state), Path(folder) / "log", system.environment) as url:
            pid = json.loads((state / "gateway.json").read_bytes())["pid"]
            client = Client(url, system.paths[NOOP])
            for _ in range(300):
                client.call()
            sleep(1.0)
            before, began = cpu_s(pid), monotonic()
            sleep(2.0)
            idle = (cpu_s(pid) - before) / (monotonic() - began)
            found = {}

            def note(load: str, before: float, began: float, count: int) -> None:
                used = cpu_s(pid) - before - idle * (monotonic() - began)
                found[load] = used / count * 1e6

            before, began = cpu_s(pid), monotonic()
            for _ in range(requests):
                client.call()
            note(LOADS[0], before, began, requests)
            before, began = cpu_s(pid), monotonic()
            for _ in range(requests // 20):
                sleep(PACE_S)
                client.call()
            note(LOADS[1], before, began, requests // 20)
            client.close()
            plan = Plan(arrivals=Closed(USERS), duration_s=2.0, body=BODY)
            target = f"{url.rstrip('/')}{system.paths[NOOP]}"
            run_load(target, plan)
            before, began = cpu_s(pid), monotonic()
            result = run_load(target, plan)
            note(LOADS[2], before, began, result.answered)
            return found


def own_version() -> System:
    return System(
        name="new",
        label="this checkout",
        commands={NOOP: fairlead_command(NOOP)},
        paths={NOOP: f"/v1/workflows/{NOOP}"},
        environment={"PYTHONPATH": str(HERE.parents[1] / "src")},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", type=Path, metavar="CHECKOUT", help="compare with the Fairlead of that checkout")
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    parser.add_argument("--requests", type=int, default=2000, metavar="N", help="of the first load")
    options = parser.parse_args()
    adopt_orphans()
    chosen = [own_version()] if options.baseline is None else versions(options.baseline)
    found: dict[str, list[dict[str, float]]] = {system.name: [] for system in chosen}
    for _, system in interleaved(chosen, options.repeat):
        row = measure(system, options.requests)
        found[system.name].append(row)
        print(system.name, {load: round(value) for load, value in row.items()}, file=sys.stderr, flush=True)
    for load in LOADS:
        medians = {name: median(row[load] for row in rows) for name, rows in found.items()}
        line = ", ".join(f"{name} {value:.0f}" for name, value in medians.items())
        if options.baseline is not None:
            new, old = found.values()
            pairs = sorted(a[load] / b[load] for a, b in zip(new, old, strict=True))
            line += f"; ratio {median(pairs):.3f} ({pairs[0]:.3f} to {pairs[-1]:.3f})"
        print(f"{load}: {line}")


if __name__ == "__main__":
    main()
