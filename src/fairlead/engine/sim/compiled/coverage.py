"""What the compiled engine covers, and why it does not cover the rest."""

from dataclasses import replace
from math import inf, isinf

from fairlead.engine.core.site import make_site
from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled.lower import Rule, replica_size
from fairlead.engine.sim.compiled.scalers import KNOWN, Choice, choice_of
from fairlead.policy import Policy
from fairlead.policy.earliest_deadline import EarliestDeadline
from fairlead.policy.fifo import Fifo
from fairlead.policy.least_loaded import LeastLoaded
from fairlead.workload import ClosedLoop, Scenario

BATCHING = {"none": at.NO_BATCHING, "full": at.FULL}


def rule_of(policy: Policy) -> Rule | str:
    """The compiled rule that decides as a policy does, or why there is none."""
    if type(policy) not in (Fifo, LeastLoaded, EarliestDeadline):
        return f"it has no rule for the policy {type(policy).__name__}"
    batching: str = policy.batching  # type: ignore[attr-defined]
    if batching not in BATCHING or (isinstance(policy, EarliestDeadline) and batching != "none"):
        return f"it has no rule for {type(policy).__name__} with batching {batching!r}"
    common = Rule(number=at.FIFO, batching=BATCHING[batching], batch_wait_s=float(policy.batch_wait_s))  # type: ignore[attr-defined]
    if isinstance(policy, Fifo):
        return common if policy.queue_limit is None else replace(common, queue_limit=policy.queue_limit)
    if isinstance(policy, LeastLoaded):
        return replace(common, number=at.LEAST_LOADED)
    assert isinstance(policy, EarliestDeadline)
    return Rule(number=at.EARLIEST_DEADLINE, headroom=policy.headroom, drops_late=policy.drop_late)


def scaler_of(scaler: Policy | None) -> Choice | str:
    """The compiled scaler that decides as this one does, or why there is none."""
    if scaler is None:
        return Choice(0)
    found = choice_of(scaler)
    return (
        f"it has no rule for the scaler {type(scaler).__name__} (it has: {', '.join(KNOWN)})"
        if found is None
        else found
    )


def scenario_gap(scenario: Scenario, is_scaled: bool = False, rule: Rule | None = None) -> str | None:
    """Why a scenario is not covered; None if it is. With a rule, only what that may start has to be."""
    for name, workflow in scenario.workflows.items():
        for stage in workflow.stages:
            if stage.map is not None or stage.join:
                return f"workflow {name} has a map stage ({stage.name})"
            if stage.when is not None:
                return f"workflow {name} branches ({stage.name})"
            if stage.compete > 1:
                return f"stage {stage.name} of workflow {name} has competing copies"
    for name, function in scenario.functions.items():
        if function.buffers:
            return f"function {name} is a kernel with buffers"
        if function.hit_rate:
            return f"a prediction cache answers some invocations of function {name} (hit_rate)"
        if function.warm:
            return f"function {name} keeps instances warm for ever"
        if not isinf(function.run_limit_s) or not isinf(function.start_limit_s):
            return f"function {name} has a run or start limit"
    for name, profile in scenario.profiles.items():
        if profile.failure_rate:
            return f"function {name} fails at times"
        if profile.pressure_curves:
            return f"function {name} has measured pressure curves"
        if profile.assumed_most_s is not None:
            return f"the times of function {name} are assumed, and learned from its first runs"
        if profile.overhead_s:
            return f"function {name} takes time besides its work (overhead_s)"
    for node in scenario.cluster.nodes:
        for device in node.devices:
            if device.sharing != "mps":
                return f"node {node.name} has a device shared by {device.sharing}"
            if device.serves == "kernels":
                return f"node {node.name} has a device that serves kernels only"
            if any(profile.gpu_sensitivity for profile in scenario.profiles.values()):
                return "runs on one device slow each other down (gpu_sensitivity)"
    if any(isinstance(process, ClosedLoop) for process in scenario.arrivals):
        return "arrivals answer to answers (a closed loop)"
    if scenario.decision.fixed_s or scenario.decision.per_step_s:
        return "decisions take time"
    if scenario.host is not None:
        return "the machine's gateway takes time too (host)"
    if scenario.node_faults:
        return "nodes are lost"
    if scenario.growth:
        return "nodes may come and go (growth)"
    return replica_gap(scenario, rule) if is_scaled else None


def replica_gap(scenario: Scenario, rule: Rule | None = None) -> str | None:
    """Why the functions of a scenario cannot run on replicas; None if they can.

    A replica has the size of the function's first configuration, and takes batches of the size that the dispatcher
    chooses. Where there is no such configuration the Python engine refuses the start, which rules do not expect.
    """
    is_free = rule is None or rule.number == at.EARLIEST_DEADLINE or rule.batching != at.NO_BATCHING
    estimates = make_site(scenario).profiles
    kinds = [(kind, node.speed) for kind, node in scenario.cluster.kinds.items()]
    for name, profile in scenario.profiles.items():
        first, *_ = known = profile.configurations
        for batch in {c.batch for c in known} if is_free else {estimates[name].cheapest().batch}:
            size = replica_size(profile, first, batch)
            if size is None:
                return f"function {name} is scaled and has no batches of {batch} in the size of its replicas ({first})"
            if any(profile.latency_s(first, *k) < inf == profile.latency_s(size, *k) for k in kinds):
                return f"function {name} is scaled and cannot run batches of {batch} wherever its replicas may be"
    return None
