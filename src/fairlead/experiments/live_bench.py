"""What live experiments have in common: `fairlead serve` in a process of its own, and looks at it and the machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec
import yaml

from fairlead.engine.live.status import AppStatus, Status
from fairlead.errors import FairleadError

_START_LIMIT_S = 90.0
_END_LIMIT_S = 90.0
_STATUS_LIMIT_S = 30.0


@contextmanager
def serving(
    app: Path, state: Path, options: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """`fairlead serve`, ended in the end; gives host and port. The environment is added to our own."""
    command = [sys.executable, "-m", "fairlead", "serve", str(app), "--port", "0", "--state", str(state), *options]
    errors = state.with_suffix(".err")
    with (
        errors.open("w") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **(environment or {})}
        ) as server,
    ):
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.startswith("Serving"):
                server.wait(_START_LIMIT_S)
                raise FairleadError(f"The app could not be served: {errors.read_text().strip()}")
            yield line.split()[-1].removeprefix("http://")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(_END_LIMIT_S)


def scaler_options(scaler: str, parameters: Mapping[str, Any], control_period: str) -> list[str]:
    """A scaler with its parameters, as `fairlead serve` takes them."""
    found = ["--scaler", scaler, "--control-period", control_period]
    for name, value in parameters.items():
        found += ["--set", f"scaler.{name}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}"]
    return found


def settle(address: str, *, is_scaled: bool = True) -> None:
    """Wait until nothing starts any more and, where somebody scales, until every function has a replica."""
    last = monotonic() + _START_LIMIT_S
    quiet = 0
    while quiet < 4 and monotonic() < last:
        sleep(0.5)
        app = status_of(address)
        is_quiet = not any(f.starting for f in app.functions)
        if is_scaled:
            is_quiet = is_quiet and all(f.replicas is not None and f.idle + f.busy for f in app.functions)
        quiet = quiet + 1 if is_quiet and app.uptime_s > 5 else 0


def status_of(address: str) -> AppStatus:
    """What the server tells of its app."""
    connection = HTTPConnection(address, timeout=_STATUS_LIMIT_S)
    try:
        connection.request("GET", "/v1/status")
        (app,) = msgspec.json.decode(connection.getresponse().read(), type=Status).apps
        return app
    finally:
        connection.close()


@contextmanager
def busy_share() -> Iterator[list[float]]:
    """The share of all cores' time that is in use meanwhile, by whomever: the one entry of the list, in the end."""
    share: list[float] = []
    used_s, began = _busy_s(), monotonic()
    yield share
    share.append((_busy_s() - used_s) / ((monotonic() - began) * (os.cpu_count() or 1)))


def _busy_s() -> float:
    """CPU time of everything on this machine so far, as the kernel counts it; without what was idle or stolen."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
