"""Emulated nodes: parts of this machine that stand for a cluster, as a file describes them.

The file is the `cluster` of a scenario file, or just its inside: groups of nodes with name, kind, vCPUs, memory, speed
and overcommit. A group may also say on which CPUs its nodes are. Speed 1 is this machine's: a node may use vCPUs times
speed of its cores, so that one of speed 0.4 really takes two and a half times as long.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import ConfigError, Fault, suggestion
from fairlead.model import Cluster
from fairlead.monitor.files import parse_cpus
from fairlead.workload.parse.cluster import parse_cluster
from fairlead.workload.parse.document import describe
from fairlead.workload.parse.reader import Section, integer, number
from fairlead.workload.parse.source import read_source

_KEYS = ("name", "kind", "count", "vcpus", "memory_gb", "speed", "overcommit", "cpus")

_Data = Mapping[object, object]


@dataclass(frozen=True, kw_only=True)
class EmulatedNodes:
    """The cluster that a nodes file describes, and the CPUs of those nodes that are bound to some."""

    source: str
    cluster: Cluster
    cpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def cores(self) -> float:
        """Cores that all nodes together may use at once."""
        return sum(node.vcpus * node.speed for node in self.cluster.nodes)

    def excess(self, apps: int = 1) -> str | None:
        """A warning where this machine has less than all of them may use; None where they are independent.

        Each of several apps has nodes of its own.
        """
        machine, cores = len(os.sched_getaffinity(0)), self.cores * max(1, apps)
        if cores <= machine:
            return None
        each = f", each of {apps} apps on nodes of its own" if apps > 1 else ""
        return (
            f"{self.source}: the nodes may use {cores:g} cores in all (vCPUs x speed{each}) and this machine has "
            f"{machine}: while all of them are busy they slow each other down. Lower speeds or vCPUs keep them apart."
        )

    def require_limits(self, kind: str) -> None:
        """ConfigError where this kind of limiter cannot make a node as slow as the file says."""
        slow = [node for node in self.cluster.nodes if node.speed != 1]
        if kind == "affinity" and slow:
            what = (
                f"node {slow[0].name} has speed {slow[0].speed:g}, which only control groups can emulate, and limits "
                "are by affinity. Serve as root and without --limits affinity, or give every node speed 1."
            )
            raise ConfigError(self.source, [Fault("nodes", what)])


def read_nodes(path: Path) -> EmulatedNodes:
    """The nodes of a file. Raises `ConfigError` with every fault."""
    return parse_nodes(_data_of(path), str(path))


def nodes_text(path: Path) -> str:
    """What a file says of nodes, as one line that `nodes_of` reads: a gateway that starts again needs no file."""
    data = _data_of(path)
    return json.dumps({"source": str(path), "data": {"cluster": data["cluster"]} if "cluster" in data else dict(data)})


def nodes_of(text: str) -> EmulatedNodes:
    """The nodes of such a line."""
    found = json.loads(text)
    return parse_nodes(found["data"], found["source"])


def parse_nodes(data: _Data, source: str) -> EmulatedNodes:
    """The nodes in plain data. Raises `ConfigError` with every fault."""
    faults: list[Fault] = []
    path = ""
    if "cluster" in data:  # beside it there may be the rest of a scenario, which is for others
        if "nodes" in data:
            raise ConfigError(source, [Fault("nodes", "is given beside cluster; put all nodes in one of both.")])
        path, inside = "cluster", data["cluster"]
        if not isinstance(inside, Mapping):
            raise ConfigError(source, [Fault(path, f"must be a mapping; got {describe(inside)}.")])
        data = inside
    groups = Section(data, path, faults).sections("nodes") if "nodes" in data else []
    for group in groups:
        _check_group(group)
    cpus = [group.get("cpus", _cpus, ()) for group in groups]
    wrong = len(faults)
    cluster = parse_cluster(Section(_plain(data), path, faults))
    if cluster is None or faults:
        raise ConfigError(source, _once(faults, wrong))
    bound: dict[str, tuple[int, ...]] = {}
    nodes = iter(cluster.nodes)
    for group, own in zip(groups, cpus, strict=True):
        for _ in range(group.get("count", integer, 1)):
            node = next(nodes)
            if own:
                bound[node.name] = own
    return EmulatedNodes(source=source, cluster=cluster, cpus=bound)


def _once(faults: list[Fault], first: int) -> list[Fault]:
    """What both readers of the list of nodes found is said once."""
    return faults[:first] + [fault for fault in faults[first:] if fault not in faults[:first]]


def _data_of(path: Path) -> _Data:
    if path.is_dir():
        raise ConfigError(str(path), [Fault("", "is a folder; name a file that lists nodes.")])
    return read_source(path)[0]


def _check_group(group: Section) -> None:
    """What this machine cannot do, and keys that no group has."""
    for key in map(str, group.rest(*_KEYS)):
        near = suggestion(key, _KEYS)
        if "gpu" in key or "device" in key or ("vgpus" in group and not near):
            group.fault(key, "the nodes of this machine have no GPUs; leave it out.")
        else:
            group.fault(key, f"unknown key.{near}")
    speed = group.get("speed", number, 1.0)
    if speed > 1:
        group.fault("speed", f"must be at most 1, which is this machine's; got {speed:g}.")


def _plain(data: _Data) -> _Data:
    """The data as a scenario file has it, without what was looked at here."""
    groups = data.get("nodes")
    if not isinstance(groups, list):
        return data
    known = set(_KEYS) - {"cpus"}
    plain = [{k: v for k, v in g.items() if k in known} if isinstance(g, Mapping) else g for g in groups]
    return {**data, "nodes": plain}


def _cpus(value: object) -> tuple[int, ...]:
    """CPUs of this machine: a number, a list of numbers, or text such as 0-1,3."""
    if isinstance(value, str):
        found = parse_cpus(value)
    elif isinstance(value, list) and value:
        found = tuple(sorted({integer(cpu) for cpu in value}))
    elif isinstance(value, int) and not isinstance(value, bool):
        found = (value,)
    else:
        raise ValueError(f"must be CPUs, such as 0-1,3; got {describe(value)}.")
    there = sorted(os.sched_getaffinity(0))
    missing = [cpu for cpu in found if cpu not in there]
    if missing:
        raise ValueError(f"must be CPUs of this machine ({', '.join(map(str, there))}); got {missing[0]}.")
    return found
