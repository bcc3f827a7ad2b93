"""One scaler, served for real: `fairlead serve` in a process of its own, loaded, and what came of it."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from importlib.resources import files
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec
import yaml

from fairlead.app.units import seconds
from fairlead.engine.live.status import AppStatus, Status
from fairlead.errors import FairleadError
from fairlead.experiments.simppo_live.plan import arrivals
from fairlead.learn.functions.app import SIZES
from fairlead.load import LoadResult, Plan, run_load
from fairlead.runlog import ScalingRow, read_scaling

_START_LIMIT_S = 90.0
_LOOK_S = 2.0  # how long the machine is watched before a load
_GIVE_UP_S = 10.0  # a client that has waited so long has missed its objective many times over
_HEADERS = (("content-type", "application/json"),)


@dataclass(frozen=True, kw_only=True)
class Served:
    """One run of one scaler.

    `cpu_s` is CPU time of the instances, and `held_vcpu_s` what they were given, both over the whole load. `scaling`
    has the scaler's decisions with instants from the start of the load. `machine_busy` is the share of all cores' time
    in use under the load, by whomever, and `busy_before` right before it, so by others.
    """

    loads: Mapping[str, LoadResult]
    cpu_s: float
    held_vcpu_s: float
    machine_busy: float
    busy_before: float
    scaling: Sequence[ScalingRow]


def prepare_app(folder: Path) -> Path:
    """The app file and its measured profile, side by side."""
    app = folder / "tenants.py"
    app.write_text((files(__package__) / "tenants.py").read_text(encoding="utf-8"), encoding="utf-8")
    profile = files("fairlead.learn.functions") / "app.profile.json"
    (folder / "tenants.profile.json").write_text(profile.read_text(encoding="utf-8"), encoding="utf-8")
    return app


def serve_and_load(
    app: Path, settings: Mapping[str, Any], scaler: Mapping[str, Any], duration_s: float, repeat: int
) -> Served:
    """Serve the app under a scaler, send it the load of this repeat, and end it."""
    state = app.parent / "state"
    shutil.rmtree(state, ignore_errors=True)
    options = ["--policy", settings["dispatcher"], "--scaler", scaler["scaler"]]
    options += ["--control-period", settings["control_period"], "--overcommit", str(settings["overcommit"])]
    for name, value in scaler["parameters"].items():
        options += ["--set", f"scaler.{name}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}"]
    with _serving(app, state, options) as address:
        _settle(address)
        with _busy() as busy_before:
            sleep(_LOOK_S)
        before = _status(address)
        with _busy() as machine_busy:
            loads = _load(address, settings, duration_s, repeat)
        after = _status(address)
    rows = read_scaling(state / "runs" / "1")
    return Served(
        loads=loads,
        cpu_s=_cpu_s(after) - _cpu_s(before),
        held_vcpu_s=held_vcpu_s(rows, before.uptime_s, after.uptime_s),
        machine_busy=machine_busy[0],
        busy_before=busy_before[0],
        scaling=[msgspec.structs.replace(row, now=row.now - before.uptime_s) for row in rows],
    )


def held_vcpu_s(rows: Sequence[ScalingRow], begin: float, end: float) -> float:
    """vCPU-seconds held between two instants: what a function has after a control period, it has until the next."""
    total = 0.0
    for function in {row.function for row in rows}:
        own = [row for row in rows if row.function == function]
        for row, after in zip(own, [*(later.now for later in own[1:]), end], strict=True):
            total += row.vcpus * max(0.0, min(after, end) - max(row.now, begin))
    return total


def _load(address: str, settings: Mapping[str, Any], duration_s: float, repeat: int) -> dict[str, LoadResult]:
    """Every function at once, each by a generator of its own."""
    plans = {
        name: Plan(
            arrivals=instants,
            duration_s=duration_s,
            warm_up_s=settings["warm_up_s"],
            deadline_s=seconds(SIZES[name][2], name),
            body=b'{"input": null}',
            headers=_HEADERS,
            timeout_s=_GIVE_UP_S,
            max_in_flight=200,
        )
        for name, instants in arrivals(settings, duration_s, repeat).items()
    }
    with ThreadPoolExecutor(len(plans)) as pool:
        running = {
            name: pool.submit(run_load, f"http://{address}/v1/workflows/{name}", plan) for name, plan in plans.items()
        }
        return {name: future.result() for name, future in running.items()}


@contextmanager
def _serving(app: Path, state: Path, options: Sequence[str]) -> Iterator[str]:
    """`fairlead serve`, ended in the end; gives host and port."""
    command = [sys.executable, "-m", "fairlead", "serve", str(app), "--port", "0", "--state", str(state), *options]
    errors = state.with_suffix(".err")
    with (
        errors.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server,
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
            server.wait(_START_LIMIT_S)


def _settle(address: str) -> None:
    """Wait until the scaler has decided for every function, and nothing starts any more."""
    last = monotonic() + _START_LIMIT_S
    quiet = 0
    while quiet < 4 and monotonic() < last:
        sleep(0.5)
        app = _status(address)
        is_quiet = all(f.replicas is not None and not f.starting and f.idle + f.busy for f in app.functions)
        quiet = quiet + 1 if is_quiet and app.uptime_s > 5 else 0


def _status(address: str) -> AppStatus:
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", "/v1/status")
        (app,) = msgspec.json.decode(connection.getresponse().read(), type=Status).apps
        return app
    finally:
        connection.close()


def _cpu_s(app: AppStatus) -> float:
    return sum(function.cpu_s or 0.0 for function in app.functions)


@contextmanager
def _busy() -> Iterator[list[float]]:
    """The share of all cores' time that is in use meanwhile, by whomever: the one entry of the list, in the end."""
    share: list[float] = []
    used_s, began = _busy_s(), monotonic()
    yield share
    share.append((_busy_s() - used_s) / ((monotonic() - began) * (os.cpu_count() or 1)))


def _busy_s() -> float:
    """CPU time of everything on this machine so far, as the kernel counts it; without what was idle or stolen."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
