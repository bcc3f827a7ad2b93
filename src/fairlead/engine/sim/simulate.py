"""One run of a scenario in the simulator: which engine, and who decides."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from fairlead.engine.core import events as ev
from fairlead.engine.sim.driver import Progress, Simulation
from fairlead.engine.sim.hosted import HostedSimulation
from fairlead.engine.sim.physics import Physics
from fairlead.model import Recording
from fairlead.policy import Policy, make_policy
from fairlead.workload import ClosedLoop, Scenario

if TYPE_CHECKING:
    from fairlead.engine.sim.compiled import Placement

Engine = Literal["python", "compiled", "auto"]

_WORTH_COMPILING = 200_000  # invocations: fewer take the Python engine about as long as loading the other one


def simulate(
    scenario: Scenario,
    policy: "str | Policy | Placement | None" = None,
    *,
    scaler: str | Policy | None = None,
    seed: int = 0,
    engine: Engine = "python",
    point: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    physics: Physics | None = None,
    given: Sequence[tuple[float, ev.Event]] = (),
) -> Recording:
    """One run of a scenario under a policy: everything that happened, as records.

    Args:
        scenario: What to run.
        policy: A name, a policy, or None for the scenario's own choice with its parameters. The compiled engine also
            takes a placement (`fairlead.engine.sim.compiled`).
        scaler: Likewise; None for the scenario's own.
        seed: The same scenario and seed give the same records, to the byte, in either engine.
        engine: `compiled` runs as machine code what that engine covers; `auto` takes it where it covers the run and
            that is long enough to be worth it. Decision times are measured by the Python engine alone.
        point: Where this run lies in a sweep; only carried along.
        progress: Called now and then with the simulated time.
        physics: Stands in for the modelled times: in tests, and where times were observed.
        given: Events at their instants that come besides the scenario's arrivals: requests that were recorded, with
            the ids they had, cancellations, orders, node losses and changes.

    Raises:
        PolicyError: The policy raised; the error carries the records until then.
        UncoveredError: The compiled engine was asked for and does not cover the run.
    """
    name, dispatcher = _resolve(policy, scenario.policy.name, scenario.policy.parameters)
    scaler_name: str | None = None
    scaling: Policy | None = None
    if scaler is not None or scenario.scaler is not None:
        own = scenario.scaler
        scaler_name, found = _resolve(scaler, own.name if own else "", own.parameters if own else {})
        assert isinstance(found, Policy), "a placement does not scale"
        scaling = found
    if engine not in get_args(Engine):
        raise ValueError(f"engine must be one of {', '.join(get_args(Engine))}; got {engine!r}.")
    is_ours = physics is None and not given
    if not isinstance(dispatcher, Policy) or (is_ours and is_for_compiled(scenario, engine)):
        from fairlead.engine.sim.compiled.simulate import simulate_compiled  # noqa: PLC0415 - numba takes a while

        names = (name, scaler_name)
        recording = simulate_compiled(scenario, dispatcher, scaling, names, seed, point or {}, engine == "auto")
        if recording is not None:
            return recording
    assert isinstance(dispatcher, Policy)
    kind = Simulation if scenario.host is None else HostedSimulation
    run = kind(scenario, (name, dispatcher), (scaler_name, scaling), seed, physics, given)
    return run.run(progress, point or {})


def is_for_compiled(scenario: Scenario, engine: Engine) -> bool:
    """Whether the compiled engine is asked first, by order or since the run is long enough to be worth loading it."""
    return engine == "compiled" or (engine == "auto" and _expected(scenario) >= _WORTH_COMPILING)


def _expected(scenario: Scenario) -> float:
    """How many invocations the arrivals will bring, about."""
    stages = {name: len(workflow.stages) for name, workflow in scenario.workflows.items()}
    return sum(
        process.expected(scenario.duration_s) * stages[process.workflow]
        for process in scenario.arrivals
        if not isinstance(process, ClosedLoop)
    )


def _resolve(
    policy: "str | Policy | Placement | None", name: str, parameters: Mapping[str, object]
) -> "tuple[str, Policy | Placement]":
    if policy is None:
        return name, make_policy(name, parameters)
    if isinstance(policy, str):
        return policy, make_policy(policy, parameters if policy == name else {})
    return policy_name(policy), policy


def policy_name(policy: "Policy | Placement") -> str:
    """What to call a policy that was handed over as an object."""
    return type(policy).__name__ if isinstance(policy, Policy) else policy.name
