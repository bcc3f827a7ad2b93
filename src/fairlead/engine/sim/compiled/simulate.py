"""A scenario through the compiled engine, with the records of the Python engine."""

from collections.abc import Mapping
from time import perf_counter

from fairlead.engine.sim.compiled.placements import Placement
from fairlead.engine.sim.compiled.run import CompiledRun, coverage
from fairlead.engine.sim.driver import parameters_of
from fairlead.errors import UncoveredError
from fairlead.model import Recording
from fairlead.policy import Policy
from fairlead.workload import Scenario


def simulate_compiled(
    scenario: Scenario,
    policy: Policy | Placement,
    scaler: Policy | None,
    names: tuple[str, str | None],
    seed: int,
    point: Mapping[str, object],
    may_decline: bool,
) -> Recording | None:
    """One run; None if the engine does not cover it and may decline.

    Raises:
        UncoveredError: It does not cover the run and must say so.
        PolicyError: A placement failed.
    """
    reason = coverage(scenario, policy, scaler)
    if reason is not None:
        if may_decline and isinstance(policy, Policy):
            return None
        raise UncoveredError(scenario.name, reason)
    run = CompiledRun(scenario, policy, scaler, seed=seed)
    began = perf_counter()
    run.go()
    run_wall_s = perf_counter() - began
    requests, invocations, instances = run.tables()
    return Recording(
        scenario=scenario.name,
        policy=names[0],
        scaler=names[1],
        seed=seed,
        parameters=parameters_of(policy, scaler) if isinstance(policy, Policy) else {},
        cluster=scenario.cluster,
        warmup_s=scenario.warmup_s,
        duration_s=scenario.duration_s,
        end_s=run.now,
        requests=requests,
        invocations=invocations,
        instances=instances,
        stale_events=run.stale_events,
        run_wall_s=run_wall_s,
        engine="compiled",
        point=dict(point),
    )
