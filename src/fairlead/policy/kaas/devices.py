"""Devices as the KaaS policies see them: which can hold a function, in what configuration, and which is free first.

A device is one accelerator. The vCPUs of a node count as one more, index None, for what needs no accelerator. A
device is free for a function when the function fits there now. A function runs in its cheapest configuration for
one invocation that the device could ever hold, and never on a device that could hold none.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Literal, NamedTuple

from fairlead.model import Configuration, Function, Instance, Invocation, Node
from fairlead.planning.feasibility import could_hold
from fairlead.policy.base import Site, Start, View
from fairlead.profile import Estimate

Mode = Literal["online", "compat"]


class Spot(NamedTuple):
    """One device: a node and the index of its accelerator, or None for its vCPUs."""

    node: str
    device: int | None


class Free(NamedTuple):
    """A device that is free for a function, and the configuration in which the function runs there."""

    spot: Spot
    configuration: Configuration

    def start(self, invocation: Invocation) -> Start:
        """Run this invocation there."""
        return Start((invocation,), self.configuration, self.spot.node, self.spot.device)


class Devices:
    """The devices of a site. It only remembers what follows from the declarations, so it can be asked at any time."""

    def __init__(self, site: Site) -> None:
        self._functions = site.functions
        self._profiles = site.profiles
        self._nodes = {node.name: node for node in site.cluster.nodes}
        self._choices: dict[tuple[str, Spot], Configuration | None] = {}
        self._runs: dict[str, set[tuple[Configuration, str]]] = {}  # how and on which kinds a function runs
        self.declared = tuple(spot for node in site.cluster.nodes for spot in spots(node))

    def configuration(self, function: str, spot: Spot) -> Configuration | None:
        """How a function runs on a device; None if the device can never hold it."""
        key = (function, spot)
        if key not in self._choices:
            self._choices[key] = single_configuration(
                self._functions[function], self._profiles[function], self._nodes[spot.node], spot.device
            )
        return self._choices[key]

    def configurations(self, function: str, spot: Spot) -> list[Configuration]:
        """Every way in which a function could run on a device, one batch size only: the smallest there is."""
        possible = possible_configurations(
            self._functions[function], self._profiles[function], self._nodes[spot.node], spot.device
        )
        least = min((c.batch for c in possible), default=1)
        return [c for c in possible if c.batch == least]

    def node(self, spot: Spot) -> Node:
        """The node of a device."""
        return self._nodes[spot.node]

    def up(self, view: View) -> list[Spot]:
        """Every device that is up, in free-list order."""
        for node in view.nodes:
            self._nodes.setdefault(node.name, node)
        return free_list(view)

    def can_hold(self, function: str, among: Iterable[Spot]) -> bool:
        """Whether any of these devices could hold a function if nothing else ran there."""
        return any(self.configuration(function, spot) is not None for spot in among)

    def free(self, view: View, function: str, among: Iterable[Spot]) -> Iterator[Free]:
        """Those of these devices, in their order, on which a function can start now."""
        for spot in among:
            configuration = self.configuration(function, spot)
            if configuration is not None and view.fits(function, configuration, spot.node, spot.device):
                yield Free(spot, configuration)

    def first_free(self, view: View, function: str, among: Iterable[Spot]) -> Free | None:
        """The first of these devices on which a function can start now; None if there is none."""
        return next(self.free(view, function, among), None)

    def expected_s(self, view: View, function: str) -> float:
        """Expected time of one warm run on the quickest device that can hold it; infinity if none can."""
        if function not in self._runs:
            chosen = ((self.configuration(function, spot), self._nodes[spot.node].kind) for spot in self.declared)
            self._runs[function] = {(configuration, kind) for configuration, kind in chosen if configuration}
        profile = view.profile(function)
        return min(
            (profile.latency_s(configuration, kind) for configuration, kind in self._runs[function]), default=inf
        )


def spots(node: Node) -> tuple[Spot, ...]:
    """The devices of a node: its accelerators in order, then its vCPUs if it has any."""
    accelerators = tuple(Spot(node.name, index) for index in range(len(node.devices)))
    return (*accelerators, Spot(node.name, None)) if node.vcpus else accelerators


def free_list(view: View) -> list[Spot]:
    """Every device that is up, as a first-in-first-out list of free devices would hold them.

    The one released first comes first; of those released at one instant, the one whose job started first. Never-used
    devices are at the head, in order of declaration. The vCPUs of nodes follow, the emptiest node first.
    """
    devices = sorted(view.devices(), key=lambda device: (device.last_release, device.last_start))
    hosts = [node.name for node in view.nodes if node.vcpus]
    if len(hosts) > 1:
        hosts.sort(key=view.load)
    return [Spot(device.node, device.device) for device in devices] + [Spot(name, None) for name in hosts]


def single_configuration(function: Function, profile: Estimate, node: Node, device: int | None) -> Configuration | None:
    """The cheapest configuration for one invocation that a device could ever hold; None if it can hold none.

    Where every configuration takes a batch, the smallest batch is used, with one invocation in it.
    """
    possible = possible_configurations(function, profile, node, device)
    return min(possible, key=lambda c: (c.batch, profile.cost_usd(c, node.kind)), default=None)


def possible_configurations(
    function: Function, profile: Estimate, node: Node, device: int | None
) -> list[Configuration]:
    """Every configuration that a device could ever hold, in order of declaration."""
    return [c for c in profile.configurations if _could_hold(c, function, profile, node, device)]


def instances_on(view: View, functions: Iterable[str], spot: Spot) -> list[Instance]:
    """The instances of these functions on a device, oldest first within each. Costs a full listing per function."""
    index = -1 if spot.device is None else spot.device
    return [i for f in functions for i in view.instances(f) if i.node == spot.node and i.device == index]


def heads(view: View) -> list[Invocation]:
    """The oldest waiting invocation of each (workflow, function), oldest first."""
    found = [head for queue in view.queues() if (head := view.oldest(*queue)) is not None]
    if len(found) > 1:
        found.sort(key=lambda invocation: (invocation.ready, invocation.id))
    return found


def last_arrivals(arrivals: Sequence[tuple[float, str]] | None) -> dict[str, float]:
    """When the last request of each workflow arrives: until then a clairvoyant queue holds one to come."""
    return {workflow: instant for instant, workflow in arrivals or ()}


def _could_hold(
    configuration: Configuration, function: Function, profile: Estimate, node: Node, device: int | None
) -> bool:
    return profile.latency_s(configuration, node.kind) < inf and could_hold(node, device, function, configuration)
