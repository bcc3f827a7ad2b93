"""Measuring an app on a Ray cluster: on one node of each kind, with agents of its own that end afterwards."""

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from secrets import token_urlsafe

import msgspec

from fairlead.app.snapshot import Snapshot, keep_snapshot
from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.instances import Instances, SharedProvider
from fairlead.engine.live.measuring.measure import Effort, Measurement, Watch, measure
from fairlead.engine.live.order import RayOrder
from fairlead.engine.live.ray.provider import ray_provider
from fairlead.engine.live.store import Store
from fairlead.model import Node
from fairlead.profile.measured import MeasuredFunction


class Surveyed(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on a cluster, its nodes, and by name of a node the address of the machine that it is on."""

    measurement: Measurement
    nodes: tuple[Node, ...]
    hosts: Mapping[str, str]


async def measure_on_ray(
    order: RayOrder,
    listening: socket.socket,
    snapshot: Snapshot,
    folder: Path,
    effort: Effort,
    functions: Collection[str] | None,
    watch: Watch,
    log: Callable[[str], None],
) -> Surveyed:
    """Measure the functions of an app on the largest node of each kind; the budget is shared between kinds.

    See `measure`. `folder` holds what is needed meanwhile.
    """
    code = AppCode(str(keep_snapshot(folder / "sources", snapshot)), requirements=snapshot.requirements)
    store = Store.make(folder / "values")
    provider = ray_provider(order, listening, token_urlsafe(32), store, folder, log)
    shared = SharedProvider(provider)
    try:
        await shared.open()
        nodes = sorted(shared.inventory.nodes, key=lambda node: (node.speed, node.vcpus))
        kinds = {node.kind: node for node in nodes}  # the largest of each
        share = msgspec.structs.replace(effort, budget_s=effort.budget_s / len(kinds))
        found = {}
        for place, (kind, node) in enumerate(sorted(kinds.items())):
            instances = Instances(shared, provider.values, code, place + 1, log)

            def tell(part: float, doing: str, place: int = place, kind: str = kind) -> None:
                watch((place + part) / len(kinds), f"{kind}: {doing}")

            found[kind] = await measure(
                snapshot.manifest, instances, effort=share, functions=functions, watch=tell, node=node
            )
        return Surveyed(measurement=together(found), nodes=tuple(nodes), hosts=provider.hosts)
    finally:
        await shared.close()
        store.close()


def together(found: dict[str, Measurement]) -> Measurement:
    """The measurements of several kinds as one: each point names its kind; those of the first hold elsewhere too."""
    first = next(iter(found.values()))
    names = [name for each in found.values() for name in each.profiles.functions]
    functions = {}
    for name in dict.fromkeys(names):
        kinds = {kind: each.profiles.functions[name] for kind, each in found.items() if name in each.profiles.functions}
        functions[name] = _joined(list(kinds.items()))
    skipped = {name: why for each in found.values() for name, why in each.skipped.items() if name not in functions}
    # Instances are no children of this process, so what others used was not measured.
    machine = msgspec.structs.replace(first.profiles.machine, others_share=None)
    profiles = msgspec.structs.replace(first.profiles, machine=machine, functions=functions)
    return Measurement(profiles=profiles, skipped=skipped)


def _joined(kinds: Sequence[tuple[str, MeasuredFunction]]) -> MeasuredFunction:
    _, base = kinds[0]
    own = tuple(msgspec.structs.replace(point, kind=kind) for kind, each in kinds for point in each.points)
    return msgspec.structs.replace(
        base, points=(*base.points, *own), memory_gb=max(each.memory_gb for _, each in kinds)
    )
