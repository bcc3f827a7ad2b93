"""A logged run under the same or another policy, in the simulator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fairlead.engine.core import events as ev
from fairlead.engine.sim import simulate
from fairlead.errors import ConfigError, Fault
from fairlead.model import Recording
from fairlead.policy.base import Retire
from fairlead.replay.logged import LoggedRun
from fairlead.replay.observed import Observations
from fairlead.replay.physics import NEAR, EmpiricalPhysics
from fairlead.report import Summary
from fairlead.workload import PolicyChoice

Progress = Callable[[float], None]

REPLAYED = "replayed"
RECORDED = "recorded"


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """How far a replay under the same policy is from what happened: shares of p50 and p99, points of attainment.

    None where one of the two has no answers.
    """

    p50: float | None
    p99: float | None
    attainment: float | None


def replay(
    run: LoggedRun,
    policy: PolicyChoice | None = None,
    *,
    seed: int | None = None,
    warmup_s: float = 0.0,
    observed: Observations | None = None,
    near: int = NEAR,
    since: float = 0.0,
    progress: Progress | None = None,
) -> Recording:
    """What the recorded requests would have met: same instants, deadlines and inputs, times drawn from the run.

    Args:
        run: As `read_logged_run` gives it.
        policy: Who dispatches instead; None for the run's own, with its parameters.
        seed: Of the draws and of the policy; None for the run's own.
        warmup_s: Requests that came before this instant are not counted.
        observed: What the run shows, if it is at hand from another replay.
        near: Among how many batches of about the same time one is drawn.
        since: Requests that came before this instant are left out.
        progress: Called now and then with the simulated time.
    """
    given = _given(run, since)
    if not any(isinstance(event, ev.Arrived) for _, event in given):
        raise ConfigError(str(run.folder), [Fault("", "no request was recorded, so there is nothing to replay.")])
    number = run.head.seed if seed is None else seed
    scenario = run.scenario
    scenario = replace(
        scenario,
        duration_s=run.recording.duration_s,
        warmup_s=warmup_s,
        policy=policy or scenario.policy,
    )
    physics = EmpiricalPhysics(scenario, number, observed or Observations(run), near)
    point = {"run": REPLAYED}
    return simulate(scenario, seed=number, point=point, progress=progress, physics=physics, given=given)


def deviation(recorded: Summary, replayed: Summary) -> Deviation:
    """How far the second is from the first; positive where it is more."""

    def off(was: float | None, came: float | None) -> float | None:
        return came / was - 1 if was and came is not None else None

    points = None
    if recorded.slo_attainment is not None and replayed.slo_attainment is not None:
        points = replayed.slo_attainment - recorded.slo_attainment
    return Deviation(
        p50=off(recorded.latency_s.p50, replayed.latency_s.p50),
        p99=off(recorded.latency_s.p99, replayed.latency_s.p99),
        attainment=points,
    )


def left_out(run: LoggedRun) -> Mapping[str, int]:
    """What happened in the run and is not replayed, by kind: it belongs to instances that a replay may not have."""
    counts: dict[str, int] = {}
    for _, events in run.instants:
        for event in events:
            if isinstance(event, ev.InstanceLost):
                counts["instances that were lost"] = counts.get("instances that were lost", 0) + 1
            elif isinstance(event, ev.InstanceAdopted):
                counts["instances that were adopted"] = counts.get("instances that were adopted", 0) + 1
            elif isinstance(event, ev.Ordered) and isinstance(event.action, Retire):
                counts["orders to retire an instance"] = counts.get("orders to retire an instance", 0) + 1
    return counts


def _given(run: LoggedRun, since: float) -> list[tuple[float, ev.Event]]:
    """What came from outside: requests, cancellations, expiries, orders that name no instance, and nodes.

    Nodes may be lost, come back, and change their size. What concerns a request that came before `since` is left out.
    """
    nodes = {node.name for node in run.head.scenario.cluster.nodes}
    given: list[tuple[float, ev.Event]] = []
    left_out: set[int] = set()
    for now, events in run.instants:
        for event in events:
            if isinstance(event, ev.Arrived) and event.request.arrival < since:
                left_out.add(event.request.id)
            elif isinstance(event, ev.Cancelled | ev.Expired) and event.request in left_out:
                left_out.discard(event.request)
            elif isinstance(event, ev.Arrived | ev.Cancelled | ev.Expired | ev.NodeLost | ev.NodeChanged | ev.Pressure):
                given.append((now, event))
            elif isinstance(event, ev.Ordered):
                if not isinstance(event.action, Retire):
                    given.append((now, event))
            elif isinstance(event, ev.NodeJoined) and event.node.name in nodes:
                given.append((now, event))  # a node that a scaler asked for is its own affair
    return given
