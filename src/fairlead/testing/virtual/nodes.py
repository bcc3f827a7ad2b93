"""The world of a virtual cluster: nodes with their agents, and the instances on them. It outlives any gateway."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fairlead.app import App, AppFunction
from fairlead.engine.live.contracts import Exit, InstanceSpec
from fairlead.engine.live.store import Store
from fairlead.engine.live.wire import Batch, Done, Failed, Ready
from fairlead.engine.live.worker import describe
from fairlead.engine.live.worker import run as run_batch
from fairlead.model import Node
from fairlead.testing.virtual.loop import VirtualLoop
from fairlead.testing.virtual.traits import Span, Traits
from fairlead.testing.virtual.working import Died, timed

if TYPE_CHECKING:
    from fairlead.testing.virtual.provider import VirtualProvider

Code = Callable[[str], App]
"""Gives the app of a code's file."""

_ROUNDING = 1e-9


class VirtualCluster:
    """Nodes on virtual time.

    Args:
        nodes: Those that there are from the start.
        code: Gives the app that a file holds.
        rng: What happens by chance is drawn from it.
        traits: How everything behaves.
        trace: Told of everything that happens.
        store: Where instances keep large values; without it, values of any size stay in their messages.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        code: Code,
        rng: np.random.Generator,
        traits: Traits = Traits(),
        trace: Callable[[str], None] = lambda _: None,
        store: Store | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.code = code
        self.rng = rng
        self.traits = traits
        self.trace = trace
        self.context = contextvars.copy_context()
        self.store = store or Store(Path("/nonexistent"))
        self.nodes = {node.name: VirtualNode(self, node) for node in nodes}
        self.gateway: VirtualProvider | None = None
        self.violations: list[str] = []
        self._sessions = 0

    # --- faults ----------------------------------------------------------------------------------------------------

    def freeze(self, node: str, seconds: float) -> None:
        """Have a node stand still; afterwards it goes on where it was, and answers late."""
        self.nodes[node].freeze(seconds)

    def cut(self, node: str, seconds: float) -> None:
        """Break the connections of a node; whatever was on its way arrives once they are back."""
        self.nodes[node].cut(seconds)

    def lose(self, node: str, seconds: float) -> None:
        """End a node, with all that runs there; it comes back empty."""
        self.nodes[node].lose(seconds)

    def kill(self, key: str, error: str = "it was killed by SIGKILL") -> None:
        """End an instance by force."""
        for node in self.nodes.values():
            if key in node.instances:
                node.instances[key].end(error)

    def change(self, node: str, vcpus: float, memory_gb: float) -> None:
        """Give a node other capacities."""
        self.nodes[node].change(vcpus, memory_gb)

    def heal(self) -> None:
        """End every fault that lasts, and let nothing go wrong by itself any more."""
        calm = {"spikes": 0.0, "start_failures": 0.0, "deaths": 0.0, "slow_ends": 0.0, "resize_refusals": 0.0}
        self.traits = _replaced(self.traits, {**calm, "duplicates": 0.0})
        for node in self.nodes.values():
            node.heal()

    # --- for those inside --------------------------------------------------------------------------------------------

    def draw(self, span: Span) -> float:
        """A time of a span."""
        least, most = span
        return least if least == most else float(self.rng.uniform(least, most))

    def chance(self, share: float) -> bool:
        """Whether something of this share happens now."""
        return share > 0 and bool(self.rng.random() < share)

    def delay_s(self) -> float:
        """How long a message takes."""
        traits = self.traits
        return self.draw(traits.delay_s) + (self.draw(traits.spike_s) if self.chance(traits.spikes) else 0.0)

    def new_session(self) -> int:
        """The number of a new connection between a node and a gateway: its generation."""
        self._sessions += 1
        return self._sessions

    def attach(self, gateway: "VirtualProvider") -> None:
        """A gateway can be dialled."""
        self.gateway = gateway
        for node in self.nodes.values():
            node.dial()

    def detach(self, gateway: "VirtualProvider") -> None:
        """A gateway is gone."""
        if self.gateway is gateway:
            self.gateway = None
            for node in self.nodes.values():
                node.gateway_gone(gateway)

    def instances(self) -> Mapping[str, "VirtualInstance"]:
        """Every instance that exists, by key."""
        return {key: instance for node in self.nodes.values() for key, instance in node.instances.items()}


class VirtualNode:
    """A node and its agent. What happens to it while it is frozen, or cut off, happens afterwards."""

    def __init__(self, cluster: VirtualCluster, node: Node) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self.node = node
        self.name = node.name
        self.instances: dict[str, VirtualInstance] = {}
        self.session = 0  # the generation of its connection; 0 for none
        self.is_up = True
        self.has_left = False  # as it was drained; `heal` brings it back, as an operator does
        self.is_leaving = False  # it ends its instances before it dials again
        self.life = 0  # counts its losses: what was planned before is void
        self.frozen_until = self.cut_until = -inf
        self._is_dialling = False
        self._frozen: list[tuple[int, Callable[..., None], tuple[object, ...]]] = []  # what came while it stood still
        self._seen: set[str] = set()  # keys that were started here: a second start of one changes nothing

    # --- time ------------------------------------------------------------------------------------------------------

    def later(self, delay_s: float, call: Callable[..., None], *args: object) -> None:
        """Have something happen here after a time, unless the node is lost before."""
        self._loop.call_later(delay_s, self._happen, self.life, call, args, context=self._cluster.context)

    def _happen(self, life: int, call: Callable[..., None], args: tuple[object, ...]) -> None:
        if life != self.life:
            return
        if self._frozen or self._loop.time() < self.frozen_until:
            self._frozen.append((life, call, args))
        else:
            call(*args)

    def _thaw(self) -> None:
        """Go on, in order, with what came while the node stood still."""
        if self._loop.time() < self.frozen_until:  # it froze again meanwhile
            return
        frozen, self._frozen = self._frozen, []
        for life, call, args in frozen:
            if life == self.life:
                call(*args)

    # --- faults ----------------------------------------------------------------------------------------------------

    def freeze(self, seconds: float) -> None:
        """Stand still."""
        if self.is_up:
            self._cluster.trace(f"node {self.name} freezes for {seconds:.3f} s")
            self.frozen_until = max(self.frozen_until, self._loop.time() + seconds)
            self._loop.call_at(self.frozen_until, self._thaw, context=self._cluster.context)
            self._watch_silence(self.frozen_until)

    def cut(self, seconds: float) -> None:
        """Be cut off."""
        if self.is_up:
            self._cluster.trace(f"node {self.name} is cut off for {seconds:.3f} s")
            self.cut_until = max(self.cut_until, self._loop.time() + seconds)
            self._watch_silence(self.cut_until)

    def lose(self, seconds: float) -> None:
        """End, and come back empty."""
        if not self.is_up:
            return
        self._cluster.trace(f"node {self.name} is lost for {seconds:.3f} s")
        self.is_up = self.is_leaving = self._is_dialling = False
        self.life += 1
        self.instances.clear()
        self._seen.clear()
        self.frozen_until = self.cut_until = -inf
        self._frozen.clear()
        session, self.session = self.session, 0
        gateway = self._cluster.gateway
        if gateway is not None and session:
            gateway.post(self._cluster.delay_s(), gateway.silent, self.name, session, "its connection was reset")
        self.later(seconds, self._return)

    def leave(self) -> None:
        """End for good, as an agent whose node was drained."""
        self._cluster.trace(f"node {self.name} leaves")
        self.is_up, self.has_left, self.session = False, True, 0

    def _return(self) -> None:
        self._cluster.trace(f"node {self.name} is back")
        self.is_up, self.has_left = True, False
        self.dial()

    def heal(self) -> None:
        """End what lasts."""
        now = self._loop.time()
        self.frozen_until = min(self.frozen_until, now)
        self.cut_until = min(self.cut_until, now)
        self._thaw()
        if self.has_left:
            self._return()

    def change(self, vcpus: float, memory_gb: float) -> None:
        """Have other capacities from now on."""
        self.node = msgspec.structs.replace(self.node, vcpus=vcpus, memory_gb=memory_gb)
        self._cluster.trace(f"node {self.name} has {vcpus:g} vCPUs and {memory_gb:g} GB")
        gateway = self._cluster.gateway
        if gateway is not None and self.session:
            gateway.tell(self, self.session, "control", gateway.changed, self.node)

    def _watch_silence(self, until: float) -> None:
        """The gateway gives the node up if it hears nothing for too long."""
        gateway, session = self._cluster.gateway, self.session
        silence_s = self._cluster.traits.silence_s
        if gateway is not None and session and until - self._loop.time() > silence_s:
            gateway.post(silence_s, gateway.check_silence, self.name, session)

    @property
    def is_silent(self) -> bool:
        """Whether nothing is heard of it now."""
        return not self.is_up or self._loop.time() < max(self.frozen_until, self.cut_until)

    # --- the agent -------------------------------------------------------------------------------------------------

    def dial(self) -> None:
        """Connect to the gateway, once nothing that an earlier one does not know of is left here."""
        if not self.is_up or self._is_dialling or self.session or self._cluster.gateway is None:
            return
        if self.is_leaving and self.instances:
            return  # the end of the last one dials
        self.is_leaving = False
        self._is_dialling = True
        wait_s = max(0.0, self.cut_until - self._loop.time())
        self.later(wait_s + self._cluster.draw(self._cluster.traits.dial_s), self._connect)

    def _connect(self) -> None:
        self._is_dialling = False
        gateway = self._cluster.gateway
        if gateway is None or self.session:
            return
        if self._loop.time() < self.cut_until:
            self.dial()
            return
        if self.instances and (gateway.is_open or not self._cluster.traits.keeps):
            self.end_all("no gateway takes it over")
            return
        if any(instance.is_ending for instance in self.instances.values()):
            self.dial()  # they still hold what a gateway would promise to others
            return
        self.session = self._cluster.new_session()
        self._cluster.trace(f"node {self.name} dials: generation {self.session}")
        specs = tuple(instance.spec for instance in self.instances.values())
        gateway.tell(self, self.session, "control", gateway.joined, self.node, self.session, specs)
        for instance in list(self.instances.values()):
            instance.reconnect()

    def closed(self, session: int) -> None:
        """The gateway has closed a connection: it gave this node up."""
        if session == self.session:
            self.session = 0
            self.end_all("its gateway gave its node up")

    def gateway_gone(self, gateway: "VirtualProvider") -> None:
        """The gateway's connections ended."""
        self.later(self._cluster.delay_s(), self._lost_gateway, self.session)

    def _lost_gateway(self, session: int) -> None:
        if session != self.session:
            return
        self.session = 0
        if not self._cluster.traits.keeps:
            self.end_all("its gateway ended")
            return
        self.later(self._cluster.traits.keep_s, self._give_up_waiting)
        self.dial()

    def _give_up_waiting(self) -> None:
        if not self.session and self._cluster.gateway is None:
            self.end_all("no gateway came")

    def end_all(self, error: str) -> None:
        """End every instance by force, and dial when they are gone."""
        self.is_leaving = True
        for instance in list(self.instances.values()):
            instance.stop(0.0, error)
        if not self.instances:
            self.dial()

    def start(self, session: int, spec: InstanceSpec) -> None:
        """The gateway wants an instance."""
        if session != self.session or spec.key in self._seen:
            return
        self._seen.add(spec.key)
        instance = self.instances[spec.key] = VirtualInstance(self._cluster, self, spec)
        self._check_memory()
        instance.begin()

    def stop(self, session: int, key: str, grace_s: float) -> None:
        """The gateway wants an instance to end."""
        if session == self.session and key in self.instances:
            self.instances[key].stop(grace_s, "it was told to stop")

    def resize(self, session: int, key: str, vcpus: float) -> None:
        """The gateway wants an instance to have another CPU limit."""
        instance = self.instances.get(key)
        if session != self.session or instance is None:
            return
        gateway = self._cluster.gateway
        traits = self._cluster.traits
        if not traits.resizes or self._cluster.chance(traits.resize_refusals):
            if gateway is not None:
                gateway.tell(self, session, "control", gateway.refused, key, instance.vcpus, "the kernel refused")
        else:
            instance.vcpus = vcpus

    def ended(self, instance: "VirtualInstance", how: Exit) -> None:
        """An instance has ended here."""
        del self.instances[instance.key]
        gateway = self._cluster.gateway
        if gateway is not None and self.session:
            gateway.tell(self, self.session, "control", gateway.ended, instance.key, how)
        if self.is_leaving and not self.instances:
            self.dial()

    def _check_memory(self) -> None:
        used_gb = sum(each.spec.memory_gb for each in self.instances.values())
        if used_gb > self.node.memory_gb + _ROUNDING:
            keys = {key: each.state for key, each in self.instances.items()}
            self._cluster.violations.append(
                f"at {self._loop.time():.6f} node {self.name} has {self.node.memory_gb:g} GB, "
                f"and instances of {used_gb:g} GB exist there: {keys}"
            )


class VirtualInstance:
    """An instance: it starts, runs one batch after another, and ends."""

    def __init__(self, cluster: VirtualCluster, node: VirtualNode, spec: InstanceSpec) -> None:
        self._cluster = cluster
        self._node = node
        self.spec = spec
        self.key = spec.key
        self.vcpus = spec.vcpus
        self.state = "starting"
        self.is_ending = False
        self.cpu_s = 0.0
        self._app: App | None = None
        self._function: AppFunction | None = None
        self._queue: deque[Batch] = deque()
        self._running: Batch | None = None
        self._connection = 0  # the node's generation when this instance connected
        self._unsent: list[Done] = []  # answers to a gateway that is gone
        self._failure: str | None = None
        self._ready = Ready(0.0, 0.0)

    def begin(self) -> None:
        """Load and set up; how long that takes is known at once."""
        traits = self._cluster.traits
        load_s = self._cluster.draw(traits.start_s)
        if self._cluster.chance(traits.start_failures):
            self._node.later(load_s, self.end, "it could not be started: out of luck")
            return
        setup_s, failure = timed(self._load)
        if isinstance(failure, Died):
            self._node.later(load_s + setup_s, self.end, str(failure))
            return
        self._failure = failure
        self._ready = Ready(load_s, setup_s)
        self._node.later(load_s + setup_s, self._started)

    def _load(self) -> str | None:
        """Load the function; why it cannot be."""
        try:
            self._app = self._cluster.code(self.spec.code.file)
            self._function = self._app.functions[self.spec.function]
            self._function.prepare()
        except Exception as error:
            return f"setup of {self.spec.function} raised {describe(error)}"
        return None

    def _started(self) -> None:
        if self.state != "starting":
            return
        if self._failure is not None:
            self._connect()
            self._say(Failed(self._failure))
            self.end("it ended with exit code 1")
            return
        self.state = "idle"
        self._connect()

    def _connect(self) -> None:
        """Dial the gateway that the node has now."""
        self._connection = self._node.session
        gateway = self._cluster.gateway
        if gateway is None or not self._connection:
            return
        gateway.tell(self._node, self._connection, self.key, gateway.connected, self.key)
        if self._failure is None:
            self._say(self._ready)
        unsent, self._unsent = self._unsent, []
        for done in unsent:
            self._say(done)

    def reconnect(self) -> None:
        """The node has another gateway: one that is idle dials it, one that is busy does so when it is done."""
        self._queue.clear()
        if self.state == "idle" and not self.is_ending:
            self._connect()

    def _say(self, message: Ready | Failed | Done) -> None:
        gateway = self._cluster.gateway
        if gateway is not None and self._connection and self._connection == self._node.session:
            gateway.tell(self._node, self._connection, self.key, gateway.heard, self.key, message)
        elif isinstance(message, Done):
            self._unsent.append(message)

    def run(self, batch: Batch) -> None:
        """A batch has arrived."""
        if self.state == "ended":
            return
        self._queue.append(batch)
        if self.state == "idle":
            self._next()

    def _next(self) -> None:
        if self._connection != self._node.session and self._node.session and not self.is_ending:
            self._connect()
        if not self._queue or self.state != "idle":
            if self.is_ending and self.state == "idle":
                self._node.later(self._cluster.draw(self._cluster.traits.end_s), self.end, "it was told to stop")
            return
        batch = self._running = self._queue.popleft()
        self.state = "busy"
        app, function, cluster = self._app, self._function, self._cluster
        assert app is not None
        assert function is not None
        loaded, its = app, function
        spent_s, done = timed(lambda: run_batch(batch, loaded, its, cluster.store, self.spec.max_items))
        spent_s += cluster.draw(cluster.traits.overhead_s)
        if isinstance(done, Died):
            self._node.later(spent_s, self.end, str(done))
        elif cluster.chance(cluster.traits.deaths):
            self._node.later(cluster.draw((0.0, spent_s)), self.end, "it was killed by SIGKILL")
        else:
            self._node.later(spent_s, self._finish, batch, msgspec.structs.replace(done, work_s=spent_s))

    def _finish(self, batch: Batch, done: Done) -> None:
        if self._running is not batch or self.state != "busy":
            return
        self._running = None
        self.state = "idle"
        self.cpu_s += done.work_s
        self._say(done)
        self._next()

    def stop(self, grace_s: float, error: str) -> None:
        """End: after what it runs where there is grace, by force after that."""
        if self.state == "ended":
            return
        traits = self._cluster.traits
        slow_s = self._cluster.draw(traits.slow_end_s) if self._cluster.chance(traits.slow_ends) else 0.0
        if grace_s > 0 and not self.is_ending and self.state == "idle":
            self._node.later(self._cluster.draw(traits.end_s) + slow_s, self.end, error)
        forced_s = grace_s + slow_s + self._cluster.draw(traits.kill_s)
        self.is_ending = True
        self._node.later(forced_s, self.end, error)

    def end(self, error: str) -> None:
        """Exist no more."""
        if self.state == "ended":
            return
        self.state = "ended"
        self._running = None
        self._queue.clear()
        self._cluster.trace(f"instance {self.key} on {self._node.name} has ended: {error}")
        self._node.ended(self, Exit(error, cpu_s=self.cpu_s))


def _replaced(traits: Traits, changes: Mapping[str, float]) -> Traits:
    fields = {name: getattr(traits, name) for name in Traits.__dataclass_fields__}
    return Traits(**{**fields, **changes})
