"""One scaler, served for real: `fairlead serve` in a process of its own, loaded, and what came of it."""

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from time import sleep
from typing import Any

import msgspec

from fairlead.app.units import seconds
from fairlead.engine.live.status import AppStatus
from fairlead.experiments.live_bench import busy_share, scaler_options, serving, settle, status_of
from fairlead.experiments.simppo_live.plan import arrivals
from fairlead.learn.functions.app import SIZES
from fairlead.load import LoadResult, Plan, run_load
from fairlead.runlog import ScalingRow, read_scaling

_LOOK_S = 2.0  # how long the machine is watched before a load
_GIVE_UP_S = 10.0  # a client that has waited so long has missed its objective many times over


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
    options = ["--policy", settings["dispatcher"], "--overcommit", str(settings["overcommit"])]
    options += scaler_options(scaler["scaler"], scaler["parameters"], settings["control_period"])
    with serving(app, state, options) as address:
        settle(address)
        with busy_share() as busy_before:
            sleep(_LOOK_S)
        before = status_of(address)
        with busy_share() as machine_busy:
            loads = _load(address, settings, duration_s, repeat)
        after = status_of(address)
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


def _cpu_s(app: AppStatus) -> float:
    return sum(function.cpu_s or 0.0 for function in app.functions)
