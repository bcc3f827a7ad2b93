"""One cell live and predicted, and the capacity of an app that the loads are relative to."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec
import numpy as np

from fairlead.app.serving import served_scenario
from fairlead.calibrate.offered import MOST_OPEN, arrivals_of, given_of
from fairlead.calibrate.serving import Gateway, ServingError, served
from fairlead.calibrate.speed import SpeedProbe
from fairlead.engine.sim import simulate
from fairlead.league.live.app import LiveApp
from fairlead.league.live.asking import ask_once
from fairlead.league.live.figures import (
    Decisions,
    Figures,
    LiveCell,
    client_figures,
    costs_usd,
    recorded_figures,
)
from fairlead.league.live.usage import Snapshot, Used
from fairlead.load import Closed, LoadProgress, LoadResult, Open, Plan, run_load
from fairlead.model import Recording
from fairlead.profile import Host
from fairlead.report.live import latest_run, read_live_run
from fairlead.workload import PolicyChoice, Scenario

WARM_UP_S = 2.0
"""How long a cell is loaded before it is counted, if nothing is said."""

USERS = 32
"""Of the closed loop that measures capacity."""

CAPACITY_POLICY = "fairlead"
CAPACITY_S = 5.0
CAPACITY_DEADLINE_S = 10.0
OTHERS_MOST = 0.15
"""Share of the CPUs that other programs may use in a cell before it is marked."""

LAG_MOST = 0.2
"""Part of the shortest objective that the generator's lag (p99) may be before a cell is marked."""

Progress = Callable[[float], None]
"""Is told the share of a load that is done, several times per second."""


def run_cell(
    app: LiveApp,
    policy: str,
    rate_rps: float,
    seconds: float,
    seed: int,
    *,
    parameters: Mapping[str, object] | None = None,
    slo_scale: float = 1.0,
    serve_options: Sequence[str] = (),
    warm_up_s: float = WARM_UP_S,
    progress: Progress | None = None,
) -> LiveCell:
    """Serve an app under a policy with a fresh `fairlead serve`, load it with an open loop, and end the gateway.

    Args:
        app: What is served.
        policy: Name of the dispatcher.
        rate_rps: Requests per second, Poisson, of all workflows together; each request is of any workflow with the
            same probability.
        seconds: How long requests are counted, after the warm-up.
        seed: Of the arrivals and of who is called.
        parameters: Of the policy, where others than its defaults are wanted.
        slo_scale: Factor of every objective. Other than 1, requests bring their deadline along.
        serve_options: Further options of `fairlead serve`.
        warm_up_s: How long the same load is sent before it is counted.
        progress: Told how far it is.

    Raises:
        ServingError: The gateway did not start.
    """
    plan = plan_of(app, rate_rps, seconds, seed, slo_scale=slo_scale, warm_up_s=warm_up_s)
    chosen = dict(parameters or {})
    options = ["--decision-times", *_settings(chosen), *serve_options]
    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
        with _gateway(app, Path(folder), policy, options) as gateway:
            before = Snapshot.take()
            with SpeedProbe() as probe:
                result = run_load(gateway.url, plan, progress=_told(plan, progress))
            used = Snapshot.take().since(before, gateway.pid)
        recording = _counted(read_live_run(_run_of(gateway.state)), plan)
    return _cell(app, policy, plan, result, used, recording, chosen, slo_scale, probe.spin_s)


def predict_cell(
    app: LiveApp,
    policy: str,
    rate_rps: float,
    seconds: float,
    seed: int,
    *,
    host: Host | None,
    spin_s: float | None = None,
    parameters: Mapping[str, object] | None = None,
    slo_scale: float = 1.0,
    warm_up_s: float = WARM_UP_S,
) -> Figures:
    """What the simulator says of the very arrivals that `run_cell` sends with the same arguments.

    It knows the profile beside the app, the machine (`host`; None leaves out what the machine costs), how fast the CPUs
    are (`spin_s`, see `SpeedProbe`; None for as fast as they were while the machine was measured), and nothing else of
    a live run.
    """
    plan = plan_of(app, rate_rps, seconds, seed, slo_scale=slo_scale, warm_up_s=warm_up_s)
    if host is not None:
        host = msgspec.structs.replace(host.now(spin_s), max_sent=MOST_OPEN)
    scenario = scenario_under(app, policy, host, parameters)
    given = given_of(scenario, plan)
    run = replace(scenario, arrivals=(), duration_s=plan.duration_s, warmup_s=plan.warm_up_s)
    return recorded_figures(simulate(run, given=given, seed=seed), seconds)


def scenario_under(
    app: LiveApp, policy: str, host: Host | None, parameters: Mapping[str, object] | None = None
) -> Scenario:
    """The scenario of an app under a policy, on a machine if that was measured."""
    scenario = served_scenario(app.manifest, app.measured, host)
    return replace(scenario, policy=PolicyChoice(name=policy, parameters=dict(parameters or {})))


def plan_of(
    app: LiveApp, rate_rps: float, seconds: float, seed: int, *, slo_scale: float = 1.0, warm_up_s: float = WARM_UP_S
) -> Plan:
    """The load of a cell."""
    return Plan(
        arrivals=Open(rate_rps=rate_rps, seed=seed),
        duration_s=warm_up_s + seconds,
        warm_up_s=warm_up_s,
        calls=app.calls(slo_scale=slo_scale),
        sends_deadline=slo_scale != 1.0,
        mix="random",
        mix_seed=seed,
        max_in_flight=MOST_OPEN,
    )


def measure_capacity(app: LiveApp, *, seconds: float = CAPACITY_S, progress: Progress | None = None) -> float:
    """Answers per second that an app gives to 32 users who always ask, over all workflows alike, with time to wait.

    Served by `fairlead` with deadlines of 10 s.

    Raises:
        ServingError: The gateway did not start, or a workflow does not answer.
    """
    plan = Plan(
        arrivals=Closed(USERS),
        duration_s=WARM_UP_S + seconds,
        warm_up_s=WARM_UP_S,
        calls=app.calls(deadline_s=CAPACITY_DEADLINE_S),
        mix="random",
        max_in_flight=MOST_OPEN,
    )
    with (
        tempfile.TemporaryDirectory(prefix="fairlead-") as folder,
        _gateway(app, Path(folder), CAPACITY_POLICY, []) as gateway,
    ):
        ask_once(app, gateway.url)
        goodput_rps = run_load(gateway.url, plan, progress=_told(plan, progress)).goodput_rps
    if not goodput_rps:
        raise ServingError(f"{app.name} answered no request of {USERS} users within {CAPACITY_DEADLINE_S:g} s.")
    return goodput_rps


def check_app(app: LiveApp) -> None:
    """Serve an app and call each workflow once.

    Raises:
        ServingError: The gateway did not start, or a workflow does not answer.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fairlead-") as folder,
        _gateway(app, Path(folder), CAPACITY_POLICY, []) as gateway,
    ):
        ask_once(app, gateway.url)


@contextmanager
def _gateway(app: LiveApp, folder: Path, policy: str, options: Sequence[str]) -> Iterator[Gateway]:
    with ExitStack() as stack:
        with app.environment():  # until its processes have started
            gateway = stack.enter_context(served(app.address, folder, policy, options))
        yield gateway


def _settings(parameters: Mapping[str, object]) -> list[str]:
    return [word for name, value in parameters.items() for word in ("--set", f"policy.{name}={json.dumps(value)}")]


def _told(plan: Plan, progress: Progress | None) -> Callable[[LoadProgress], None] | None:
    if progress is None:
        return None
    tell = progress
    return lambda at: tell(min(1.0, at.elapsed_s / plan.duration_s))


def _run_of(state: Path) -> Path:
    found = latest_run(state)
    assert found is not None, "a gateway that was served leaves records"
    return found


def _counted(recording: Recording, plan: Plan) -> Recording:
    """The recording of a load, with its warm-up left out: the first request came at the first instant of the plan."""
    first = next(iter(arrivals_of(plan)), (0.0, "", inf))[0]
    return replace(recording, warmup_s=recording.warmup_s - first + plan.warm_up_s)


def _cell(
    app: LiveApp,
    policy: str,
    plan: Plan,
    result: LoadResult,
    used: Used,
    recording: Recording,
    parameters: Mapping[str, object],
    slo_scale: float,
    spin_s: float | None,
) -> LiveCell:
    assert isinstance(plan.arrivals, Open)
    times = np.array(recording.decision_s)
    lag_s = result.lag.p99_s or 0.0
    return LiveCell(
        app=app.name,
        policy=policy,
        rate_rps=plan.arrivals.rate_rps,
        seconds=plan.duration_s - plan.warm_up_s,
        seed=plan.arrivals.seed,
        warm_up_s=plan.warm_up_s,
        live=client_figures(result, costs_usd(recording)),
        decisions=Decisions(
            count=times.size,
            mean_s=float(times.mean()) if times.size else None,
            p99_s=float(np.percentile(times, 99)) if times.size else None,
        ),
        gateway_cpu_s=used.gateway_s,
        instances_cpu_s=used.instances_s,
        generator_cpu=result.generator_cpu,
        others=used.others,
        lag_p99_s=lag_s,
        spin_s=spin_s,
        slo_scale=slo_scale,
        parameters=parameters,
        refused=result.refused,
        errors=result.errors,
        unsent=result.unsent,
        marks=tuple(_marks(used.others, lag_s, min(plan.budgets_s))),
    )


def _marks(others: float, lag_s: float, slo_s: float) -> Iterator[str]:
    if others > OTHERS_MOST:
        yield f"others used {others:.0%} of the CPUs"
    if lag_s > LAG_MOST * slo_s:
        yield f"the generator lagged by {lag_s * 1e3:.0f} ms (p99)"
