"""CPU time that one no-op costs the gateway: one request at a time, 20 a second, and 32 users at once.

`python benchmarks/live/bench_cpu.py [--baseline CHECKOUT] [--rounds 20]`

CPU time counts what the gateway's threads ran, by the kernel's own account, and not how long they waited for a core;
so it says more than latency where other programs use the machine. All servers are up at once and are asked in turn,
round by round; the medians are over the rounds, and the ratio is the median of the ratios of a round, with its
quartiles. What a gateway uses between requests is measured first and taken off.
"""

import argparse
import json
import socket
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, sleep

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # the load generator is this checkout's

from compare import versions
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


class Server:
    """A gateway that is up, and what its requests have cost so far."""

    def __init__(self, system: System, url: str, state: Path) -> None:
        self.name = system.name
        self._pid = json.loads((state / "gateway.json").read_bytes())["pid"]
        self._url = f"{url.rstrip('/')}{system.paths[NOOP]}"
        self._client = Client(url, system.paths[NOOP])
        self._client.call()  # a connection without a request is soon closed
        self._idle = 0.0  # CPU time per second
        self.found: dict[str, list[float]] = {load: [] for load in LOADS}

    def warm_up(self) -> None:
        self._one_at_a_time(300)
        self._users()
        before, began = cpu_s(self._pid), monotonic()
        sleep(2.0)
        self._idle = (cpu_s(self._pid) - before) / (monotonic() - began)

    def measure(self, load: str) -> None:
        """One round: microseconds of CPU time per request."""
        before, began = cpu_s(self._pid), monotonic()
        if load == LOADS[0]:
            count = self._one_at_a_time(100)
        elif load == LOADS[1]:
            count = self._one_at_a_time(10, PACE_S)
        else:
            count = self._users()
        used = cpu_s(self._pid) - before - self._idle * (monotonic() - began)
        self.found[load].append(used / count * 1e6)

    def _one_at_a_time(self, count: int, pause_s: float = 0.0) -> int:
        for _ in range(count):
            if pause_s:
                sleep(pause_s)
            self._client.call()
        return count

    def _users(self) -> int:
        return run_load(self._url, Plan(arrivals=Closed(USERS), duration_s=0.5, body=BODY)).answered


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
    parser.add_argument("--policy", metavar="NAME", help="instead of the default one")
    parser.add_argument("--rounds", type=int, default=20, metavar="N")
    options = parser.parse_args()
    adopt_orphans()
    chosen = [own_version()] if options.baseline is None else versions(options.baseline)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-bench-", ignore_cleanup_errors=True)))
        servers = []
        for system in chosen:
            state = folder / system.name
            command = fairlead_command(NOOP, options.policy)(state)
            url = stack.enter_context(serving(command, folder / f"{system.name}.log", system.environment))
            servers.append(Server(system, url, state))
        for server in servers:
            server.warm_up()
        for load in LOADS:
            for number in range(options.rounds):
                for server in servers if number % 2 == 0 else servers[::-1]:
                    server.measure(load)
            print(f"{load}: {shown(load, servers)}", flush=True)


def shown(load: str, servers: list[Server]) -> str:
    line = ", ".join(f"{server.name} {median(server.found[load]):.0f} us" for server in servers)
    if len(servers) == 1:
        return line
    new, old = (server.found[load] for server in servers)
    low, middle, high = quantiles([a / b for a, b in zip(new, old, strict=True)], n=4)
    return f"{line}; ratio {middle:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
