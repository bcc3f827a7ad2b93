"""The `fuse=` and `compete=` of a workflow: how they may be written, and which stages they mean."""

from collections.abc import Iterable, Mapping, Sequence

from fairlead.app.compose import Body, Call, Code, name_of
from fairlead.app.fusion import SIGN, Chain

Member = str | Body
"""A stage: its name, or the function that it alone calls."""

Fuse = bool | str | Iterable[str | Member | Sequence[Member]]
Compete = Mapping[str, int] | Mapping[Body, int] | Mapping[str | Body, int]

_FORMS = "True, 'a+b', [(a, b)] or ['a+b', 'c+d']"


def chains_of(fuse: Fuse, codes: Mapping[str, Code]) -> list[Chain] | None:
    """The chains that `fuse` names, as names of stages; None for all that can be fused. `codes` are by stage.

    Raises `ValueError` for what cannot be read, or names no stage.
    """
    if isinstance(fuse, bool):
        return None if fuse else []
    if isinstance(fuse, str):
        return [_chain(fuse, codes)]
    if not isinstance(fuse, Iterable) or isinstance(fuse, Mapping | bytes):
        raise ValueError(f"must be {_FORMS}; got {fuse!r}.")
    groups = list(fuse)
    if groups and all(isinstance(each, Code | Call) or _is_one_name(each) for each in groups):
        return [_chain(groups, codes)]  # one chain, without the brackets around it
    return [_chain(each, codes) for each in groups]


def copies_of(compete: Compete, codes: Mapping[str, Code]) -> dict[str, int]:
    """The numbers of copies by name of the stage. Raises `ValueError`."""
    if not isinstance(compete, Mapping):
        raise ValueError(f"must be the number of copies by stage, such as {{'b': 2}}; got {compete!r}.")
    found: dict[str, int] = {}
    for member, copies in compete.items():
        name = _stage(member, codes)
        if name in found:
            raise ValueError(f"names the stage {name!r} twice.")
        found[name] = copies
    return found


def _chain(group: object, codes: Mapping[str, Code]) -> Chain:
    members: Iterable[object]
    if isinstance(group, str):
        members = [part.strip() for part in group.split(SIGN)]
    elif isinstance(group, Sequence) and not isinstance(group, bytes):
        members = group
    else:
        raise ValueError(f"must be {_FORMS}; got {name_of(group)}.")
    return tuple(_stage(member, codes) for member in members)


def _stage(member: object, codes: Mapping[str, Code]) -> str:
    """The name of the stage that is meant."""
    if isinstance(member, str):
        return member
    if isinstance(member, Call) and member.stage is not None:
        return member.stage
    if isinstance(member, Call):
        member = member.code
    if not isinstance(member, Code):
        raise ValueError(f"{name_of(member)} must be a function of the workflow, or the name of a stage.")
    stages = [name for name, code in codes.items() if code is member]
    if not stages:
        raise ValueError(f"the workflow has no stage that calls {member.name!r}; stages: {', '.join(codes)}.")
    if len(stages) > 1:
        raise ValueError(f"several stages call {member.name!r}; name one of them: {', '.join(map(repr, stages))}.")
    return stages[0]


def _is_one_name(value: object) -> bool:
    return isinstance(value, str) and SIGN not in value
