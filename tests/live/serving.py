"""`fairlead serve` as a real process tree for tests: started on a free port, looked into, killed, and always ended."""

import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOKEN = "a-token-for-tests-0123456789"
_OF_FUNCTION = re.compile(r"[\w.-]+ \| ")
OWN_FAULTS = ("a fault of Fairlead", "Exception in callback", "never retrieved", "Fatal error")
START_LIMIT_S = 300.0  # for a machine with much else to do; a quiet one takes a second


@dataclass(frozen=True)
class Reply:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return self.json["error"]["message"]


class Serving:
    """One `fairlead serve`: its processes, its address, and a small client."""

    def __init__(
        self,
        app: Path | None,
        state: Path,
        *options: str,
        token: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.state = state
        self.token = token
        state.parent.mkdir(parents=True, exist_ok=True)
        self._out, self._err = (state.parent / f"{state.name}.{kind}" for kind in ("out", "err"))
        environment = {name: value for name, value in os.environ.items() if name != "FAIRLEAD_TOKEN"}
        environment |= {"FAIRLEAD_TOKEN": token} if token else {}
        environment |= env or {}
        command = [sys.executable, "-m", "fairlead.cli", "serve", *([str(app)] if app else []), "--port", "0"]
        with self._out.open("ab") as out, self._err.open("ab") as err:
            self._skip = out.tell()
            self.process = subprocess.Popen(
                [*command, "--state", str(state), *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )
        self.port = 0

    # --- its life --------------------------------------------------------------------------------------------------

    def wait_until_serving(self) -> "Serving":
        def announced() -> bool:
            assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.err}"
            return "Watch " in self.out

        wait_for(announced, START_LIMIT_S, lambda: f"it does not serve: {self.err}")
        self.port = int(self.out.split("http://127.0.0.1:")[1].split()[0])
        return self

    def stop(self, timeout_s: float = 60.0) -> int:
        """Ask it to end, as an operator does; its exit code."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def end(self) -> None:
        """Whatever state it is in: nothing of it is left."""
        pids = [] if self.process.poll() is not None else descendants(self.process.pid)
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        for pid in (self.process.pid, *pids):
            if pid != self.process.pid or self.process.poll() is None:
                kill(pid)
        self.process.wait(60)
        wait_for(lambda: not any(map(is_alive, pids)))

    @property
    def out(self) -> str:
        return self._out.read_bytes()[self._skip :].decode(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    @property
    def own_err(self) -> str:
        """What it said itself, without the lines of functions, which begin with a function's name."""
        return "\n".join(line for line in self.err.splitlines() if not _OF_FUNCTION.match(line))

    # --- its processes ---------------------------------------------------------------------------------------------

    @property
    def gateway(self) -> int | None:
        """The gateway's process id; None while there is none."""
        return next((pid for pid in children(self.process.pid) if "fairlead.engine.live.process" in command(pid)), None)

    @property
    def serving_gateway(self) -> int | None:
        """The same, once it serves."""
        gateway = self.gateway
        with suppress(OSError, ValueError):
            if json.loads((self.state / "gateway.json").read_bytes())["pid"] == gateway:
                return gateway
        return None

    @property
    def instances(self) -> list[int]:
        """The process ids of all instances."""
        gateway = self.gateway
        found = [] if gateway is None else children(gateway)
        return [pid for pid in found if "fairlead.engine.live.worker" in command(pid)]

    @property
    def tree(self) -> list[int]:
        """The supervisor and everything below."""
        return [self.process.pid, *descendants(self.process.pid)]

    # --- requests --------------------------------------------------------------------------------------------------

    def connect(self, timeout_s: float = 60.0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        connection: http.client.HTTPConnection | None = None,
        timeout_s: float = 60.0,
    ) -> Reply:
        """One request; `body` goes as JSON, bytes as they are."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json"} if data is not None else {}
        sent |= {"authorization": f"Bearer {self.token}"} if self.token else {}
        used = connection or self.connect(timeout_s)
        try:
            used.request(method, path, data, sent | dict(headers or {}))
            answer = used.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            if connection is None:
                used.close()

    def call(self, workflow: str, value: object = None, **how: Any) -> Reply:
        """Call a workflow and wait."""
        return self.ask("POST", f"/v1/workflows/{workflow}", {"input": value}, **how)

    def send(self, workflow: str, value: object = None, *, key: str | None = None, **how: Any) -> Reply:
        """Call a workflow without waiting."""
        headers = {"idempotency-key": key} if key else {}
        return self.ask("POST", f"/v1/workflows/{workflow}/async", {"input": value}, headers=headers, **how)

    def workflow(self, name: str, app: str = "demo") -> Any:
        """The counts of a workflow: open, completed, cancelled and so on."""
        workflows = self.ask("GET", f"/v1/apps/{app}").json["status"]["workflows"]
        return next(workflow for workflow in workflows if workflow["name"] == name)

    def state_of(self, id: str) -> Any:
        return self.ask("GET", f"/v1/requests/{id}").json

    def wait_for_end(self, id: str, timeout_s: float = 60.0) -> Any:
        """The state of an asynchronous request, once it has ended."""
        until = time.monotonic() + timeout_s
        while True:
            found = self.state_of(id)
            if found["finished_at"] is not None:
                return found
            assert time.monotonic() < until, f"it has not ended: {found}"
            time.sleep(0.02)

    @contextmanager
    def raw(self, data: bytes = b"", timeout_s: float = 60.0) -> Iterator[socket.socket]:
        """A connection that says exactly this."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
            connection.sendall(data)
            yield connection

    def status_of(self, data: bytes, timeout_s: float = 60.0) -> int:
        """The status that these bytes are answered with; 0 if the connection is closed without one."""
        with self.raw(data, timeout_s) as connection:
            return read_status(connection)


@contextmanager
def serving(app: Path | None, state: Path, *options: str, has_faults: bool = False, **how: Any) -> Iterator[Serving]:
    """`fairlead serve`, ready; gone afterwards, and without having found a fault of its own unless there are some."""
    served = Serving(app, state, *options, **how)
    try:
        yield served.wait_until_serving()
    finally:
        served.end()
    found = [line for line in served.own_err.splitlines() if any(sign in line for sign in OWN_FAULTS)]
    assert has_faults or not found, served.err[-5000:]


def write_app(path: Path, text: str, name: str = "demo") -> Path:
    """An app file: imports, `app`, and this text."""
    head = f"import os, sys, time\nfrom pathlib import Path\nfrom fairlead.app import App\n\napp = App({name!r})\n"
    path.write_text(head + textwrap.dedent(text), encoding="utf-8")
    return path


# --- processes -----------------------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *descendants(child))]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether it runs; what has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def wait_for(
    is_so: Callable[[], object], timeout_s: float = START_LIMIT_S, why: Callable[[], str] = lambda: ""
) -> None:
    """Wait until something is so; AssertionError if it never is."""
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until, why() or "it never became so"
        time.sleep(0.01)


# --- bytes ---------------------------------------------------------------------------------------------------------


def request_bytes(path: str, body: bytes, *headers: str, method: str = "POST", length: int | None = None) -> bytes:
    """A request as it goes over the wire."""
    size = len(body) if length is None else length
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: application/json",
        f"content-length: {size}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_status(connection: socket.socket) -> int:
    """The status of the next answer; 0 if there is none."""
    head = b""
    with suppress(ConnectionError):
        while b"\r\n" not in head:
            data = connection.recv(4096)
            if not data:
                break
            head += data
    return int(head.split()[1]) if head else 0


# --- the journal, from outside -------------------------------------------------------------------------------------


def journal_rows(state: Path) -> list[tuple[str, str, int, float | None, str | None]]:
    """Every request of a journal: id, state, attempts, end, reason. Call it when no gateway has the file open."""
    with closing(sqlite3.connect(f"file:{state / 'journal.sqlite'}?mode=ro", uri=True)) as connection:
        return connection.execute(
            "SELECT id, state, attempts, finished_at, reason FROM requests ORDER BY seq"
        ).fetchall()
