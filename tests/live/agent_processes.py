"""A gateway and agents as real processes on loopback, faults that befall them, and a load whose answers are counted."""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from math import inf
from pathlib import Path

from serving import Serving, children, command, descendants, is_alive, journal_rows, kill, wait_for, write_app

APP = """
@app.function
def work(key):
    time.sleep(0.03)
    with open(Path(os.environ["FAULTS_FOLDER"]) / "executed.txt", "a") as file:
        file.write(f"{key} {os.getpid()}\\n")
    return [key, os.getpid()]

@app.function
def linger(key):
    with open(Path(os.environ["FAULTS_FOLDER"]) / "lingering.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(1.0)
    return key

app.workflow("work", work, slo="1s")
app.workflow("linger", linger)
"""
SILENCE_S = 2.0


class Proxy:
    """Forwards connections to an address, and can be cut: what is open breaks, and new ones are refused meanwhile."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        self._is_open = True
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        self._is_cut = True
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self._is_open = False
        self.cut()
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        self._thread.join(5)
        self._listening.close()

    def _accept(self) -> None:
        while self._is_open:
            ours, _ = self._listening.accept()
            if self._is_cut or not self._is_open:
                ours.close()
                continue
            try:
                theirs = socket.create_connection(("127.0.0.1", self._to), 5)
            except OSError:
                ours.close()
                continue
            for end in (ours, theirs):
                end.setblocking(True)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add((ours, theirs))
            threading.Thread(target=self._forward, args=(ours, theirs), daemon=True).start()

    def _forward(self, ours: socket.socket, theirs: socket.socket) -> None:
        with ours, theirs, selectors.DefaultSelector() as ready, suppress(OSError):
            ready.register(ours, selectors.EVENT_READ, theirs)
            ready.register(theirs, selectors.EVENT_READ, ours)
            while True:
                for key, _ in ready.select():
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not data:
                        return
                    key.data.sendall(data)


class AgentProcess:
    """One `fairlead agent`, which dials through a proxy of its own."""

    def __init__(self, name: str, folder: Path, port: int, vcpus: float = 2.0) -> None:
        self.name = name
        self.folder = folder
        self.proxy = Proxy(port)
        self._vcpus = vcpus
        self._log = folder / f"{name}.log"
        self.start()

    def start(self) -> None:
        options = ["--join", f"127.0.0.1:{self.proxy.port}", "--name", self.name, "--vcpus", str(self._vcpus)]
        token = ["--token-file", str(self.folder / "state" / "agents.token"), "--folder", str(self.folder / self.name)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fairlead.cli", "agent", *options, *token, "--memory", "4"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "FAULTS_FOLDER": str(self.folder)},
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def instances(self) -> list[int]:
        return [pid for pid in children(self.process.pid) if "live.links.instance" in command(pid)]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop the whole node, as a machine that hangs; its connections stay open."""
        self.frozen = [self.process.pid, *descendants(self.process.pid)]
        for pid in self.frozen:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on: instances first, so that they answer before their agent learns that they were given up."""
        for pid in reversed(self.frozen):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            if pid == self.frozen[1]:
                time.sleep(0.5)

    def end(self) -> None:
        pids = descendants(self.process.pid)
        for pid in (self.process.pid, *pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        wait_for(lambda: not any(map(is_alive, pids)))
        self.proxy.close()


class Watched:
    """A gateway on several nodes, and what it knows of them."""

    served: Serving

    @property
    def nodes(self) -> set[str]:
        """The nodes that the gateway counts on."""
        (app,) = self.served.ask("GET", "/v1/status").json["apps"]
        return {node["name"] for node in app["nodes"]}

    @property
    def instances(self) -> dict[int, str]:
        """By process id: the node of an instance."""
        raise NotImplementedError

    @property
    def late_answers(self) -> int:
        """Answers that were dropped because of their generation, as far as the log tells; not less."""
        return max(map(int, re.findall(r"was dropped \((\d+) so far\)", self.served.err)), default=0)

    def wait_for_loss(self, name: str, limit_s: float) -> float:
        """Seconds until the gateway does not count on a node any more."""
        began = time.monotonic()
        wait_for(lambda: name not in self.nodes, limit_s, lambda: f"{name} is still counted on: {self.served.err}")
        return time.monotonic() - began


class Cluster(Watched):
    """A gateway and its agents."""

    def __init__(self, folder: Path, agents: Sequence[str], *options: str, code: str = APP) -> None:
        self.folder = folder
        for name in ("executed.txt", "lingering.txt"):
            (folder / name).touch()
        app = write_app(folder / "app.py", code)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        listen = f"127.0.0.1:{self.port}"
        self.served = Serving(app, folder / "state", "--backend", "agents", "--agents-listen", listen, *options)
        self.agents: dict[str, AgentProcess] = {}
        self.lingering: list[str] = []  # ids of requests in whose middle a node was frozen
        try:
            wait_for(lambda: (folder / "state" / "agents.token").exists(), why=lambda: self.served.err)
            for name in agents:
                self.agents[name] = AgentProcess(name, folder, self.port)
            self.served.wait_until_serving()
            wait_for(lambda: self.nodes == set(agents), why=lambda: f"{self.nodes}: {self.served.err}")
        except BaseException:
            self.end()
            raise

    @property
    def instances(self) -> dict[int, str]:
        """By process id: the node of an instance."""
        return {pid: agent.name for agent in self.agents.values() for pid in agent.instances}

    def freeze_while_busy(self) -> AgentProcess:
        """Freeze a node in the middle of a request, which ends elsewhere: the node."""
        noted = self.folder / "lingering.txt"
        before = len(noted.read_text().split())
        reply = self.served.send("linger", 1)
        assert reply.status == 202
        self.lingering.append(reply.json["id"])
        wait_for(lambda: len(noted.read_text().split()) > before)
        agent = self.agents[self.instances[int(noted.read_text().split()[-1])]]
        agent.freeze()
        return agent

    def end(self) -> None:
        for agent in self.agents.values():
            agent.end()
        self.served.end()


@contextmanager
def cluster(folder: Path, agents: Sequence[str] = ("a", "b", "c"), *options: str, code: str = APP) -> Iterator[Cluster]:
    made = Cluster(folder, agents, *options, code=code)
    try:
        yield made
    finally:
        made.end()


@dataclass
class Load:
    """Synchronous and asynchronous requests at a steady rate, and what became of them.

    The rates may be changed meanwhile. Requests begin when they are due, also where earlier ones have no answer yet.
    """

    cluster: Watched
    rate: float
    async_rate: float
    async_workflow: str = "work"
    slo_s: float = inf  # from when a request is due, as its client sees it; the gateway counts from its arrival
    threads: int = 32
    sent: list[tuple[float, bool]] = field(default_factory=list)  # of synchronous requests: due, and whether in time
    accepted: list[str] = field(default_factory=list)  # ids of asynchronous requests
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        with ThreadPoolExecutor(self.threads) as pool:
            threads = [
                threading.Thread(target=self._pace, args=(pool, lambda: self.rate, self._call)),
                threading.Thread(target=self._pace, args=(pool, lambda: self.async_rate, self._send)),
            ]
            for thread in threads:
                thread.start()
            try:
                yield self
            finally:
                self._stop.set()
                for thread in threads:
                    thread.join()

    def attainment(self, begin: float, end: float) -> float | None:
        """Share of the requests that were sent in this time and answered in time; None without any."""
        found = [is_in_time for at, is_in_time in list(self.sent) if begin <= at < end]
        return sum(found) / len(found) if found else None

    def goodput(self, begin: float, end: float) -> float:
        """Synchronous requests per second that were sent in this time and answered in time."""
        return sum(is_in_time for at, is_in_time in list(self.sent) if begin <= at < end) / (end - begin)

    def recovery_s(self, fault: float, level: float, window_s: float = 1.0) -> float | None:
        """Seconds from a fault until attainment is at its level again, and stays there for three windows."""
        last = max((at for at, _ in list(self.sent)), default=fault)
        at = fault
        while at + 3 * window_s <= last:
            windows = [self.attainment(at + n * window_s, at + (n + 1) * window_s) for n in range(3)]
            if all(share is not None and share >= level for share in windows):
                return at - fault
            at += window_s / 4
        return None

    def _pace(self, pool: ThreadPoolExecutor, rate, act) -> None:
        number, due = 0, time.monotonic()
        while rate() and not self._stop.is_set():
            pool.submit(act, number, due)
            number += 1
            due += 1 / rate()
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _call(self, number: int, due: float) -> None:
        try:
            reply = self.cluster.served.call("work", f"s{number}", timeout_s=20)
            is_in_time = reply.status == 200 and reply.json["in_time"] and time.monotonic() <= due + self.slo_s
            self.sent.append((due, is_in_time))
        except (OSError, HTTPException):
            self.sent.append((due, False))

    def _send(self, number: int, due: float) -> None:
        try:
            reply = self.cluster.served.send(self.async_workflow, f"a{number}", timeout_s=20)
        except (OSError, HTTPException):
            return
        if reply.status == 202:
            self.accepted.append(reply.json["id"])

    def ends(self, limit_s: float = 60.0) -> dict[str, str]:
        """By id of an accepted request: its final state, once all have one or time is up."""
        found: dict[str, str] = {}
        until = time.monotonic() + limit_s
        for id in self.accepted:
            with suppress(AssertionError):
                found[id] = self.cluster.served.wait_for_end(id, max(0.1, until - time.monotonic()))["state"]
        return found


def answered_twice(state: Path, accepted: Sequence[str]) -> list[str]:
    """Ids that a journal has more than once, or of which it has no end. The gateway must have ended."""
    known = set(accepted)
    rows = [row for row in journal_rows(state) if row[0] in known]
    counts = Counter(row[0] for row in rows)
    return sorted({id for id, count in counts.items() if count > 1} | {row[0] for row in rows if row[3] is None})


@dataclass(frozen=True)
class Restart:
    """What followed when a gateway was killed: seconds to the first answer, its process, and instances around it.

    `cpu_s` is what the new gateway ran until then, `waited_s` how long it waited for a CPU that others used.
    """

    first_answer_s: float
    cpu_s: float
    waited_s: float
    answered_by: int
    before: dict[int, str]
    after: dict[int, str]


def kill_gateway(made: Watched) -> Restart:
    """Kill the gateway, and wait until its successor answers."""
    before = made.instances
    gateway = made.served.serving_gateway
    assert gateway is not None
    kill(gateway)
    began = time.monotonic()
    while True:
        with suppress(OSError, HTTPException):
            reply = made.served.call("work", "after", timeout_s=30)
            if reply.status == 200:
                took_s = time.monotonic() - began
                used = Path(f"/proc/{made.served.gateway}/schedstat").read_text().split()
                cpu_s, waited_s = (int(nanoseconds) / 1e9 for nanoseconds in used[:2])
                return Restart(took_s, cpu_s, waited_s, reply.json["output"][1], before, made.instances)
        assert time.monotonic() - began < 60, made.served.err
        time.sleep(0.01)
