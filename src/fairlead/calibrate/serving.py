"""A gateway in a process of its own, and what it used."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from fairlead.errors import FairleadError

_START_S = 60.0


class ServingError(FairleadError):
    """A gateway did not start, so that nothing can be measured."""


class Gateway:
    """A served app: its URL, and the CPU time of its process."""

    def __init__(self, url: str, pid: int, state: Path) -> None:
        self.url = url
        self.pid = pid
        self.state = state

    def cpu_s(self) -> float:
        """CPU time of all threads so far, to the microsecond."""
        return process_cpu_s(self.pid)


def process_cpu_s(pid: int) -> float:
    """CPU time of all threads of a process so far, to the microsecond."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


@contextmanager
def served(app: Path, folder: Path, policy: str, options: Sequence[str] = ()) -> Iterator[Gateway]:
    """Serve an app under a policy; the gateway is ended in the end, and its records are whole then.

    Raises:
        ServingError: It does not start.
    """
    state = folder / "state"
    command = [sys.executable, "-m", "fairlead", "serve", str(app), "--port", "0", "--state", str(state)]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen([*command, "--policy", policy, *options], cwd=folder, stdout=log, stderr=log)
        try:
            told = _await(state / "gateway.json", process, folder / "serve.log")
            yield Gateway(str(told["url"]), int(str(told["pid"])), state)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def is_measurable() -> bool:
    """Whether this machine tells the CPU time of a process exactly enough."""
    return Path(f"/proc/{os.getpid()}/schedstat").exists()


def _await(file: Path, process: "subprocess.Popen[bytes]", log: Path) -> dict[str, object]:
    until = monotonic() + _START_S
    while monotonic() < until and process.poll() is None:
        if file.exists():
            found: dict[str, object] = json.loads(file.read_bytes())
            return found
        sleep(0.05)
    raise ServingError(f"fairlead serve did not start: {log.read_text().strip()[-500:] or 'it said nothing'}")
