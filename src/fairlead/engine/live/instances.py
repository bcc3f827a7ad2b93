"""The instances of one deployment: started through the provider that all deployments share, and spoken to by links.

The runtime knows its instances by number. Outside they have keys that no other deployment, and no former gateway, has
given out.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from fairlead.app.current import About
from fairlead.engine.core.events import NodeDraining
from fairlead.engine.live.contracts import (
    AppCode,
    Capabilities,
    Exit,
    InstanceSpec,
    Inventory,
    Link,
    Provider,
    Values,
)
from fairlead.engine.live.draining import NodeDrains
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.sharing import Sharing
from fairlead.engine.live.values import MOST_ITEMS, Result, Value
from fairlead.engine.live.wire import Batch, Done, Failed, Ready
from fairlead.model import Configuration, Node
from fairlead.monitor import Place

Log = Callable[[str], None]

_FIRST_DELAY_S, _MOST_DELAY_S = 0.1, 10.0  # between starts of a function that keeps failing to start
_ADOPTION_S = 0.5  # that opening waits for instances of a former gateway to say that they are ready
_GRACE_S = 2.0  # for an idle instance to end by itself


class Reports(Protocol):
    """Who is told what happens to the instances of a deployment."""

    def ready(self, instance: int) -> None:
        """The instance has started."""
        ...

    def finished(self, batch: int, results: Sequence[Result], work_s: float, transfer_s: float = 0.0) -> None:
        """A batch has ended; `work_s` is how long the function itself took, `transfer_s` how long its inputs."""
        ...

    def lost(self, instance: int, error: str) -> None:
        """The instance ended by itself, or could not start, with whatever ran on it."""
        ...

    def ended(self, instance: int) -> None:
        """An instance that was told to stop exists no more."""
        ...

    def resize_refused(self, instance: int, vcpus: float, reason: str) -> None:
        """An instance keeps this many vCPUs."""
        ...

    def evicted(self, instance: int, buffers: Sequence[str]) -> None:
        """These constants of a kernel are not on the device of this instance any more."""
        ...

    def adopted(self, spec: InstanceSpec) -> int | None:
        """An instance of a former gateway is ready and idle: the number that it has from now on; None to end it."""
        ...

    def node_joined(self, node: Node) -> None:
        """A node can be used, for the first time or again."""
        ...

    def node_changed(self, node: Node) -> None:
        """A node has other capacities."""
        ...

    def node_lost(self, name: str, reason: str) -> None:
        """A node is gone, with all instances there."""
        ...

    def node_draining(self, event: NodeDraining) -> None:
        """An operator drains a node."""
        ...

    def node_reopened(self, node: Node) -> None:
        """A node that was drained is used again; it may not be known here."""
        ...

    def is_moving(self, node: str) -> bool:
        """Whether instances that were started for those of a draining node are not ready yet."""
        ...

    def has_left(self, node: str) -> bool:
        """Whether nothing of this deployment exists on a draining node any more."""
        ...


def overcommitted(nodes: Iterable[Node], overcommit: float) -> tuple[Node, ...]:
    """The same nodes with this overcommit."""
    return tuple(msgspec.structs.replace(node, overcommit=overcommit) for node in nodes)


class SharedProvider:
    """One provider, and the deployments that use it.

    Args:
        provider: Where instances live.
        sharing: Shares the nodes between deployments, and so hears of them too; None where there is one deployment.
        overcommit: How many times their vCPUs nodes promise; None leaves them as they are.
        log: Gets a line for each step of a drain.
    """

    def __init__(
        self,
        provider: Provider,
        sharing: Sharing | None = None,
        overcommit: float | None = None,
        log: Log = lambda line: None,
    ) -> None:
        self.provider = provider
        self.drains = NodeDrains(self, log)
        self._sharing = sharing
        self._overcommit = overcommit
        self.inventory = Inventory(())
        self._deployments: dict[int, Instances] = {}
        self._orphans: dict[str, InstanceSpec] = {}  # instances of a former gateway that no deployment has claimed
        self._links: dict[str, Link] = {}  # to orphans
        self._claimed: dict[str, Instances] = {}  # by key of an instance that a former gateway started

    async def open(self) -> None:
        """Begin to work."""
        self.inventory = await self.provider.open(self)
        self._orphans = {spec.key: spec for spec in self.inventory.instances}
        for key in set(self._links) - set(self._orphans):
            del self._links[key]
        self._reserve()

    def claim(self, deployment: "Instances", code: AppCode, max_items: int) -> list[InstanceSpec]:
        """Give a deployment the instances of a former gateway that run its code."""
        found = [
            spec
            for spec in self._orphans.values()
            if spec.code.digest and spec.code.digest == code.digest and spec.max_items == max_items
        ]
        for spec in found:
            del self._orphans[spec.key]
            self._claimed[spec.key] = deployment
        self._reserve()
        return found

    def link(self, key: str) -> Link | None:
        """The link to an orphan, where it has dialled already; whoever asks has it from now on."""
        return self._links.pop(key, None)

    def end_orphans(self) -> None:
        """End the instances of a former gateway that no deployment has claimed."""
        for key in self._orphans:
            self.provider.stop(key, 0.0)
        self._links.clear()

    def declare(self, nodes: Sequence[Node]) -> None:
        """Make the nodes that an app asks for, where the provider does that."""
        if self.provider.capabilities.declares:
            self.provider.declare(nodes)
            known = self._nodes()
            self._set_nodes({**known, **{node.name: node for node in nodes}})
            for node in nodes:
                if node.name in known and known[node.name].devices != node.devices:
                    self.node_changed(node)

    def join(self, deployment: "Instances", generation: int) -> None:
        """Reports of this generation's instances, and of all nodes, go to this deployment from now on."""
        self._deployments[generation] = deployment
        for node in self.drains.nodes():
            deployment.reports.node_draining(NodeDraining(node.name, "close"))

    def reports(self) -> list[Reports]:
        """Those of every deployment."""
        return [deployment.reports for deployment in self._deployments.values()]

    def withdraw(self, name: str) -> None:
        """Promise nothing of a node any more, neither to the deployments that are nor to those that come."""
        self._set_nodes({other: node for other, node in self._nodes().items() if other != name})
        if self._sharing is not None:
            self._sharing.node_lost(name)

    def reopen(self, node: Node) -> None:
        """Undo `withdraw`; deployments that came meanwhile learn of the node now."""
        self._set_nodes({**self._nodes(), node.name: node})
        for reports in self.reports():
            reports.node_reopened(node)
        if self._sharing is not None:
            self._sharing.node_joined(node)
            self._sharing.node_changed(node)  # deployments have the lease that they had when it was closed

    def leave(self, generation: int) -> None:
        """A deployment has ended."""
        self._deployments.pop(generation, None)

    async def close(self, *, keep: bool = False) -> None:
        """End every instance, unless they are to be kept."""
        self.drains.close()
        await self.provider.close(keep=keep)

    # --- what the provider tells -----------------------------------------------------------------------------------

    def connected(self, key: str, link: Link) -> None:
        """An instance can be spoken to."""
        deployment = self._of(key)
        if deployment is None and (key in self._orphans or not self._deployments):  # maybe somebody claims it
            self._links[key] = link
        elif deployment is None:
            self.provider.stop(key, 0.0)
        else:
            deployment.connected(key, link)

    def gone(self, key: str, how: Exit) -> None:
        """An instance exists no more."""
        deployment = self._of(key)
        self._claimed.pop(key, None)
        self._links.pop(key, None)
        if self._orphans.pop(key, None) is not None:
            self._reserve()
            if self._sharing is not None:
                self._sharing.settle()
        if deployment is not None:
            deployment.gone(key, how)

    def resize_refused(self, key: str, vcpus: float, reason: str) -> None:
        """An instance keeps its CPU limit."""
        deployment = self._of(key)
        if deployment is not None:
            deployment.resize_refused(key, vcpus, reason)

    def evicted(self, key: str, buffers: Sequence[str]) -> None:
        """Constants of a kernel have left the device of an instance."""
        deployment = self._of(key)
        if deployment is not None:
            deployment.evicted(key, buffers)

    def node_joined(self, node: Node) -> None:
        """A node can be used."""
        node = self._promising(node)
        self._set_nodes({**self._nodes(), node.name: node})
        for deployment in list(self._deployments.values()):
            deployment.reports.node_joined(node)
        if self._sharing is not None:
            self._sharing.node_joined(node)

    def node_changed(self, node: Node) -> None:
        """A node has other capacities."""
        node = self._promising(node)
        self._set_nodes({**self._nodes(), node.name: node})
        for deployment in list(self._deployments.values()):
            deployment.reports.node_changed(node)
        if self._sharing is not None:
            self._sharing.node_changed(node)

    def node_lost(self, name: str, reason: str) -> None:
        """A node is gone."""
        self.drains.forget(name)
        self._set_nodes({other: node for other, node in self._nodes().items() if other != name})
        for key in [key for key, spec in self._orphans.items() if spec.node == name]:
            del self._orphans[key]
            self._links.pop(key, None)
        self._reserve()
        for deployment in list(self._deployments.values()):
            deployment.node_lost(name, reason)
        if self._sharing is not None:
            self._sharing.node_lost(name)

    def _reserve(self) -> None:
        """What unclaimed instances hold is promised to no deployment; who claims them has it from then on."""
        if self._sharing is not None:
            self._sharing.reserve(self._orphans.values())

    def _promising(self, node: Node) -> Node:
        return node if self._overcommit is None else overcommitted((node,), self._overcommit)[0]

    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.inventory.nodes}

    def _set_nodes(self, nodes: Mapping[str, Node]) -> None:
        self.inventory = Inventory(tuple(nodes.values()), self.inventory.instances)

    def _of(self, key: str) -> "Instances | None":
        return self._claimed.get(key) or self._deployments.get(int(key.partition(".")[0]))


class Instances:
    """Starts, stops and speaks to the instances of one generation of an app.

    Args:
        shared: Where they live.
        values: Where their data lies.
        code: What they load.
        generation: Of this deployment; no other one of this gateway or its predecessors had it.
        log: Gets a line for everything worth knowing, such as the last words of an instance that died.
        max_items: How many items an output may give to a map stage.
    """

    def __init__(
        self,
        shared: SharedProvider,
        values: Values,
        code: AppCode,
        generation: int,
        log: Log,
        *,
        max_items: int = MOST_ITEMS,
    ) -> None:
        self.values = values
        self._shared = shared
        self._provider = shared.provider
        self._code = code
        self.generation = generation
        self._log = log
        self._max_items = max_items
        self._members: dict[int, _Member] = {}  # those that may run batches, or will
        self._ending: dict[int, _Member] = {}  # those that were told to stop
        self._failures: dict[str, int] = {}  # by function: starts that failed in a row
        self._looked = 0  # where `cpu_s` goes on
        self._spent_s: dict[str, float] = {}  # by function: CPU time of those that have ended
        self._emptied: asyncio.Event | None = None
        self._adopting: dict[str, _Adoptee] = {}  # instances of a former gateway that are not ready yet
        self._adopted: dict[str, int] = {}  # by key of such an instance: its number now

    @property
    def capabilities(self) -> Capabilities:
        """What the provider can do."""
        return self._provider.capabilities

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that the provider has now."""
        return self._shared.inventory.nodes

    def claim(self, reports: Reports) -> None:
        """Get ready to start instances, and claim those of a former gateway that run the same code."""
        self.reports = reports
        self._loop = asyncio.get_running_loop()
        self._shared.join(self, self.generation)
        for spec in self._shared.claim(self, self._code, self._max_items):
            self._adopting[spec.key] = _Adoptee(self, spec)

    async def open(self) -> None:
        """Adopt what was claimed.

        An instance that does not say in time that it is ready has ended when this returns: whatever it still did was
        for the former gateway, and until it is gone, what it holds cannot be promised.
        """
        for key in list(self._adopting):
            link = self._shared.link(key)
            if link is not None:
                self.connected(key, link)
        until = self._loop.time() + _ADOPTION_S
        while self._adopting and self._loop.time() < until:
            await asyncio.sleep(_ADOPTION_S / 50)
        for key, adoptee in self._adopting.items():
            adoptee.is_late = True
            self._provider.stop(key, 0.0)
        while self._adopting:
            await asyncio.sleep(_ADOPTION_S / 50)

    def claimed(self) -> Iterator[tuple[int | None, InstanceSpec]]:
        """The instances of a former gateway: the number of each, None before it is adopted."""
        for adoptee in self._adopting.values():
            yield None, adoptee.spec
        for instance in self._adopted.values():
            if instance in self._members:
                yield instance, self._members[instance].spec

    def places(self) -> Sequence[Place]:
        """Where the nodes are on this machine; none of those that are elsewhere."""
        return self._provider.places()

    def start(
        self,
        instance: int,
        function: str,
        configuration: Configuration,
        node: str,
        device: int = -1,
        *,
        is_kernel: bool = False,
    ) -> None:
        """Start an instance, with a delay where starts of its function failed; it reports `ready` or `lost`."""
        spec = InstanceSpec(
            key=f"{self.generation}.{instance}",
            code=self._code,
            function=function,
            node=node,
            vcpus=configuration.vcpus,
            memory_gb=configuration.memory_gb,
            max_items=self._max_items,
            device=device,
            vgpus=configuration.vgpus,
            is_kernel=is_kernel,
        )
        member = self._members[instance] = _Member(self, instance, spec)
        failures = self._failures.get(function, 0)
        delay_s = min(_MOST_DELAY_S, _FIRST_DELAY_S * 2 ** (failures - 1)) if failures else 0.0
        member.starting = self._loop.call_later(delay_s, member.start)

    def run(
        self,
        batch: int,
        instance: int,
        stages: Sequence[str],
        inputs: Sequence[Value],
        about: Sequence[About] = (),
    ) -> None:
        """Run a batch on an instance that is ready: one "workflow/stage" and one input per invocation."""
        link = self._members[instance].link
        assert link is not None, "only instances that are ready run batches"
        try:
            link.run(Batch(batch, stages, inputs, about=about))
        except ValueError as error:  # too large
            failed = [Result(False, error=str(error))] * len(inputs)
            self._loop.call_soon(self.reports.finished, batch, failed, 0.0)

    def resize(self, instance: int, vcpus: float) -> None:
        """Give a running instance another CPU limit."""
        member = self._members.get(instance)
        if member is not None:
            self._provider.resize(member.spec.key, vcpus)

    def stop(self, instance: int, now: bool) -> None:
        """End an instance: at once, or after what it runs. Its end is reported by `ended`."""
        member = self._members.pop(instance, None)
        if member is None:
            return
        if member.starting is not None:
            member.starting.cancel()
            self._loop.call_soon(self.reports.ended, instance)
        else:
            self._ending[instance] = member
            self._provider.stop(member.spec.key, 0.0 if now else _GRACE_S)

    def grow(self, kind: str) -> None:
        """Ask for one more node of a kind."""
        self._provider.grow(kind)

    def shrink(self, node: str) -> None:
        """Give a node back on which nothing of this deployment runs any more."""
        if node not in self._shared.drains.stages():  # else it leaves when all deployments have left it
            self._provider.shrink(node)

    def cpu_s(self, most: int | None = None) -> Mapping[str, float]:
        """CPU time that the instances of each function have used so far, ended ones included, where it is known.

        At most `most` instances are looked at, in turn; of the others, what was seen last counts.
        """
        found = dict(self._spent_s)
        members = (*self._members.values(), *self._ending.values())
        count = len(members) if most is None else min(most, len(members))
        for place in range(self._looked, self._looked + count):
            member = members[place % len(members)]
            member.used_s = self._provider.cpu_s(member.spec.key) or 0.0
        self._looked = (self._looked + count) % max(1, len(members))
        for member in members:
            found[member.spec.function] = found.get(member.spec.function, 0.0) + member.used_s
        return found

    def started(self, instance: int) -> tuple[float, float]:
        """How long an instance that is ready took to load its code, and for its `setup`."""
        return self._members[instance].started

    def usage(self, instance: int) -> Usage:
        """What an instance has used so far."""
        member = self._members.get(instance)
        return Usage() if member is None else self._provider.usage(member.spec.key)

    def runs_cpu_s(self, instance: int) -> float | None:
        """CPU time that an instance has used for its runs so far, as it says itself; None where it does not."""
        return self._members[instance].runs_cpu_s

    def keys(self, function: str) -> list[str]:
        """The keys of a function's instances that were not told to stop."""
        return [member.spec.key for member in self._members.values() if member.spec.function == function]

    async def close(self) -> None:
        """End every instance, and wait until they are gone."""
        for key in self._adopting:
            self._provider.stop(key, 0.0)
        for instance in list(self._members):
            self.stop(instance, now=True)
        for member in self._ending.values():  # those that still had their grace
            self._provider.stop(member.spec.key, 0.0)
        if self._ending:
            self._emptied = asyncio.Event()
            await self._emptied.wait()
        self._shared.leave(self.generation)

    # --- what the provider tells -----------------------------------------------------------------------------------

    def connected(self, key: str, link: Link) -> None:
        """An instance can be spoken to."""
        adoptee = self._adopting.get(key)
        if adoptee is not None:
            adoptee.link = link
            link.open(adoptee)
            return
        member = self._members.get(self._number(key))
        if member is not None:
            member.link = link
            link.open(member)

    def gone(self, key: str, how: Exit) -> None:
        """An instance exists no more."""
        if self._adopting.pop(key, None) is not None:
            return
        instance = self._number(key)
        self._adopted.pop(key, None)
        member = self._ending.pop(instance, None)
        if member is not None:
            self._spend(member, how)
            self.reports.ended(instance)
            if not self._ending and self._emptied is not None:
                self._emptied.set()
            return
        member = self._members.pop(instance, None)
        if member is None:
            return
        self._spend(member, how)
        function = member.spec.function
        if not member.is_ready:
            self._failures[function] = self._failures.get(function, 0) + 1
        error = member.error or how.error
        last_words = f"; its last output:\n{how.output}" if how.output else ""
        self._log(f"instance {instance} of {function}: {error}{last_words}")
        self.reports.lost(instance, error)

    def resize_refused(self, key: str, vcpus: float, reason: str) -> None:
        """An instance keeps its CPU limit."""
        instance = self._number(key)
        if instance in self._members:
            self.reports.resize_refused(instance, vcpus, reason)

    def evicted(self, key: str, buffers: Sequence[str]) -> None:
        """Constants of a kernel have left the device of an instance."""
        instance = self._number(key)
        if instance in self._members:
            self.reports.evicted(instance, buffers)

    def node_lost(self, name: str, reason: str) -> None:
        """A node is gone: nothing more is heard of its instances."""
        for key in [key for key, adoptee in self._adopting.items() if adoptee.spec.node == name]:
            del self._adopting[key]
        for members in (self._members, self._ending):
            for instance in [i for i, member in members.items() if member.spec.node == name]:
                member = members.pop(instance)
                if member.starting is not None:
                    member.starting.cancel()
        if not self._ending and self._emptied is not None:
            self._emptied.set()
        self.reports.node_lost(name, reason)

    def heard(self, member: "_Member", message: Ready | Failed | Done) -> None:
        """An instance said something."""
        if self._members.get(member.instance) is not member:
            if isinstance(message, Done):  # it was stopped: nothing waits for this
                for result in message.results:
                    self.values.release(result.value)
        elif isinstance(message, Done):
            for result in message.results:
                if type(result.value) is not bytes:
                    self.values.hold(result.value)
            if message.cpu_s is not None:
                member.runs_cpu_s = (member.runs_cpu_s or 0.0) + message.cpu_s
            self.reports.finished(message.batch, message.results, message.work_s, message.transfer_s)
        elif isinstance(message, Ready):
            self._failures.pop(member.spec.function, None)
            member.is_ready = True
            member.started = (message.load_s, message.setup_s)
            self.reports.ready(member.instance)
        else:
            member.error = message.error

    def adopt(self, adoptee: "_Adoptee", message: Ready | Failed | Done) -> None:
        """An instance of a former gateway has said that it is ready."""
        key = adoptee.spec.key
        if self._adopting.get(key) is not adoptee or adoptee.is_late or isinstance(message, Done):
            return
        instance = self.reports.adopted(adoptee.spec) if isinstance(message, Ready) else None
        if instance is None or adoptee.link is None:
            self._provider.stop(key, 0.0)
            return
        del self._adopting[key]
        self._adopted[key] = instance
        member = self._members[instance] = _Member(self, instance, adoptee.spec)
        member.link, member.is_ready = adoptee.link, True
        if isinstance(message, Ready):
            member.started = (message.load_s, message.setup_s)
        adoptee.member = member

    def launch(self, member: "_Member") -> None:
        """Have the provider start an instance."""
        self._provider.start(member.spec)

    def _number(self, key: str) -> int:
        found = self._adopted.get(key)
        return int(key.partition(".")[2]) if found is None else found

    def _spend(self, member: "_Member", how: Exit) -> None:
        function = member.spec.function
        self._spent_s[function] = self._spent_s.get(function, 0.0) + how.cpu_s


class _Member:
    """One instance of a deployment, as its link knows it."""

    __slots__ = (
        "_owner",
        "error",
        "instance",
        "is_ready",
        "link",
        "runs_cpu_s",
        "spec",
        "started",
        "starting",
        "used_s",
    )

    def __init__(self, owner: Instances, instance: int, spec: InstanceSpec) -> None:
        self._owner = owner
        self.instance = instance
        self.used_s = 0.0  # of CPU time, when it was last looked at
        self.spec = spec
        self.link: Link | None = None
        self.starting: asyncio.TimerHandle | None = None
        self.is_ready = False
        self.started = (0.0, 0.0)
        self.runs_cpu_s: float | None = None
        self.error: str | None = None

    def start(self) -> None:
        """Its turn has come."""
        self.starting = None
        self._owner.launch(self)

    def heard(self, message: Ready | Failed | Done) -> None:
        """It said something."""
        self._owner.heard(self, message)


class _Adoptee:
    """An instance of a former gateway, until it is ready; afterwards what it says is its member's."""

    __slots__ = ("_owner", "is_late", "link", "member", "spec")

    def __init__(self, owner: Instances, spec: InstanceSpec) -> None:
        self._owner = owner
        self.spec = spec
        self.link: Link | None = None
        self.member: _Member | None = None
        self.is_late = False  # it was told to end

    def heard(self, message: Ready | Failed | Done) -> None:
        """It said something."""
        if self.member is None:
            self._owner.adopt(self, message)
        else:
            self.member.heard(message)
