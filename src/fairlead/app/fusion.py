"""Fusing stages of a workflow: chains that run in one instance, one function after the other.

After Cloudflow's operator fusion (V. Sreekanti et al., arXiv 2007.05832). Works on specs alone, so that an app and
whoever compares the splits of a workflow fuse by the same rules. What a fused function needs follows from its parts:

* batch sizes: those that all batched parts have; a part that takes one argument works item by item inside;
* vCPUs, vGPUs: the choices that all parts have;
* memory: the sum, and no limit where a part has none;
* limits of start and run: the sum, where a part that works item by item counts once per item of the largest batch;
* retries: the least, since a retry runs all parts again; instances kept warm and their keep-alive: the most.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from fairlead.app.manifest import (
    Collected,
    FirstOf,
    FunctionSpec,
    Item,
    Listed,
    Manifest,
    Output,
    Source,
    StageSpec,
    Unfused,
    WorkflowSpec,
)
from fairlead.errors import suggestion

SIGN = "+"
"""Between the names of the parts of a fused stage or function; no other name may contain it."""

MOST_COPIES = 16
"""Copies of one stage that may compete."""

Chain = tuple[str, ...]
"""The names of stages that are to be fused, in order."""

T = TypeVar("T")


def fused_name(parts: Iterable[str]) -> str:
    """What a fused stage or function is called."""
    return SIGN.join(parts)


def all_chains(stages: Sequence[StageSpec], functions: Mapping[str, FunctionSpec]) -> list[Chain]:
    """Every longest chain that may be fused without being asked for, in topological order.

    Stages of which only some can use a vGPU are left apart: it would stand idle while the others run.
    """
    chains: list[Chain] = []
    taken: set[str] = set()
    for stage in stages:  # in topological order, so that a chain is met at its beginning
        if stage.name in taken:
            continue
        chain: Chain = (stage.name,)
        while (longer := _longer(stages, functions, chain)) is not None:
            chain = longer
        taken.update(chain)
        if len(chain) > 1:
            chains.append(chain)
    return chains


def check_chains(stages: Sequence[StageSpec], functions: Mapping[str, FunctionSpec], chains: Sequence[Chain]) -> None:
    """Raise `ValueError` unless each of these chains can be fused, and no stage is in two of them."""
    known = [stage.name for stage in stages]
    for chain in chains:
        for name in chain:
            if name not in known:
                raise ValueError(f"there is no stage {name!r}.{suggestion(name, known)} Stages: {', '.join(known)}.")
        if len(chain) < 2:
            raise ValueError(f"a chain has at least two stages; got {', '.join(chain) or 'none'}.")
        for length in range(2, len(chain) + 1):
            reason = _obstacle(stages, functions, chain[:length])
            if reason is not None:
                raise ValueError(f"{_and(chain[length - 2 : length])} cannot be fused: {reason}.")
    names = [name for chain in chains for name in chain]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"stage {name!r} is in two chains.")


def fuse_workflow(
    spec: WorkflowSpec, functions: Mapping[str, FunctionSpec], chains: Sequence[Chain]
) -> tuple[WorkflowSpec, dict[str, FunctionSpec]]:
    """The workflow with these chains fused, and the fused functions by name. The plain stages stay in `unfused`.

    Raises `ValueError` if a chain cannot be fused.
    """
    plain = unfused_workflow(spec)
    check_chains(plain.stages, functions, chains)
    if not chains:
        return plain, {}
    by_name = {stage.name: stage for stage in plain.stages}
    made: dict[str, FunctionSpec] = {}
    renamed: dict[str, str] = {}  # the first and the last stage of a chain, by what they become
    merged: dict[str, StageSpec] = {}  # by the first stage of a chain
    for chain in chains:
        parts = [by_name[name] for name in chain]
        function = fused_function([functions[part.function] for part in parts])
        made[function.name] = function
        name = fused_name(chain)
        renamed |= {chain[0]: name, chain[-1]: name}
        last = parts[-1]
        merged[chain[0]] = msgspec.structs.replace(
            parts[0],
            name=name,
            function=function.name,
            splits=last.splits,
            chooses=last.chooses,
            arms=last.arms,
            parts=chain,
        )
    gone = {name for chain in chains for name in chain[1:]}
    stages = tuple(_renamed(merged.get(s.name, s), renamed) for s in plain.stages if s.name not in gone)
    fused = msgspec.structs.replace(
        plain,
        stages=stages,
        answer=_renamed_source(plain.answer, renamed),
        unfused=Unfused(stages=plain.stages, answer=plain.answer),
    )
    return fused, made


def fused_function(parts: Sequence[FunctionSpec]) -> FunctionSpec:
    """The function that runs these one after the other. Raises `ValueError` if they have no configuration in common."""
    batched = [part for part in parts if part.is_batched]
    batch = _common([part.batch for part in batched]) if batched else (1,)
    vcpus, vgpus = _common([part.vcpus for part in parts]), _common([part.vgpus for part in parts])
    for what, found in (("batch", batch), ("vcpus", vcpus), ("gpu", vgpus)):
        if not found:
            raise ValueError(f"they have no {what} in common")
    times = [1 if part.is_batched else batch[-1] for part in parts]
    return FunctionSpec(
        name=fused_name(part.name for part in parts),
        batch=batch,
        vcpus=vcpus,
        vgpus=vgpus,
        memory_gb=sum(part.memory_gb for part in parts) if all(part.memory_gb for part in parts) else 0.0,
        is_batched=bool(batched),
        has_setup=any(part.has_setup for part in parts),
        retries=min(part.retries for part in parts),
        run_limit_s=_sum([part.run_limit_s for part in parts], times),
        start_limit_s=_sum([part.start_limit_s for part in parts], [1] * len(parts)),
        keep_alive_s=max(part.keep_alive_s for part in parts),
        warm=max(part.warm for part in parts),
        parts=tuple(part.name for part in parts),
    )


def with_copies(spec: WorkflowSpec, copies: Mapping[str, int]) -> WorkflowSpec:
    """The workflow with this many competing copies of each of these stages. Raises `ValueError`."""
    known = [stage.name for stage in spec.stages]
    for name, count in copies.items():
        if name not in known:
            raise ValueError(f"there is no stage {name!r}.{suggestion(name, known)} Stages: {', '.join(known)}.")
        if type(count) is not int or not 1 <= count <= MOST_COPIES:
            raise ValueError(f"the copies of {name!r} must be a whole number from 1 to {MOST_COPIES}; got {count!r}.")
    stages = (msgspec.structs.replace(stage, compete=copies.get(stage.name, 1)) for stage in spec.stages)
    return msgspec.structs.replace(spec, stages=tuple(stages))


def unfused_workflow(spec: WorkflowSpec) -> WorkflowSpec:
    """The workflow with every stage by itself; stages that were fused do not compete then."""
    if spec.unfused is None:
        return spec
    return msgspec.structs.replace(spec, stages=spec.unfused.stages, answer=spec.unfused.answer, unfused=None)


def unfused_manifest(manifest: Manifest) -> Manifest:
    """The app with every stage of every workflow by itself."""
    functions = tuple(spec for spec in manifest.functions if not spec.parts)
    workflows = tuple(unfused_workflow(spec) for spec in manifest.workflows)
    return msgspec.structs.replace(manifest, functions=(*functions, *manifest.parts), workflows=workflows, parts=())


def fuse_manifest(manifest: Manifest, chains: Mapping[str, Sequence[Chain]]) -> Manifest:
    """An app in which nothing is fused, with chains fused, by workflow. Raises `ValueError`."""
    declared = {spec.name: spec for spec in manifest.functions}
    functions = dict(declared)
    workflows = []
    for spec in manifest.workflows:
        fused, made = fuse_workflow(spec, declared, chains.get(spec.name, ()))
        workflows.append(fused)
        functions |= made
    served, parts = split_parts(functions, workflows)
    return msgspec.structs.replace(manifest, functions=served, workflows=tuple(workflows), parts=parts)


def split_parts(
    functions: Mapping[str, FunctionSpec], workflows: Collection[WorkflowSpec]
) -> tuple[tuple[FunctionSpec, ...], tuple[FunctionSpec, ...]]:
    """The functions that have instances of their own, and those that run inside fused ones only."""
    alone = {stage.function for spec in workflows for stage in spec.stages}
    inside = {part for spec in functions.values() for part in spec.parts} - alone
    served = tuple(spec for spec in functions.values() if spec.name not in inside)
    return served, tuple(spec for spec in functions.values() if spec.name in inside)


def _longer(stages: Sequence[StageSpec], functions: Mapping[str, FunctionSpec], chain: Chain) -> Chain | None:
    """The chain with one stage more, if there is one that may be fused to it without being asked for."""
    by_name = {stage.name: stage for stage in stages}
    for stage in stages:
        if chain[-1] in stage.after:
            longer = (*chain, stage.name)
            uses_gpu = {functions[by_name[name].function].vgpus[-1] > 0 for name in longer}
            if len(uses_gpu) == 1 and _obstacle(stages, functions, longer) is None:
                return longer
    return None


def _obstacle(stages: Sequence[StageSpec], functions: Mapping[str, FunctionSpec], chain: Chain) -> str | None:
    """Why the last stage of a chain cannot be fused to those before it; None if it can."""
    by_name = {stage.name: stage for stage in stages}
    first, second = (by_name[name] for name in chain[-2:])
    if second.when is not None:
        return f"{second.name} is an arm of a switch"
    if second.map is not None:
        return f"{second.name} runs for each item of what {first.name} gives"
    if second.join:
        return f"{second.name} waits for all items of an each"
    if len(second.after) > 1 and first.name in second.after:
        return f"{second.name} waits for {_and([name for name in second.after if name != first.name])} too"
    if second.after != (first.name,):
        return f"{second.name} does not follow {first.name}"
    for stage in (first, second):
        if stage.using:
            return f"{stage.name} takes more than what comes before it ({', '.join(stage.using)})"
    others = [
        stage.name
        for stage in stages
        if stage is not second and (first.name in stage.after or Output(first.name) in stage.using.values())
    ]
    if others:
        return f"{_and(others)} takes what {first.name} gives too"
    for stage in (first, second):
        if stage.compete > 1:
            return f"{stage.name} competes"
    for stage in (first, second):
        if functions[stage.function].kernel is not None:
            return f"{stage.name} is a kernel, which runs on a device of its own"
    try:
        fused_function([functions[by_name[name].function] for name in chain])
    except ValueError as error:
        return str(error)
    return None


def _renamed(stage: StageSpec, names: Mapping[str, str]) -> StageSpec:
    """The stage with other names for those that it follows, takes from and leads to."""
    return msgspec.structs.replace(
        stage,
        source=_renamed_source(stage.source, names),
        using={
            parameter: Output(names.get(source.stage, source.stage)) if isinstance(source, Output) else source
            for parameter, source in stage.using.items()
        },
        after=tuple(names.get(name, name) for name in stage.after),
        arms={label: arm if arm is None else names.get(arm, arm) for label, arm in stage.arms.items()},
    )


def _renamed_source(source: Source, names: Mapping[str, str]) -> Source:
    match source:
        case Output(stage):
            return Output(names.get(stage, stage))
        case Item(of):
            inner = _renamed_source(of, names)
            return Item(inner) if isinstance(inner, Output) else source
        case Collected(of):
            return Collected(_renamed_source(of, names))
        case Listed(parts):
            return Listed(tuple(_renamed_source(part, names) for part in parts))
        case FirstOf(parts):
            return FirstOf(tuple(_renamed_source(part, names) for part in parts))
    return source


def _common(choices: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    """What all of these have, in the order of the first."""
    return tuple(choice for choice in choices[0] if all(choice in other for other in choices))


def _sum(limits: Sequence[float | None], times: Sequence[int]) -> float | None:
    found = [limit * count for limit, count in zip(limits, times, strict=True) if limit is not None]
    return sum(found) if len(found) == len(limits) else None


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)
