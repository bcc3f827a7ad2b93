"""Instances on other machines: agents dial in, and run them; instances dial in too, and are spoken to directly.

A node is there while its agent is connected and says so every half second. It is lost when the connection ends, or when
nothing was heard for 1.8 s. What it still answers then is dropped: see `StreamLink`. Instances outlive the
gateway; the next one finds them in the agents' words and can adopt them.
"""

import asyncio
import os
import re
import socket
import ssl
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from math import inf, isfinite
from pathlib import Path
from time import time

import msgspec

from fairlead.engine.live.contracts import LEFT, Capabilities, Exit, InstanceSpec, Inventory, ProviderReports
from fairlead.engine.live.kernels.status import DeviceStatus, Resident
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.links import control
from fairlead.engine.live.links.address import bound_address, parse_address
from fairlead.engine.live.links.greeting import agent_credential
from fairlead.engine.live.links.hub import Hub
from fairlead.engine.live.links.messages import PIECE_BYTES, Attached, Read, Refused, pack
from fairlead.engine.live.links.reading import Reader
from fairlead.engine.live.links.stream import Stream, StreamLink
from fairlead.engine.live.logs.folder import LogFolder
from fairlead.engine.live.logs.forwarding import Receiver
from fairlead.engine.live.objects import Objects
from fairlead.engine.live.providers.carrying import CarriedLink, Carrier
from fairlead.engine.live.spread import GATEWAY_HOME, SpreadValues
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import LostValueError
from fairlead.engine.live.wire import Done
from fairlead.model import Node
from fairlead.monitor import Place

Log = Callable[[str], None]

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62})")
_KEY = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}")  # of an instance: generation and number
_MOST_VCPUS = 1e6  # of a node, also vGPUs; sums of thousandths must stay exact
_MOST_GB = 1e9
_MOST_KIND = 100
_MOST_DEVICES = 256  # of a node
_MOST_RESIDENTS = 1000  # of a device: the largest
_MOST_APPS = 1000  # that have run kernels on a device
_MOST_COUNT = 1 << 60  # of a device: bytes, runs
_MOST_NODE = 64
_MOST_TEXT = 2000
_MOST_OUTPUT = 20_000
_MOST_FETCHES = 256  # pieces of code that an agent may wait for: an honest one asks for one piece of each app
_MOST_BACKLOG = 8 * PIECE_BYTES  # not taken yet by an agent, beyond which it gets no more code
_FETCH_PAUSE_S = 0.05
_LAST_WORDS_S = (
    0.25  # between an agent's word of an instance's end and our own: what the instance said last comes first
)
_CUT_OFF_S = 0.25  # an instance whose connection has ended mostly has ended too; one that has not is stopped
_MOST_OWED = 100_000  # names of values that a node which is not there has to delete when it comes back
_LINKS_BITS = 24  # of a generation: which link of this gateway


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the heartbeat and of adoption, in seconds."""

    beat_s: float = 0.5
    silence_s: float = 1.8  # with the time between two looks, a frozen node is given up within 2 s
    adoption_s: float = 60.0
    wait_s: float = 1.0  # for agents that a former gateway had


class _State(msgspec.Struct, frozen=True):
    """What a gateway leaves for the next one."""

    epoch: int
    nodes: tuple[str, ...]


class _Agent:
    """An agent that is connected."""

    def __init__(self, node: Node, home: str, stream: Stream, heard_at: float) -> None:
        self.node = node
        self.home = home
        self.stream = stream
        self.heard_at = heard_at
        self.leftover: set[str] = set()  # keys of instances of an earlier connection that have not ended yet
        self.has_joined = False
        self.devices: tuple[DeviceStatus, ...] = ()
        self.to_release: list[str] = []
        self.fetches: deque[control.Fetch] = deque()

    def send(self, message: control.ToAgent) -> None:
        self.stream.send(pack(message))


class _Instance:
    """An instance that was started, or may be adopted."""

    __slots__ = ("cut", "exit", "link", "pid", "spec", "stream", "usage", "was_attached")

    def __init__(self, spec: InstanceSpec, pid: int = -1) -> None:
        self.spec = spec
        self.pid = pid
        self.link: StreamLink | None = None
        self.stream: Stream | None = None
        self.was_attached = False
        self.cut: str | None = None  # why it ends, where its connection ended and it dialled again
        self.exit: Exit | None = None
        self.usage = Usage()


class AgentProvider:
    """Runs instances on the nodes of agents.

    Args:
        listening: Where agents and instances dial in.
        token: What they have to know.
        tls: Of the listening end.
        store: Values that the gateway itself keeps.
        state: The gateway's folder: it has the names of agents, so that the next gateway knows whom to wait for.
        log: Gets a line for everything worth knowing.
        reading: TLS of the end that reads values from agents.
        timing: Heartbeat and adoption.
        objects: Large values go from node to node through it; None to read them from the nodes that made them.
        logs: Where lines of instances are kept that agents send; None to drop them.
    """

    def __init__(
        self,
        listening: socket.socket,
        token: str,
        tls: ssl.SSLContext | None,
        store: Store,
        state: Path,
        log: Log,
        *,
        reading: ssl.SSLContext | None = None,
        timing: Timing = Timing(),
        objects: Objects | None = None,
        logs: LogFolder | None = None,
    ) -> None:
        self._logs = None if logs is None else Receiver(logs)
        store.home = GATEWAY_HOME
        self._listening = listening
        self._file = state / "agents.json"
        self._log = log
        self._timing = timing
        self._hub = Hub(token, tls, log, store, self._hello, self._attach, self._pass_on)
        self._reader = Reader(agent_credential(token), reading)
        self._carrier = None if objects is None else Carrier(objects, self._tell, self._release, log)
        self.values = SpreadValues(store, self._reader, self._release, self._is_home, self._carrier)
        self._agents: dict[str, _Agent] = {}
        self._instances: dict[str, _Instance] = {}
        self._early: dict[str, Stream] = {}  # instances that dialled before their agent did
        self._fenced: defaultdict[str, list[Stream]] = defaultdict(list)  # by lost node: what may still answer
        self._owed: defaultdict[str, list[str]] = defaultdict(list)  # by lost node: values to delete
        self._homes: dict[str, str] = {}  # by node, also lost ones: where its values are
        self._files: dict[str, str] = {}  # by digest: the file of an app's code
        self._digests: dict[tuple[str, int, int], str] = {}  # by file, with its time and size
        self._links = 0
        self._epoch = 0
        self._reports: ProviderReports | None = None
        self._is_open = False
        self._is_closing = False
        self._changed = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self.late_answers = 0

    @property
    def capabilities(self) -> Capabilities:
        """Agents resize, and keep instances for the next gateway."""
        return Capabilities(keeps=True)

    @property
    def hosts(self) -> dict[str, str]:
        """By node that is connected: the machine at which its values are read."""
        return {name: parse_address(agent.home.rpartition("@")[2]).host for name, agent in self._agents.items()}

    @property
    def has_state(self) -> bool:
        """Whether a former gateway of this state folder had agents."""
        return bool(self._read_state().nodes)

    async def open(self, reports: ProviderReports, expected: Collection[str] | None = None) -> Inventory:
        """Take agents in; waits a little for those that are expected, and for the first agent of all.

        By default those are expected that a former gateway had.
        """
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        former = self._read_state()
        self._epoch = max(former.epoch + 1, int(time()))  # the clock, where the state was lost
        self.values.open(self._loop)
        if self._carrier is not None:
            self._carrier.open(self._epoch)
        self._hub.open(self._listening)
        self._beating = self._loop.create_task(self._beat())
        wanted = set(former.nodes if expected is None else expected)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.wait_s):
                while not wanted <= set(self._joined()):
                    self._changed.clear()
                    await self._changed.wait()
        if not self._joined():
            self._log(f"waiting for an agent to join at {bound_address(self._listening)}")
        while not self._joined():
            self._changed.clear()
            await self._changed.wait()
        self._is_open = True
        for stream in list(self._early.values()):  # their agents have not come
            _refuse(stream)
        self._early.clear()
        self._write_state()
        self._loop.call_later(self._timing.adoption_s, self._end_unattached, list(self._instances))
        specs = tuple(instance.spec for instance in self._instances.values())
        return Inventory(tuple(agent.node for agent in self._agents.values() if agent.has_joined), specs)

    def declare(self, nodes: Sequence[Node]) -> None:
        """Nodes are what agents say they are."""

    def start(self, spec: InstanceSpec) -> None:
        """Have the agent of its node start an instance."""
        assert self._reports is not None
        if spec.key in self._instances:
            return
        agent = self._agents.get(spec.node)
        try:
            digest = self._digest(spec.code.file)
        except OSError as error:
            self._loop.call_soon(self._reports.gone, spec.key, Exit(f"its code cannot be read: {error}"))
            return
        if agent is None or not agent.has_joined:
            self._loop.call_soon(self._reports.gone, spec.key, Exit(f"node {spec.node} is not connected"))
            return
        self._instances[spec.key] = _Instance(spec)
        agent.send(control.Start(spec, digest))

    def stop(self, key: str, grace_s: float) -> None:
        """Have the agent end an instance."""
        agent = self._agent_of(key)
        if agent is not None:
            agent.send(control.Stop(key, grace_s))

    def resize(self, key: str, vcpus: float) -> None:
        """Have the agent change an instance's CPU limit."""
        agent = self._agent_of(key)
        if agent is not None:
            instance = self._instances[key]
            instance.spec = msgspec.structs.replace(instance.spec, vcpus=vcpus)
            agent.send(control.Resize(key, vcpus))

    def grow(self, kind: str) -> None:
        """Agents join when they are started; this cannot start one."""

    def shrink(self, node: str) -> None:
        """Have the agent of a node end."""
        agent = self._agents.get(node)
        if agent is not None:
            agent.stream.ended = lambda reason: self._lose(agent, LEFT)
            agent.send(control.Leave())

    def give_up(self, node: str, reason: str) -> None:
        """Somebody else knows that a node is dead; nothing where it has not joined."""
        agent = self._agents.get(node)
        if agent is not None:
            self._lose(agent, reason)

    def usage(self, key: str) -> Usage:
        """What the agent said last, at most two seconds ago."""
        instance = self._instances.get(key)
        return Usage() if instance is None else instance.usage

    def cpu_s(self, key: str) -> float | None:
        """What the agent said last of its CPU time."""
        return self.usage(key).cpu_s

    def size(self, key: str) -> float | None:
        """The vCPUs of an instance; None if there is no such instance."""
        instance = self._instances.get(key)
        return None if instance is None else instance.spec.vcpus

    def pid(self, key: str) -> int:
        """The process of an instance on its node, where it was adopted; -1 otherwise."""
        instance = self._instances.get(key)
        return -1 if instance is None else instance.pid

    @property
    def devices(self) -> Sequence[DeviceStatus]:
        """What agents said last of the devices of their nodes, at most two seconds ago."""
        return [device for agent in self._agents.values() for device in agent.devices]

    async def look_at_devices(self) -> None:
        """Agents look by themselves."""

    def places(self) -> Sequence[Place]:
        """Its nodes are elsewhere."""
        return ()

    async def close(self, *, keep: bool = False) -> None:
        """End every instance, unless they are to be kept; then take nothing in any more."""
        if not keep:
            await self.end_instances()
        self._is_closing = True
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        if self._carrier is not None:
            await self._carrier.close()
        await self._hub.close()
        self._reader.close()
        if self._logs is not None:
            await self._logs.close()

    async def end_instances(self) -> None:
        """End every instance, and wait a little until all are gone."""
        for key in list(self._instances):
            self.stop(key, 0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.silence_s):
                while self._instances:
                    self._changed.clear()
                    await self._changed.wait()

    def dismiss(self) -> None:
        """Tell all agents to end: there is nothing for them to do any more."""
        self._is_closing = True
        for agent in self._agents.values():
            agent.send(control.Leave())

    # --- agents ----------------------------------------------------------------------------------------------------

    def _hello(self, hello: control.Hello, stream: Stream) -> None:
        """An agent dials in."""
        node = hello.node
        refusal = self._why_not(hello)
        if refusal is not None:
            stream.send(pack(Refused(refusal)))
            stream.close()
            return
        home = f"@{node.name}@{hello.values}"
        agent = self._agents[node.name] = _Agent(node, home, stream, self._loop.time())
        stream.heard = lambda body: self._heard(agent, body)
        stream.ended = lambda reason: self._lose(agent, reason)
        if self._homes.get(node.name) != home:  # another agent, without the values of the former one
            self._homes[node.name] = home
            self._owed.pop(node.name, None)
            self.values.forget(node.name)
        keys = tuple(running.spec.key for running in hello.instances)
        keep = () if self._is_open else keys
        timing = self._timing
        store = None if self._carrier is None else self._carrier.objects.place
        agent.send(control.Welcome(self._epoch, keep, timing.beat_s, 2 * timing.silence_s, timing.adoption_s, store))
        if owed := self._owed.pop(node.name, None):
            agent.send(control.Release(tuple(owed)))
        agent.leftover = set(keys) - set(keep)
        for running in hello.instances:
            if running.spec.key in keep:
                self._instances[running.spec.key] = _Instance(running.spec, running.pid)
                early = self._early.pop(running.spec.key, None)
                if early is not None:
                    self._connect(running.spec.key, early)
        self._join(agent)

    def _why_not(self, hello: control.Hello) -> str | None:
        """Why an agent cannot be taken in; None if it can."""
        node = hello.node
        if self._is_closing:
            return "the gateway ends"
        if not _NAME.fullmatch(node.name):
            return f"{node.name!r} is no name of a node: it takes letters, digits, '.', '_' and '-'"
        if node.name in self._agents:
            return f"a node named {node.name} is connected already; give each agent a --name of its own"
        refusal = self._why_not_node(node) or self._why_not_instances(hello)
        if refusal is not None:
            return refusal
        try:
            parse_address(hello.values)
        except ValueError as error:
            return f"the address of its values is wrong: {error}"
        return None

    def _why_not_node(self, node: Node) -> str | None:
        """Why a node cannot have these capacities, this kind and this speed; None if it can."""
        if not node.kind.isprintable() or not 0 < len(node.kind) <= _MOST_KIND:
            return f"its kind must be 1 to {_MOST_KIND} printable characters"
        if len(node.devices) > _MOST_DEVICES:
            return f"it has more than {_MOST_DEVICES} devices"
        if not all(each.name.isprintable() and len(each.name) <= _MOST_KIND for each in node.devices):
            return f"names of devices must be at most {_MOST_KIND} printable characters"
        if not node.capacity_vcpus <= _MOST_VCPUS or any(device.vgpus > _MOST_VCPUS for device in node.devices):
            return f"it has more than {_MOST_VCPUS:g} vCPUs or vGPUs; check --vcpus"
        if any(_MOST_GB < gb < inf for gb in (node.memory_gb, *(device.memory_gb for device in node.devices))):
            return f"it has more than {_MOST_GB:g} GB of memory; check --memory"
        for other in self._agents.values():
            if other.node.name != node.name and other.node.kind == node.kind and other.node.speed != node.speed:
                return f"nodes of kind {node.kind!r} have speed {other.node.speed:g}; give this one another --kind"
        return None

    def _why_not_instances(self, hello: control.Hello) -> str | None:
        """Why the instances that an agent says it has cannot be there; None if they can."""
        keys = set[str]()
        for running in hello.instances:
            spec = running.spec
            if not _KEY.fullmatch(spec.key) or spec.key in keys or spec.key in self._instances:
                return f"it has an instance with the key {spec.key[:100]!r}, which is no key or is another instance's"
            if spec.node != hello.node.name or not 0 <= spec.vcpus <= _MOST_VCPUS:
                return f"its instance {spec.key} is not of this node, or is larger than the node"
            keys.add(spec.key)
        return None

    def _join(self, agent: _Agent) -> None:
        """A node can be used once nothing runs there that this gateway did not ask for."""
        if agent.leftover or agent.has_joined:
            return
        agent.has_joined = True
        self._changed.set()
        if self._is_open and self._reports is not None:
            devices = f", {len(agent.node.devices)} GPUs" if agent.node.devices else ""
            self._log(f"node {agent.node.name} joined: {agent.node.vcpus:g} vCPUs{devices}")
            self._write_state()
            self._reports.node_joined(agent.node)

    def _heard(self, agent: _Agent, body: bytes) -> None:
        message = control.from_agent.decode(body)
        agent.heard_at = self._loop.time()
        if isinstance(message, control.Beating):
            for usage in message.usage.values():
                _check_usage(usage)
            for key, usage in message.usage.items():
                instance = self._instances.get(key)
                if instance is not None and instance.spec.node == agent.node.name:
                    instance.usage = usage
            if message.devices is not None:
                agent.devices = _devices_of(agent.node.name, message.devices)
        elif isinstance(message, control.Evicted):
            if self._agent_of(message.key) is agent and self._reports is not None:
                self._reports.evicted(message.key, message.buffers)
        elif isinstance(message, control.Gone):
            self._gone(agent, message.key, message.how)
        elif isinstance(message, control.ResizeRefused):
            if not 0 <= message.vcpus <= _MOST_VCPUS:
                raise ValueError(f"an instance cannot have {message.vcpus} vCPUs")
            if self._agent_of(message.key) is agent and self._reports is not None:
                self._reports.resize_refused(message.key, message.vcpus, _plain(message.reason[:_MOST_TEXT]))
        elif isinstance(message, control.Fetch):
            self._note_fetch(agent, message)
        elif isinstance(message, control.Shared | control.Brought):
            if self._carrier is not None:
                self._carrier.answered(agent.node.name, message, agent.home)
        elif isinstance(message, control.Wrote):
            if self._logs is not None:
                self._logs.take(message.lines, agent.node.name)
        elif isinstance(message, control.Said):
            self._log(f"node {agent.node.name}: {_plain(message.line[:_MOST_TEXT])}")
        elif isinstance(message, control.Changed) and message.node.name == agent.node.name:
            if (refusal := self._why_not_node(message.node)) is not None:
                raise ValueError(refusal)
            agent.node = message.node
            if self._is_open and agent.has_joined and self._reports is not None:
                self._reports.node_changed(message.node)

    def _lose(self, agent: _Agent, reason: str) -> None:
        """A node is gone: its instances are given up, and what they still answer is late."""
        name = agent.node.name
        if self._agents.get(name) is not agent:
            return
        del self._agents[name]
        agent.stream.abort()
        if self._carrier is not None:
            self._carrier.lost(name)
        for key in [key for key, instance in self._instances.items() if instance.spec.node == name]:
            instance = self._instances.pop(key)
            if instance.link is not None and instance.stream is not None:
                instance.link.fence(self._generation())
                instance.stream.ended = lambda reason: None
                self._fenced[name].append(instance.stream)
        if self._fenced[name]:
            self._loop.call_later(self._timing.adoption_s, self._fence_off, name)
        self._changed.set()
        if agent.has_joined and self._is_open and not self._is_closing and self._reports is not None:
            self._reports.node_lost(name, reason)

    def _fence_off(self, name: str) -> None:
        """End the connections of instances that were given up."""
        for stream in self._fenced.pop(name, ()):
            stream.close()

    async def _beat(self) -> None:
        """Tell agents that this gateway is alive, and give up those that are silent."""
        timing = self._timing
        tick_s = timing.beat_s / 5
        beat_at = 0.0
        while True:
            due = self._loop.time() + tick_s
            await asyncio.sleep(tick_s)
            now = self._loop.time()
            stood_still = now - due > timing.beat_s  # this process itself: what agents said is still unread
            is_beat = now >= beat_at
            for agent in list(self._agents.values()):
                if stood_still:
                    agent.heard_at = now
                elif now - agent.heard_at > timing.silence_s:
                    self._lose(agent, f"it has been silent for {now - agent.heard_at:.1f} s")
                    continue
                if is_beat:
                    agent.send(control.Beat())
            if is_beat:
                beat_at = now + timing.beat_s - tick_s / 2

    # --- instances -------------------------------------------------------------------------------------------------

    def _attach(self, key: str, stream: Stream) -> None:
        """An instance dials in."""
        instance = self._instances.get(key)
        if instance is not None and not instance.was_attached and instance.exit is None:
            self._connect(key, stream)
        elif instance is None and not self._is_open and key not in self._early:
            self._early[key] = stream
            stream.ended = lambda reason: self._forget_early(key)
        else:
            if instance is not None and instance.cut is None:
                instance.cut = "its connection to the gateway ended, and with it the batch that it had"
            _refuse(stream)

    def _forget_early(self, key: str) -> None:
        self._early.pop(key, None)

    def _connect(self, key: str, stream: Stream) -> None:
        assert self._reports is not None
        instance = self._instances[key]
        agent = self._agents[instance.spec.node]
        generation = self._generation()
        link = (
            StreamLink(stream.send, generation, self._drop, agent.home, self._is_there)
            if self._carrier is None
            else CarriedLink(self._carrier, agent.node.name, stream.send, generation, self._drop, agent.home)
        )
        instance.link, instance.stream, instance.was_attached = link, stream, True
        stream.heard = link.heard
        stream.ended = lambda reason: self._cut(key, instance, reason)
        stream.send(pack(Attached(generation)))
        self._reports.connected(key, link)

    def _cut(self, key: str, instance: _Instance, reason: str) -> None:
        """The connection of an instance has ended: it has ended too, or it has to."""
        instance.stream = None
        if instance.exit is not None:
            self._finish(key, instance)
        else:
            self._loop.call_later(_CUT_OFF_S, self._cut_off, key, instance, reason)

    def _cut_off(self, key: str, instance: _Instance, reason: str) -> None:
        agent = self._agent_of(key)
        if agent is not None and self._instances.get(key) is instance and instance.exit is None:
            agent.send(control.Stop(key, 0.0, f"its connection to the gateway ended: {reason}"))

    def _gone(self, agent: _Agent, key: str, how: Exit) -> None:
        """An agent says that an instance has ended; what it said last may still be on its way."""
        if key in agent.leftover:
            agent.leftover.discard(key)
            agent.send(control.Forget(how.pid, self.values.held(agent.node.name, how.pid)))
            self._join(agent)
            return
        instance = self._instances.get(key)
        if instance is None or instance.spec.node != agent.node.name or instance.exit is not None:
            return
        cpu_s = how.cpu_s if isfinite(how.cpu_s) and how.cpu_s >= 0 else 0.0
        instance.exit = Exit(how.error[:_MOST_TEXT], how.output[-_MOST_OUTPUT:], cpu_s, how.pid)
        if instance.stream is None:
            self._finish(key, instance)
        else:
            self._loop.call_later(_LAST_WORDS_S, self._finish, key, instance)

    def _finish(self, key: str, instance: _Instance) -> None:
        if self._instances.get(key) is not instance or self._reports is None:
            return
        del self._instances[key]
        assert instance.exit is not None
        if instance.stream is not None:
            instance.stream.abort()
        agent = self._agents.get(instance.spec.node)
        if agent is not None and instance.exit.pid > 0:
            agent.send(control.Forget(instance.exit.pid, self.values.held(agent.node.name, instance.exit.pid)))
        self._changed.set()
        how = instance.exit
        self._reports.gone(key, how if instance.cut is None else msgspec.structs.replace(how, error=instance.cut))

    def _end_unattached(self, keys: Sequence[str]) -> None:
        """Instances of a former gateway that never dialled in hang: they are of no use."""
        for key in keys:
            instance, agent = self._instances.get(key), self._agent_of(key)
            if instance is not None and agent is not None and not instance.was_attached:
                agent.send(control.Stop(key, 0.0, "it did not dial the gateway again"))

    def _drop(self, done: Done) -> None:
        """A late answer: nothing will read its values."""
        self.late_answers += 1
        if self.late_answers & (self.late_answers - 1) == 0:  # the 1st, 2nd, 4th, 8th
            self._log(f"an answer came after its instance was given up, and was dropped ({self.late_answers} so far)")
        for result in done.results:
            self.values.release(result.value)

    def _generation(self) -> int:
        """A number that no link of this gateway or of another one has had."""
        self._links += 1
        return (self._epoch << _LINKS_BITS) + self._links

    def _agent_of(self, key: str) -> _Agent | None:
        instance = self._instances.get(key)
        return None if instance is None else self._agents.get(instance.spec.node)

    def _tell(self, node: str, message: control.ToAgent) -> bool:
        agent = self._agents.get(node)
        if agent is not None:
            agent.send(message)
        return agent is not None

    def _joined(self) -> list[str]:
        return [name for name, agent in self._agents.items() if agent.has_joined]

    # --- values and code -------------------------------------------------------------------------------------------

    def _release(self, node: str, name: str) -> None:
        """Have a node delete a value; all that come in one turn of the loop go in one message."""
        agent = self._agents.get(node)
        if agent is None:
            if node in self._homes and len(self._owed[node]) < _MOST_OWED:
                self._owed[node].append(name)
            return
        if not agent.to_release:
            self._loop.call_soon(self._flush, agent)
        agent.to_release.append(name)

    def _flush(self, agent: _Agent) -> None:
        agent.send(control.Release(tuple(agent.to_release)))
        agent.to_release.clear()

    def _pass_on(self, read: Read) -> bytes:
        """A part of a value of a connected node, for one that does not reach it. Raises LostValueError."""
        node, _, address = read.home[1:].partition("@")
        if not self._is_there(read.home):
            raise LostValueError(f"node {node[:_MOST_NODE]} is not connected", node)
        return self._reader.part(parse_address(address), read, node)

    def _is_there(self, home: str) -> bool:
        """Whether the node whose values have this home is connected, with the agent that has them."""
        agent = self._agents.get(home[1:].partition("@")[0])
        return agent is not None and agent.home == home

    def _is_home(self, home: str) -> bool:
        return home in self._homes.values()

    def _digest(self, file: str) -> str:
        """The digest of an app's code. Raises OSError."""
        about = os.stat(file)
        known = (file, about.st_mtime_ns, about.st_size)
        found = self._digests.get(known)
        if found is None:
            found = self._digests[known] = sha256(Path(file).read_bytes()).hexdigest()
            self._files[found] = file
        return found

    def _note_fetch(self, agent: _Agent, fetch: control.Fetch) -> None:
        """Send a piece of code, after those that the agent asked for before. ValueError if it asks for too many."""
        if len(agent.fetches) >= _MOST_FETCHES:
            raise ValueError("it asks for too much code at a time")
        agent.fetches.append(fetch)
        if len(agent.fetches) == 1:
            self._loop.call_soon(self._send_piece, agent)  # one per turn of the loop: others have their turns between

    def _send_piece(self, agent: _Agent) -> None:
        if self._agents.get(agent.node.name) is not agent:
            return
        if agent.stream.backlog_bytes() > _MOST_BACKLOG:
            self._loop.call_later(_FETCH_PAUSE_S, self._send_piece, agent)
            return
        agent.send(self._piece(agent.fetches[0]))
        agent.fetches.popleft()
        if agent.fetches:
            self._loop.call_soon(self._send_piece, agent)

    def _piece(self, fetch: control.Fetch) -> control.Piece:
        file = self._files.get(fetch.sha256)
        if file is None:
            return control.Piece(fetch.sha256, fetch.offset, 0, b"", "the gateway does not know it")
        try:
            with open(file, "rb") as opened:
                data = os.pread(opened.fileno(), PIECE_BYTES, min(max(0, fetch.offset), control.MOST_CODE_BYTES))
                return control.Piece(fetch.sha256, fetch.offset, os.fstat(opened.fileno()).st_size, data)
        except OSError as error:
            return control.Piece(fetch.sha256, fetch.offset, 0, b"", str(error))

    # --- what outlives the gateway ---------------------------------------------------------------------------------

    def _read_state(self) -> _State:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_State)
        except FileNotFoundError:
            return _State(0, ())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._log(f"the agents of the former gateway are not known: {self._file}: {error}")
            return _State(0, ())

    def _write_state(self) -> None:
        draft = self._file.with_name(f"{self._file.name}.draft")
        try:
            draft.write_bytes(msgspec.json.encode(_State(self._epoch, tuple(self._joined()))))
            draft.replace(self._file)
        except OSError as error:  # a full disk must not keep an app from being served
            self._log(f"the next gateway will not know its agents: {error}")


def _check_usage(usage: Usage) -> None:
    for used in (usage.cpu_s, usage.throttled_s):
        if used is not None and not 0 <= used < inf:
            raise ValueError(f"an instance cannot have used {used} s")
    for size in (usage.memory_bytes, usage.peak_bytes, usage.gpu_bytes):
        if size is not None and not 0 <= size <= _MOST_GB * 2**30:
            raise ValueError(f"an instance cannot have {size} bytes")
    if usage.oom_kills is not None and usage.oom_kills < 0:
        raise ValueError(f"an instance cannot have been ended {usage.oom_kills} times")
    if usage.gpu_share is not None and not 0 <= usage.gpu_share <= 1:
        raise ValueError(f"an instance cannot use {usage.gpu_share} of a GPU")


def _devices_of(node: str, devices: Sequence[DeviceStatus]) -> tuple[DeviceStatus, ...]:
    """The devices of a node as people and Prometheus are shown them; ValueError for some that cannot be."""
    if len(devices) > _MOST_DEVICES or len({each.device for each in devices}) < len(devices):
        raise ValueError(f"it reports more than {_MOST_DEVICES} devices, or one of them twice")
    for each in devices:
        counts = (each.index, each.memory_bytes or 0, *(getattr(each, name) for name in _COUNTS))
        if not all(0 <= count <= _MOST_COUNT for count in counts):
            raise ValueError("a device has a count that cannot be")
        if len(each.device_s) > _MOST_APPS or not all(0 <= seconds < inf for seconds in each.device_s.values()):
            raise ValueError("a device has run for times that cannot be")
        if len(each.residents) > _MOST_RESIDENTS or any(not 0 <= one.bytes <= _MOST_COUNT for one in each.residents):
            raise ValueError("a device has buffers that cannot be")
    return tuple(
        msgspec.structs.replace(
            each,
            node=node,
            device=_plain(each.device[:_MOST_KIND]),
            name=_plain(each.name[:_MOST_KIND]),
            residents=tuple(
                Resident(_plain(one.app[:_MOST_KIND]), _plain(one.key[:_MOST_TEXT]), one.bytes)
                for one in each.residents
            ),
            device_s={_plain(app[:_MOST_KIND]): seconds for app, seconds in each.device_s.items()},
        )
        for each in devices
    )


_COUNTS = tuple(name for name, kind in DeviceStatus.__annotations__.items() if kind is int and name != "index")


def _plain(line: str) -> str:
    """A line without characters that would end it or change a terminal."""
    return "".join([c if c.isprintable() else " " for c in line])


def _refuse(stream: Stream) -> None:
    stream.send(pack(Refused("the gateway has not started this instance, or has given it up")))
    stream.close()
