"""The provider of a virtual cluster: one gateway's side of its connections to the nodes.

Within a connection messages stay in order, and none is lost: what a cut held up arrives afterwards. Each instance has a
connection of its own, so an agent's report may overtake the answers of its instances. A node that is not heard of for
too long is given up. When it comes back it dials again, as another generation.
"""

import asyncio
import contextvars
from collections.abc import Callable, Sequence

import msgspec

from fairlead.engine.live.contracts import (
    LEFT,
    Capabilities,
    Exit,
    InstanceSpec,
    Inventory,
    LinkReports,
    ProviderReports,
)
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.wire import MOST_BYTES, Batch, Done, Failed, Ready
from fairlead.model import Node
from fairlead.monitor import Place
from fairlead.testing.virtual.nodes import VirtualCluster, VirtualNode

_DIALS_AWAITED = 2.0  # times the longest that a dial takes, at opening


class VirtualLink:
    """The way to one instance, on the gateway's side."""

    def __init__(self, provider: "VirtualProvider", spec: InstanceSpec, generation: int) -> None:
        self._provider = provider
        self.spec = spec
        self.generation = generation
        self.reports: LinkReports | None = None

    def open(self, reports: LinkReports) -> None:
        """Say to whom messages go."""
        self.reports = reports

    def run(self, batch: Batch) -> None:
        """Pass a batch on, with this link's generation. ValueError if it is too large for a frame."""
        if sum(len(value) for value in batch.inputs) > MOST_BYTES:
            raise ValueError(f"a batch of more than {MOST_BYTES} bytes is larger than a channel takes.")
        self._provider.pass_on(self, msgspec.structs.replace(batch, generation=self.generation))


class VirtualProvider:
    """A gateway's view of a virtual cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self._loop = cluster.loop
        self._context = contextvars.copy_context()
        self._reports: ProviderReports | None = None
        self._sessions: dict[str, int] = {}  # by node that is connected: its generation
        self._found: dict[str, tuple[Node, tuple[InstanceSpec, ...]]] = {}  # by node, until it is open
        self._early: list[tuple[Callable[..., None], tuple[object, ...]]] = []  # told before it was open
        self._specs: dict[str, InstanceSpec] = {}
        self._vcpus: dict[str, float] = {}  # by key: its CPU limit, as it was asked for
        self._links: dict[str, VirtualLink] = {}
        self._busy: dict[str, set[int]] = {}  # by key: batches that were passed on and not answered
        self._last: dict[tuple[object, ...], float] = {}  # by connection and direction: when its last message arrives
        self._joins: dict[object, float] = {}  # by generation: when its node's first message arrives
        self._emptied: asyncio.Event | None = None
        self.is_open = False
        self.is_closed = False
        self.late = 0  # answers of an older generation, which were dropped

    # --- the runtime's side ----------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """What the cluster's traits say."""
        traits = self.cluster.traits
        return Capabilities(resizes=traits.resizes, keeps=traits.keeps)

    async def open(self, reports: ProviderReports) -> Inventory:
        """Wait for the nodes that dial within a while; those that come later are reported."""
        self._reports = reports
        self._context = contextvars.copy_context()
        self.cluster.attach(self)
        traits = self.cluster.traits
        await asyncio.sleep(_DIALS_AWAITED * traits.dial_s[1] + traits.delay_s[1])
        while not self._found:
            await asyncio.sleep(traits.dial_s[1] + traits.delay_s[1])
        self.is_open = True
        found = [self._found[name] for name in sorted(self._found)]
        adopted = tuple(spec for _, specs in found for spec in specs)
        self._specs.update({spec.key: spec for spec in adopted})
        self._vcpus.update({spec.key: spec.vcpus for spec in adopted})
        self._loop.call_soon(self._tell_early)
        return Inventory(tuple(node for node, _ in found), adopted)

    def _tell_early(self) -> None:
        early, self._early = self._early, []
        for call, args in early:
            call(*args)

    def declare(self, nodes: Sequence[Node]) -> None:
        """Nodes are what they are."""

    def start(self, spec: InstanceSpec) -> None:
        """Have a node start an instance."""
        if spec.key in self._specs or self.is_closed:
            return
        self._specs[spec.key] = spec
        self._vcpus[spec.key] = spec.vcpus
        session = self._sessions.get(spec.node)
        if session is None:
            self.post(0.0, self.ended, spec.key, Exit(f"node {spec.node} is not there"))
            return
        self.cluster.trace(f"start {spec.key} ({spec.function}, {spec.vcpus:g} vCPUs) on {spec.node}")
        self._send(spec.node, session, "control", self.cluster.nodes[spec.node].start, session, spec)

    def stop(self, key: str, grace_s: float) -> None:
        """Have a node end an instance."""
        spec = self._specs.get(key)
        session = None if spec is None else self._sessions.get(spec.node)
        if spec is not None and session is not None and not self.is_closed:
            self.cluster.trace(f"stop {key} within {grace_s:g} s")
            self._send(spec.node, session, "control", self.cluster.nodes[spec.node].stop, session, key, grace_s)

    def resize(self, key: str, vcpus: float) -> None:
        """Have a node change a CPU limit."""
        spec = self._specs.get(key)
        session = None if spec is None else self._sessions.get(spec.node)
        if spec is not None and session is not None and not self.is_closed:
            self._vcpus[key] = vcpus
            self._send(spec.node, session, "control", self.cluster.nodes[spec.node].resize, session, key, vcpus)

    def grow(self, kind: str) -> None:
        """No kind of node can be added."""

    def shrink(self, node: str) -> None:
        """A node that is given back stays empty, and is not the gateway's any more."""
        self.post(self.cluster.delay_s(), self._give_back, node)

    def usage(self, key: str) -> Usage:
        """What an instance has used so far."""
        spec = self._specs.get(key)
        node = None if spec is None else self.cluster.nodes.get(spec.node)
        instance = None if node is None else node.instances.get(key)
        return Usage() if instance is None else Usage(cpu_s=instance.cpu_s)

    def cpu_s(self, key: str) -> float | None:
        """CPU time that an instance has used so far."""
        return self.usage(key).cpu_s

    def places(self) -> Sequence[Place]:
        """No node is on this machine."""
        return ()

    async def close(self, *, keep: bool = False) -> None:
        """End every instance, and wait for that; or leave them for the next gateway."""
        if self.is_closed:
            return
        if not (keep and self.cluster.traits.keeps) and self._specs:
            self._emptied = asyncio.Event()
            for key in list(self._specs):
                self.stop(key, 0.0)
            await self._emptied.wait()
        self.crash()

    def crash(self) -> None:
        """End as the gateway's process does: its connections break."""
        if not self.is_closed:
            self.is_closed = True
            self.cluster.detach(self)

    def pass_on(self, link: VirtualLink, batch: Batch) -> None:
        """Send a batch over an instance's own connection; one that is gone does not get it."""
        spec = link.spec
        if self._links.get(spec.key) is not link or self.is_closed:
            return
        node = self.cluster.nodes[spec.node]
        if batch.batch >= 0:
            self._busy.setdefault(spec.key, set()).add(batch.batch)
        self._send(spec.node, link.generation, spec.key, self._arrive, node, link.generation, spec.key, batch)

    @staticmethod
    def _arrive(node: VirtualNode, session: int, key: str, batch: Batch) -> None:
        instance = node.instances.get(key)
        if instance is not None and node.session == session:
            instance.run(batch)

    def held(self, node: str) -> tuple[float, float]:
        """vCPUs and memory in GB that this gateway has promised on a node, as it sees it.

        An instance that starts or runs a batch holds its vCPUs, an idle one its memory only. A resize that is refused
        cannot be foreseen: what was asked for counts, where that is less.
        """
        vcpus = memory_gb = 0.0
        for key, spec in self._specs.items():
            if spec.node == node:
                memory_gb += spec.memory_gb
                if key not in self._links or self._busy.get(key):
                    vcpus += self._vcpus[key]
        return vcpus, memory_gb

    def held_devices(self, node: str) -> dict[int, tuple[float, set[str]]]:
        """What is promised of each device of a node: vGPUs of what starts or runs, and which generations are there.

        An idle instance needs no vGPUs, but it is there.
        """
        found: dict[int, tuple[float, set[str]]] = {}
        for key, spec in self._specs.items():
            if spec.node == node and spec.device >= 0:
                vgpus, generations = found.get(spec.device, (0.0, set()))
                is_idle = key in self._links and not self._busy.get(key)
                found[spec.device] = vgpus + (0.0 if is_idle else spec.vgpus), generations | {key.partition(".")[0]}
        return found

    # --- messages --------------------------------------------------------------------------------------------------

    def post(self, delay_s: float, call: Callable[..., None], *args: object) -> None:
        """Have something called here, as a part of the gateway's life."""
        self._loop.call_later(delay_s, self._called, call, args, context=self._context.copy())

    def _called(self, call: Callable[..., None], args: tuple[object, ...]) -> None:
        if not self.is_closed:
            call(*args)

    def _arrival_s(self, node: VirtualNode, connection: tuple[object, ...]) -> float:
        """In how many seconds a message of a connection arrives: after all that were sent before it."""
        now = self._loop.time()
        at = max(now, node.cut_until) + self.cluster.delay_s()
        at = max(at, self._joins.get(connection[0], at))  # instances dial once their node has
        at = self._last[connection] = max(at, self._last.get(connection, at))
        return at - now

    def tell(self, node: VirtualNode, session: int, channel: str, call: Callable[..., None], *args: object) -> None:
        """A node or an instance says something over one of its connections."""
        delay_s = self._arrival_s(node, (session, channel, "in"))
        if call == self.ended:  # what an instance said last comes before its end
            delay_s = max(delay_s, self._last.get((session, args[0], "in"), 0.0) - self._loop.time())
        elif call == self.joined:
            self._joins[session] = self._loop.time() + delay_s
        self.post(delay_s, self._receive, node.name, session, call, args)
        if call != self.joined and self.cluster.chance(self.cluster.traits.duplicates):
            delay_s = self._arrival_s(node, (session, channel, "in"))
            self.post(delay_s, self._receive, node.name, session, call, args)

    def _receive(self, node: str, session: int, call: Callable[..., None], args: tuple[object, ...]) -> None:
        if call == self.joined:
            call(*args)
        elif not self._is_current(node, session):
            self.late += 1
        elif self.is_open:
            call(*args)
        else:
            self._early.append((call, args))

    def _is_current(self, node: str, generation: int) -> bool:
        """Whether something of this generation is still to be listened to."""
        return self._sessions.get(node) == generation

    def _send(self, name: str, session: int, channel: str, call: Callable[..., None], *args: object) -> None:
        node = self.cluster.nodes[name]
        node.later(self._arrival_s(node, (session, channel, "out")), call, *args)

    # --- what nodes and instances say -------------------------------------------------------------------------------

    def joined(self, node: Node, session: int, specs: tuple[InstanceSpec, ...]) -> None:
        """A node has dialled."""
        former = self._sessions.get(node.name)
        if former is not None and former > session:
            return
        if former is not None:
            self.silent(node.name, former, "it dialled again")
        if self.is_open and specs:  # too late to take instances over: they end before the node is used
            self._send(node.name, session, "control", self.cluster.nodes[node.name].closed, session)
            return
        self._sessions[node.name] = session
        if self.is_open:
            assert self._reports is not None
            self._reports.node_joined(node)
        else:
            self._found[node.name] = node, specs

    def check_silence(self, name: str, session: int) -> None:
        """Give a node up if it is still silent."""
        node = self.cluster.nodes[name]
        if node.is_silent:
            self.silent(name, session, f"it was not heard of for {self.cluster.traits.silence_s:g} s")

    def silent(self, name: str, session: int, reason: str) -> None:
        """A connection to a node has ended, or is given up."""
        if self._sessions.get(name) != session:
            return
        self.cluster.trace(f"the gateway gives up node {name}: {reason}")
        del self._sessions[name]
        for key in [key for key, spec in self._specs.items() if spec.node == name]:
            self._forget(key)
        node = self.cluster.nodes[name]
        self._send(name, session, "control", node.closed, session)
        self._check_empty()
        if self.is_open:
            assert self._reports is not None
            self._reports.node_lost(name, reason)
        else:
            self._found.pop(name, None)

    def _give_back(self, name: str) -> None:
        session = self._sessions.get(name)
        if session is not None:
            self.cluster.nodes[name].leave()
            self.silent(name, session, LEFT)

    def changed(self, node: Node) -> None:
        """A node has other capacities."""
        assert self._reports is not None
        self._reports.node_changed(node)

    def connected(self, key: str) -> None:
        """An instance has dialled."""
        spec = self._specs.get(key)
        if spec is None or key in self._links:
            return
        assert self._reports is not None
        link = self._links[key] = VirtualLink(self, spec, self._sessions[spec.node])
        self._reports.connected(key, link)

    def heard(self, key: str, message: Ready | Failed | Done) -> None:
        """An instance said something."""
        link = self._links.get(key)
        if link is None or link.reports is None:
            return
        if isinstance(message, Done):
            if not self._is_fresh(link, message):
                self.late += 1
                self.cluster.trace(f"a late answer of {key} to batch {message.batch} is dropped")
                return
            self._busy.get(key, set()).discard(message.batch)
            message = msgspec.structs.replace(message, generation=0)  # as the batch had it: the link's own is not known
        link.reports.heard(message)

    def _is_fresh(self, link: VirtualLink, message: Done) -> bool:
        """Whether an answer is to a batch of this gateway's link."""
        return message.generation == link.generation

    def refused(self, key: str, vcpus: float, reason: str) -> None:
        """A CPU limit was not changed."""
        if key in self._specs:
            assert self._reports is not None
            self._vcpus[key] = min(vcpus, self._vcpus[key])
            self._reports.resize_refused(key, vcpus, reason)

    def ended(self, key: str, how: Exit) -> None:
        """An instance has ended."""
        if key in self._specs:
            self._forget(key)
            assert self._reports is not None
            self._reports.gone(key, how)
            self._check_empty()

    def _forget(self, key: str) -> None:
        del self._specs[key]
        del self._vcpus[key]
        self._links.pop(key, None)
        self._busy.pop(key, None)

    def _check_empty(self) -> None:
        if not self._specs and self._emptied is not None:
            self._emptied.set()
