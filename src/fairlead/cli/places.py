"""Nodes of this machine as people name them on the command line."""

from collections.abc import Sequence
from pathlib import Path

from fairlead.cli.errors import UsageError
from fairlead.engine.live.limits.places import find_places
from fairlead.errors import UnknownNameError
from fairlead.monitor import Place, local_place
from fairlead.monitor.files import parse_cpus

LOCAL = "local"
"""The node that is always there: this machine."""


def cpus_of(text: str | None) -> tuple[int, ...] | None:
    """`--cpus`, checked."""
    try:
        return None if text is None else local_place(parse_cpus(text)).cpus
    except ValueError as error:
        raise UsageError(f"--cpus {text}: {error}") from error


def check_names(names: Sequence[str]) -> None:
    """UsageError where `--node` names a node twice."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--node names {twice!r} twice.")


def places_of(names: Sequence[str], cpus: str | None, cgroup: Path | None) -> list[Place]:
    """The places of these names: this machine, or emulated nodes of services that run on it."""
    check_names(names)
    wanted = cpus_of(cpus)
    if cgroup is not None:
        if len(names) != 1:
            raise UsageError("--cgroup is the group of one node: name it with one --node.")
        if not (cgroup / "cgroup.procs").exists():
            raise UsageError(f"--cgroup {cgroup}: is no control group.")
        return [Place(name=names[0], cpus=wanted or local_place().cpus, cgroup=cgroup.resolve())]
    found = find_places()
    return [_place(name, found, wanted) for name in names]


def all_places(cpus: str | None) -> list[Place]:
    """This machine, and every emulated node; those of one name in several services are told apart by a number."""
    wanted = cpus_of(cpus)
    places = [local_place(wanted)]
    for place in find_places():
        same = sum(other.name.partition("#")[0] == place.name for other in places)
        name = f"{place.name}#{same + 1}" if same else place.name
        places.append(Place(name=name, cpus=wanted or place.cpus, cgroup=place.cgroup))
    return places


def _place(name: str, found: Sequence[Place], cpus: tuple[int, ...] | None) -> Place:
    if name == LOCAL:  # even where services have a node of that name, as those that declare none do
        return local_place(cpus)
    matching = [place for place in found if place.name == name]
    if len(matching) > 1:
        groups = "".join(f"\n  {place.cgroup}" for place in matching)
        raise UsageError(f"Several services have a node {name!r}. Say which with --cgroup:{groups}")
    if matching:
        return Place(name=name, cpus=cpus or matching[0].cpus, cgroup=matching[0].cgroup)
    raise UnknownNameError("node", name, [LOCAL, *(place.name for place in found)])
