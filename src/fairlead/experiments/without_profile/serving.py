"""One app, served for real with or without its profile: its capacity, and what came of the first requests."""

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from fairlead.app.describe import describe
from fairlead.app.manifest import Manifest, WorkflowSpec
from fairlead.engine.live.values import decode, to_json
from fairlead.errors import FairleadError
from fairlead.experiments.live_bench import busy_share, serving
from fairlead.load import Closed, Listed, LoadResult, Plan, run_load
from fairlead.report.live import read_live_run

_WARM_UP_S = 2.0
_PATIENT_S = 60.0  # a deadline that nothing misses: a capacity is of answers, not of refusals
_GIVE_UP_S = 30.0
_LAST_S = 5.0  # what a generator waits for after the last arrival


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """One run: of each request, in the order in which they came, whether it was answered by its deadline.

    `busy` is the share of all cores' time that was in use meanwhile, by whomever.
    """

    in_time: tuple[bool, ...]
    busy: float


def capacity_rps(app: Path, state: Path, settings: Mapping[str, object]) -> float:
    """Answers per second of all workflows together, with users who each wait for the last answer."""
    manifest = describe(app)
    users = max(1, int(str(settings["users"])) // len(manifest.workflows))
    seconds = float(str(settings["capacity_s"])) + _WARM_UP_S
    with serving(app, state, ["--policy", str(settings["policy"]), "--no-records"]) as address:
        plans = {
            spec.name: Plan(
                arrivals=Closed(users),
                duration_s=seconds,
                warm_up_s=_WARM_UP_S,
                deadline_s=_PATIENT_S,
                body=body_of(spec),
                timeout_s=_PATIENT_S,
            )
            for spec in manifest.workflows
        }
        return sum(load.answered_rps for load in _send(address, plans).values())


def arrivals(manifest: Manifest, rate_rps: float, count: int, seed: int) -> dict[str, tuple[float, ...]]:
    """Instants of a Poisson process by workflow: `count` in all, each of a workflow drawn at random."""
    rng = np.random.default_rng(seed)
    instants = np.cumsum(rng.exponential(1 / rate_rps, count))
    chosen = rng.integers(len(manifest.workflows), size=count)
    return {spec.name: tuple(instants[chosen == place].tolist()) for place, spec in enumerate(manifest.workflows)}


def serve(
    app: Path, state: Path, settings: Mapping[str, object], rate_rps: float, seed: int, *, profiled: bool
) -> Served:
    """Serve an app with a new gateway, send it its first requests, and end it."""
    shutil.rmtree(state, ignore_errors=True)
    manifest, count = describe(app), int(str(settings["requests"]))
    options = ["--policy", str(settings["policy"]), *([] if profiled else ["--no-profile"])]
    with serving(app, state, options) as address, busy_share() as busy:
        plans = {}
        for spec in manifest.workflows:
            instants = arrivals(manifest, rate_rps, count, seed)[spec.name]
            if instants:
                plans[spec.name] = Plan(
                    arrivals=Listed(instants),
                    duration_s=instants[-1] + _LAST_S,
                    deadline_s=spec.slo_s,
                    sends_deadline=False,
                    body=body_of(spec),
                    timeout_s=_GIVE_UP_S,
                )
        _send(address, plans)
    return Served(in_time=in_time(read_live_run(state / "runs" / "1").requests, count), busy=busy[0])


def in_time(requests: pl.DataFrame, count: int) -> tuple[bool, ...]:
    """Of each of the first so many requests, by arrival, whether it was answered by its deadline.

    What never reached the gateway was not in time either.
    """
    rows = requests.sort("arrival", "request").head(count)
    met = (rows["outcome"] == "completed") & (rows["end"] <= rows["deadline"]).fill_null(value=False)
    return (*met.to_list(), *[False] * (count - rows.height))


def body_of(spec: WorkflowSpec) -> bytes:
    """A request with the example of a workflow, as JSON."""
    if spec.example is None:
        raise FairleadError(f"Workflow {spec.name} has no example to send.")
    return b'{"input": ' + to_json(decode(spec.example)) + b"}"


def _send(address: str, plans: Mapping[str, Plan]) -> dict[str, LoadResult]:
    """All workflows at once, each by a generator of its own."""
    with ThreadPoolExecutor(len(plans)) as pool:
        running = {
            name: pool.submit(run_load, f"http://{address}/v1/workflows/{name}", plan) for name, plan in plans.items()
        }
        return {name: future.result() for name, future in running.items()}
