"""Whatever starts, ends, changes and is lost: what exists on a node never takes more than the node had, and all of it
is free again at the end.

The machine here is a model of its own. It knows processes from the effects that start them until it tells their end,
and nothing of the controller's accounts.
"""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_policies import Doing, start_oldest

from fairlead.engine.core import Controller
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.model import Configuration, Request
from fairlead.policy.base import Cancel, Resize, Retire, Scale, Warm
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario

LAW = Table((Row(vcpus=1, seconds=1.0), Row(vcpus=2, seconds=1.0)))
MEMORY = {"f": 1, "g": 3, "h": 2}
NODES = {"n0": (4.0, 4.0), "n1": (4.0, 4.0)}

OPERATIONS = st.tuples(
    st.sampled_from(
        [
            *(["arrive"] * 4),
            *(["ready"] * 4),
            *(["finish"] * 4),
            *(["gone"] * 3),
            "lose",
            "change",
            "change",
            "node",
            "scale",
            "resize",
            "retire",
            "warm",
            "adopt",
            "refuse",
            "cancel",
            "wait",
        ]
    ),
    st.integers(0, 11),
)


@dataclass
class Process:
    """What runs on the machine: when its room was given to it, and what it takes."""

    node: str
    function: str
    created: float
    vcpus: float
    is_ready: bool = False
    batch: int = -1
    is_stopped: bool = False


@dataclass
class Machine:
    """Carries effects out and keeps its own account of what exists."""

    deed: list = field(default_factory=list)
    now: float = 0.0
    requests: int = 0

    def __post_init__(self):
        functions = {
            name: declared(LAW, memory_gb=memory, idle_holds="slice" if name == "h" else "memory", keep_alive_s=4)
            for name, memory in MEMORY.items()
        }
        where = scenario(
            functions, workflows={name: (name,) for name in functions}, on=cluster(2, vcpus=4, memory_gb=4)
        )
        self.it = Controller(where, Doing(self._decide), awaits_end=True)
        self.exist: dict[int, Process] = {}
        self.created: dict[int, float] = {}
        self.down: set[str] = set()
        self.sizes = {name: [(0.0, *size)] for name, size in NODES.items()}

    def _decide(self, view):
        yield from self.deed
        self.deed = []
        yield from start_oldest(view)

    def tell(self, *events):
        self.now += 0.1
        effects = self.it.handle(self.now, events)
        for id in self.it.pool.instances:
            self.created.setdefault(id, self.now)
        for effect in effects:
            self._act(effect)
        self.check()

    def _act(self, effect):
        if isinstance(effect, fx.StartInstance):
            created, vcpus = self.created.get(effect.instance, self.now), effect.configuration.vcpus
            self.exist[effect.instance] = Process(effect.node, effect.function, created, vcpus)
        elif isinstance(effect, fx.RunBatch):
            process = self.exist[effect.instance]
            process.batch, process.vcpus = effect.batch, effect.configuration.vcpus
        elif isinstance(effect, fx.StopInstance) and effect.instance in self.exist:
            self.exist[effect.instance].is_stopped = True

    def check(self):
        """What exists takes no more than the node once had since the room of the oldest was given to it."""
        for node, sizes in self.sizes.items():
            there = [process for process in self.exist.values() if process.node == node]
            if not there:
                continue
            since = min(process.created for process in there)
            last_before = max(at for at, _, _ in sizes if at <= since)
            vcpus = max(size for at, size, _ in sizes if at >= last_before)
            memory = max(size for at, _, size in sizes if at >= last_before)
            assert sum(MEMORY[process.function] for process in there) <= memory
            working = [p for p in there if p.batch >= 0 or not p.is_ready or p.function == "h"]
            assert sum(process.vcpus for process in working) <= vcpus

    def pick(self, k, wanted):
        found = [id for id, process in self.exist.items() if wanted(process)]
        return found[k % len(found)] if found else None

    def step(self, what, k):
        node, function = f"n{k % 2}", "fgh"[k % 3]
        running = [id for id, p in self.exist.items() if p.batch >= 0 and not p.is_stopped]
        if what == "arrive":
            self.requests += 1
            self.tell(ev.Arrived(Request(self.requests, function, self.now)))
        elif what == "ready":
            id = self.pick(k, lambda p: not p.is_ready and not p.is_stopped)
            if id is not None:
                self.exist[id].is_ready = True
                self.tell(ev.InstanceReady(id))
        elif what == "finish" and running:
            process = self.exist[running[k % len(running)]]
            batch, process.batch = process.batch, -1
            self.tell(ev.Finished(batch, 1.0))
        elif what == "gone":
            id = self.pick(k, lambda p: p.is_stopped)
            if id is not None:
                del self.exist[id]
                self.tell(ev.InstanceGone(id))
        elif what == "lose":
            id = self.pick(k, lambda p: True)
            if id is not None:
                del self.exist[id]
                self.tell(ev.InstanceLost(id))
        elif what == "change" and node not in self.down:
            self.change(node, (0.0, 1.0, 2.5, 4.0)[k // 3], (0.0, 3.0, 4.0)[k % 3])
        elif what == "node":
            self.lose_or_bring_back(node)
        elif what == "scale":
            self.tell(ev.Ordered(Scale(function, k % 4 if k < 8 else None)))
        elif what == "resize":
            self.tell(ev.Ordered(Resize(function, 1.0 + k % 2)))
        elif what == "retire":
            self.tell(ev.Ordered(Retire(k)))
        elif what == "warm":
            self.tell(ev.Ordered(Warm(function, Configuration(vcpus=1 + k % 2), node)))
        elif what == "cancel" and running:
            invocation = self.it.running[self.exist[running[k % len(running)]].batch].tasks[0][0]
            self.deed = [Cancel(invocation.id)]
            self.requests += 1
            self.tell(ev.Arrived(Request(self.requests, function, self.now)))
        elif what == "refuse":
            self.tell(ev.ResizeRefused(k + 1000, 1.0))
        elif what == "wait":
            self.now += k
            self.tell()

    def change(self, node, vcpus, memory):
        self.sizes[node].append((self.now + 0.1, vcpus, memory))
        self.tell(ev.NodeChanged(node, vcpus, memory))

    def lose_or_bring_back(self, node):
        if node in self.down:
            self.down.remove(node)
            state = self.it.nodes[node]
            self.sizes[node].append((self.now + 0.1, state.total / 1000, state.memory_total / 1024))
            self.tell(ev.NodeJoined(state.node))
        else:
            self.down.add(node)
            self.exist = {id: process for id, process in self.exist.items() if process.node != node}
            self.tell(ev.NodeLost(node))

    def wind_up(self):
        """Bring nodes back to their sizes, let all work finish, and end everything."""
        for node, size in NODES.items():
            if node in self.down:
                self.lose_or_bring_back(node)
            self.change(node, *size)
        for function in MEMORY:
            self.tell(ev.Ordered(Scale(function, None)))
        for _ in range(1000):
            for what in ("gone", "ready", "finish"):
                self.step(what, 0)
            if not self.it.requests and not any(p.batch >= 0 or not p.is_ready for p in self.exist.values()):
                break
        self.now += 10
        self.tell()
        while self.exist:
            assert any(process.is_stopped for process in self.exist.values())
            self.step("gone", 0)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPERATIONS, max_size=60))
def test_nothing_is_promised_twice_and_all_is_free_at_the_end(operations):
    machine = Machine()
    for what, k in operations:
        machine.step(what, k)
    machine.wind_up()
    it = machine.it
    assert it.requests == {}
    assert it.pool.instances == {}
    for node in it.nodes.values():
        assert (node.free, node.memory_free, node.held, node.memory_held) == (4000, 4 * 1024, 0, 0)
        assert it.pool.uses(node) == (0, 0)
        assert node.level == it.placement.cpu.shift(node.bit, node.level, node.free)
