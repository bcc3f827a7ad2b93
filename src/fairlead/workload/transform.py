"""Workflows made over: stages fused into one function, and stages that run as competing copies.

Pure functions from one scenario to another, after Cloudflow (V. Sreekanti et al., "Optimizing Prediction Serving on
Low-Latency Serverless Dataflow", arXiv 2007.05832), where both are rewrites of a dataflow.

**Fusion** runs a chain of stages in one process, so that nothing travels and nothing waits between them. What the one
function needs and takes follows from its parts:

* latency: their sum, in the configurations that all of them have;
* memory, device memory: their sums, since everything stays loaded in the one instance;
* cold start: the sum. What the parts could share (a container, an import) is counted more than once, so that fusion
  never looks better for it: a request that finds nothing warm waits as long as in the stages one by one;
* output: that of the last; failure: of any of them, and all are tried again; limits: the sums;
* noise, bias, both sensitivities, pressure: weighed by the time of each part in the first common configuration. Noise
  adds up as independent noise does, so a chain is steadier than its stages.

**Differs from the paper:** the published code of Cloudflow fuses every chain. Here stages of different kinds of
resource are left apart (a vGPU would stand idle during the stages that need none), as are stages that compete.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import hypot, inf

import msgspec

from fairlead.errors import UnknownNameError
from fairlead.model import Cluster, Configuration, Function, Stage, Workflow
from fairlead.profile import Profile, Sum
from fairlead.profile.interference import slowdown, under_pressure
from fairlead.workload.scenario import Scenario


def compete(scenario: Scenario, workflow: str, stage: str, copies: int) -> Scenario:
    """The scenario with this many copies of a stage at once, of which the first to be done is enough."""
    flow, _ = _find(scenario, workflow, (stage,))
    stages = tuple(msgspec.structs.replace(s, compete=copies) if s.name == stage else s for s in flow.stages)
    return _with_stages(scenario, flow, stages)


def fuse(scenario: Scenario, workflow: str, chains: Sequence[Sequence[str]] | None = None) -> Scenario:
    """The scenario with chains of stages merged, each into one stage and one function named `first+second+...`.

    Args:
        scenario: What to change.
        workflow: In which workflow.
        chains: The stages of each chain, in order; None takes every chain whose stages use the same kind of resource.

    Raises:
        ValueError: A chain cannot be fused; says why.
        UnknownNameError: There is no such workflow or stage.
    """
    flow, _ = _find(scenario, workflow, ())
    if chains is None:
        wanted = list(_all_chains(scenario, flow))
    else:
        wanted = [_find(scenario, workflow, chain)[1] for chain in chains]
        for chain in wanted:
            _check(scenario, flow, chain)
        names = [stage.name for chain in wanted for stage in chain]
        if len(set(names)) < len(names):
            raise ValueError("a stage is in two chains, or twice in one.")
    for chain in wanted:
        scenario = _fuse_chain(scenario, workflow, chain)
    return scenario


def _fuse_chain(scenario: Scenario, workflow: str, chain: Sequence[Stage]) -> Scenario:
    flow = scenario.workflows[workflow]
    function, profile = _fused(scenario, chain)
    known = scenario.functions.get(function.name)
    if known is not None and (known, scenario.profiles[function.name]) != (function, profile):
        raise ValueError(f"there is another function {function.name!r} already.")
    name = "+".join(stage.name for stage in chain)
    first = flow.stages[[s.name for s in flow.stages].index(chain[0].name)]  # what is before it may be fused by now
    merged = msgspec.structs.replace(first, name=name, function=function.name)
    gone, last = {stage.name for stage in chain}, chain[-1].name
    stages = []
    for stage in flow.stages:
        if stage.name == first.name:
            stages.append(merged)
        elif stage.name not in gone:
            after = tuple(name if before == last else before for before in stage.after)
            stages.append(msgspec.structs.replace(stage, after=after))
    return replace(
        _with_stages(scenario, flow, stages),
        functions={**scenario.functions, function.name: function},
        profiles={**scenario.profiles, function.name: profile},
    )


def _fused(scenario: Scenario, chain: Sequence[Stage]) -> tuple[Function, Profile]:
    functions = [scenario.functions[stage.function] for stage in chain]
    profiles = [scenario.profiles[stage.function] for stage in chain]
    common = _common(profiles, scenario.cluster)
    function = Function(
        name="+".join(f.name for f in functions),
        memory_gb=sum(f.memory_gb for f in functions),
        device_memory_gb=sum(f.device_memory_gb for f in functions),
        output_mb=functions[-1].output_mb,
        keep_alive_s=max(f.keep_alive_s for f in functions),
        idle_holds="slice" if any(f.idle_holds == "slice" for f in functions) else "memory",
        retries=max(f.retries for f in functions),
        run_limit_s=sum(f.run_limit_s for f in functions),
        start_limit_s=sum(f.start_limit_s for f in functions),
    )
    by_kind = any(p.cold_start_by_kind for p in profiles)
    seconds = _seconds(profiles, common[0], scenario.cluster)
    total_s = sum(seconds)
    real = [s * p.bias for s, p in zip(seconds, profiles, strict=True)]
    shares = [s / sum(real) for s in real] if total_s else [1 / len(real)] * len(real)
    succeeds = 1.0
    for p in profiles:
        succeeds *= 1 - p.failure_rate
    profile = Profile(
        law=Sum(tuple(p.law for p in profiles)),
        configurations=tuple(msgspec.structs.replace(c, memory_gb=c.memory_gb * len(chain)) for c in common),
        cold_start_s=0.0 if by_kind else sum(p.cold_start_s for p in profiles),
        cold_start_by_kind=(
            {kind: sum(p.cold_s(kind) for p in profiles) for kind in scenario.cluster.kinds} if by_kind else {}
        ),
        noise=hypot(*(share * p.noise for share, p in zip(shares, profiles, strict=True))),
        bias=sum(real) / total_s if total_s else 1.0,
        failure_rate=1 - succeeds,
        sensitivity=sum(share * p.sensitivity for share, p in zip(shares, profiles, strict=True)),
        pressure=sum(share * p.pressure for share, p in zip(shares, profiles, strict=True)),
        gpu_sensitivity=sum(share * p.gpu_sensitivity for share, p in zip(shares, profiles, strict=True)),
        pressure_curves=_fused_curves(profiles, shares),
        overhead_s=max(p.overhead_s for p in profiles),  # one way to them all
    )
    return function, profile


def _fused_curves(profiles: Sequence[Profile], shares: Sequence[float]) -> dict[str, tuple[tuple[float, float], ...]]:
    """By kind of node, what pressure costs all of them together, by their shares of the time.

    A part without a curve has the line of its sensitivity. What pressure adds to the contention on an overcommitted
    node is not in it: that depends on what else runs there.
    """
    curves: dict[str, tuple[tuple[float, float], ...]] = {}
    for kind in sorted({kind for p in profiles for kind in p.pressure_curves}):
        own = [
            p.pressure_curves.get(kind, ((0.0, 1.0), (1.0, slowdown(p.sensitivity, 0.0, pressure=1.0))))
            for p in profiles
        ]
        curves[kind] = tuple(
            (at, sum(share * under_pressure(curve, at) for share, curve in zip(shares, own, strict=True)))
            for at in sorted({at for curve in own for at, _ in curve})
        )
    return curves


# --- which chains --------------------------------------------------------------------------------------------------


def _all_chains(scenario: Scenario, flow: Workflow) -> Iterator[tuple[Stage, ...]]:
    """Every longest chain of stages that use the same kind of resource."""
    taken: set[str] = set()
    for stage in flow.stages:  # in topological order, so that a chain is met at its beginning
        if stage.name in taken:
            continue
        chain: tuple[Stage, ...] = (stage,)
        while (longer := _longer(scenario, flow, chain)) is not None:
            chain = longer
        taken.update(s.name for s in chain)
        if len(chain) > 1:
            yield chain


def _longer(scenario: Scenario, flow: Workflow, chain: tuple[Stage, ...]) -> tuple[Stage, ...] | None:
    """The chain with one stage more, if there is one that may be fused to it without asking."""
    for stage in flow.stages:
        if chain[-1].name in stage.after:
            longer = (*chain, stage)
            profiles = [scenario.profiles[s.function] for s in longer]
            if _obstacle(scenario, flow, longer) is None and _keeps_gpus(profiles, scenario.cluster):
                return longer
    return None


def _keeps_gpus(profiles: Sequence[Profile], cluster: Cluster) -> bool:
    """Whether all of them, and what they have in common, agree in using vGPUs or not."""
    spaces = [p.configurations for p in profiles] + [_common(profiles, cluster)]
    return len({any(c.vgpus for c in space) for space in spaces}) == 1


def _check(scenario: Scenario, flow: Workflow, chain: Sequence[Stage]) -> None:
    if len(chain) < 2:
        raise ValueError(f"a chain has at least two stages; got {len(chain)}.")
    for length in range(2, len(chain) + 1):
        reason = _obstacle(scenario, flow, chain[:length])
        if reason is not None:
            raise ValueError(f"{' and '.join(s.name for s in chain[:length])} cannot be fused: {reason}.")


def _obstacle(scenario: Scenario, flow: Workflow, chain: Sequence[Stage]) -> str | None:
    """Why the last stage of a chain cannot be fused to those before it; None if it can."""
    first, second = chain[-2:]
    if second.after != (first.name,):
        return f"{second.name} does not follow {first.name} alone"
    others = [stage.name for stage in flow.stages if first.name in stage.after and stage is not second]
    if others:
        return f"{', '.join(others)} needs the output of {first.name} too"
    if second.when is not None or second.map is not None or second.join:
        return f"{second.name} is an arm of a branch, a map or a join"
    for stage in (first, second):
        if stage.compete > 1:
            return f"{stage.name} competes"
        if scenario.functions[stage.function].buffers:
            return f"{stage.function} is a kernel, whose device memory is not its own"
        if scenario.profiles[stage.function].spread is not None:
            return f"the times of {stage.function} are drawn from a law, and those of a sum would not follow it"
    if not _common([scenario.profiles[stage.function] for stage in chain], scenario.cluster):
        return "they have no configuration in common"
    return None


def _common(profiles: Sequence[Profile], cluster: Cluster) -> tuple[Configuration, ...]:
    """The configurations that all of these have, on a node kind on which all of them can run."""
    return tuple(
        configuration
        for configuration in profiles[0].configurations
        if all(configuration in p.configurations for p in profiles)
        and sum(_seconds(profiles, configuration, cluster)) < inf
    )


def _seconds(profiles: Sequence[Profile], configuration: Configuration, cluster: Cluster) -> list[float]:
    """How long each part takes, on the node kind where their sum is least."""
    by_kind = [[p.latency_s(configuration, kind, node.speed) for p in profiles] for kind, node in cluster.kinds.items()]
    return min(by_kind, key=sum)


# --- values --------------------------------------------------------------------------------------------------------


def _find(scenario: Scenario, workflow: str, stages: Sequence[str]) -> tuple[Workflow, tuple[Stage, ...]]:
    if workflow not in scenario.workflows:
        raise UnknownNameError("workflow", workflow, scenario.workflows)
    flow = scenario.workflows[workflow]
    by_name = {stage.name: stage for stage in flow.stages}
    for name in stages:
        if name not in by_name:
            raise UnknownNameError("stage", name, by_name)
    return flow, tuple(by_name[name] for name in stages)


def _with_stages(scenario: Scenario, flow: Workflow, stages: Sequence[Stage]) -> Scenario:
    changed = Workflow(name=flow.name, stages=tuple(stages), slo=flow.slo)
    return replace(scenario, workflows={**scenario.workflows, flow.name: changed})
