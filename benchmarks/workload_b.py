"""Workload B: a four-stage chain on nodes of 16 vCPUs, as one scenario and as two bare programs.

One global FIFO of ready stages; warm nodes first, then the emptiest; a cold start of 0.5 s; keep-alive of 30 s; 70 %
load. All, the C programs in `c` too, read the same numbers, drawn beforehand, and must agree on cold starts and
on the mean latency.
"""

from collections import deque
from collections.abc import Callable
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
import simpy

from fairlead.engine.core.effects import RunBatch
from fairlead.engine.sim import Physics
from fairlead.model import Cluster, Function, Node, Workflow
from fairlead.profile import Exponential, Profile
from fairlead.workload import Listed, Scenario

STAGES, VCPUS = 4, 16
MEAN_S, COLD_S, KEEP_ALIVE_S = 0.25, 0.5, 30.0
REQUESTS_PER_NODE_S = 180 / 16  # 70 % of 16 vCPUs


Pick = Callable[[int, list[int], list[int]], int]


class Draws:
    """Arrivals and service times for so many requests on so many nodes.

    `times` and `factors` are arrays, for compiled programs; `arrivals` and `services` are the same as lists. A service
    takes MEAN_S x its factor.
    """

    def __init__(self, requests: int, nodes: int = 16) -> None:
        rng = np.random.default_rng(8)
        self.nodes = nodes
        self.times = np.cumsum(rng.exponential(1 / (REQUESTS_PER_NODE_S * nodes), requests))
        self.factors = rng.standard_exponential(requests * STAGES)

    @cached_property
    def arrivals(self) -> list[float]:
        return self.times.tolist()

    @cached_property
    def services(self) -> list[float]:
        return (MEAN_S * self.factors).tolist()

    @cached_property
    def scenario(self) -> Scenario:
        return scenario(self)


def constants(nodes: int) -> dict[str, float]:
    """What the C program has to know."""
    return {
        "NODES": nodes,
        "VCPUS": VCPUS,
        "STAGES": STAGES,
        "MEAN_S": MEAN_S,
        "COLD_S": COLD_S,
        "KEEP_ALIVE_S": KEEP_ALIVE_S,
    }


def scenario(draws: Draws) -> Scenario:
    """The same thing, declared."""
    functions = [f"stage-{i}" for i in range(STAGES)]
    return Scenario(
        name="workload-b",
        cluster=Cluster(nodes=tuple(Node(name=f"n-{i}", kind="n", vcpus=VCPUS) for i in range(draws.nodes))),
        functions={name: Function(name=name, keep_alive_s=KEEP_ALIVE_S, idle_holds="memory") for name in functions},
        profiles={name: Profile(law=Exponential(MEAN_S), cold_start_s=COLD_S) for name in functions},
        workflows={"chain": Workflow.chain("chain", *functions)},
        arrivals=(Listed(workflow="chain", at=tuple(draws.arrivals)),),
        duration_s=draws.arrivals[-1] + 1,
    )


class Drawn(Physics):
    """Physics that reads service times from the common draws."""

    def __init__(self, of: Scenario, draws: Draws) -> None:
        super().__init__(of, seed=0)
        self._services = draws.services

    def work_s(self, effect: RunBatch) -> float:
        invocation = effect.invocations[0]
        return self._services[invocation.request * STAGES + int(invocation.stage[6:])]


def pick(function: int, free: list[int], warm: list[int]) -> int:
    """The warm node with the most free vCPUs, else the emptiest."""
    best, most = -1, 0
    for node, vcpus in enumerate(free):
        if vcpus:
            score = vcpus + (1000 if warm[node * STAGES + function] else 0)
            if score > most:
                most, best = score, node
    return best


def pick_emptiest(function: int, free: list[int], warm: list[int]) -> int:
    """The node with the most free vCPUs, warm or not."""
    return free.index(max(free))


def run_heapq(draws: Draws, pick: Pick = pick) -> tuple[int, float]:
    """As little Python as will do: cold starts and mean latency."""
    arrivals, services = draws.arrivals, draws.services
    count, infinity = len(arrivals), float("inf")
    free = [VCPUS] * draws.nodes
    warm = [0] * (draws.nodes * STAGES)
    idle: list[deque[int]] = [deque() for _ in warm]
    expiries: deque[tuple[float, int, int]] = deque()
    queue: deque[int] = deque()
    heap: list[tuple[float, int, int, int]] = []
    left = VCPUS * draws.nodes
    cold = sequence = stamp = arriving = 0
    total = 0.0
    while True:
        arrival = arrivals[arriving] if arriving < count else infinity
        due = heap[0][0] if heap else infinity
        if arrival <= due:
            if arrival == infinity:
                return cold, total / count
            now = arrival
            queue.append(arriving * STAGES)
            arriving += 1
        else:
            now, _, task, node = heappop(heap)
            function = task % STAGES
            free[node] += 1
            left += 1
            key = node * STAGES + function
            stamp += 1
            idle[key].append(stamp)
            warm[key] += 1
            expiries.append((now + KEEP_ALIVE_S, key, stamp))
            if function == STAGES - 1:
                total += now - arrivals[task // STAGES]
            else:
                queue.append(task + 1)
        while expiries and expiries[0][0] <= now:
            _, key, mark = expiries.popleft()
            if idle[key] and idle[key][0] == mark:
                idle[key].popleft()
                warm[key] -= 1
        while queue and left:
            task = queue.popleft()
            function = task % STAGES
            node = pick(function, free, warm)
            key = node * STAGES + function
            begins = now
            if warm[key]:
                warm[key] -= 1
                idle[key].pop()
            else:
                cold += 1
                begins += COLD_S
            free[node] -= 1
            left -= 1
            sequence += 1
            heappush(heap, (begins + services[task], sequence, task, node))


class _Cluster:
    """Workload B as SimPy processes: one per request, one event per grant."""

    def __init__(self, environment: simpy.Environment, draws: Draws) -> None:
        self.environment = environment
        self.draws = draws
        self.free = [VCPUS] * draws.nodes
        self.left = VCPUS * draws.nodes
        self.warm = [0] * (draws.nodes * STAGES)
        self.idle: list[deque[int]] = [deque() for _ in self.warm]
        self.queue: deque[tuple[int, simpy.Event]] = deque()
        self.stamp = self.cold = 0
        self.total = 0.0

    def expire(self, event):
        key, mark = event.value
        if self.idle[key] and self.idle[key][0] == mark:
            self.idle[key].popleft()
            self.warm[key] -= 1

    def dispatch(self):
        while self.queue and self.left:
            function, grant = self.queue.popleft()
            node = pick(function, self.free, self.warm)
            key = node * STAGES + function
            delay = 0.0
            if self.warm[key]:
                self.warm[key] -= 1
                self.idle[key].pop()
            else:
                self.cold += 1
                delay = COLD_S
            self.free[node] -= 1
            self.left -= 1
            grant.succeed((node, delay))

    def request(self, number: int):
        environment = self.environment
        arrival = environment.now
        for function in range(STAGES):
            grant = environment.event()
            self.queue.append((function, grant))
            self.dispatch()
            node, delay = yield grant
            yield environment.timeout(self.draws.services[number * STAGES + function] + delay)
            self.free[node] += 1
            self.left += 1
            key = node * STAGES + function
            self.stamp += 1
            self.idle[key].append(self.stamp)
            self.warm[key] += 1
            environment.timeout(KEEP_ALIVE_S, value=(key, self.stamp)).callbacks.append(self.expire)
            self.dispatch()
        self.total += environment.now - arrival


def run_simpy(draws: Draws) -> tuple[int, float]:
    """The same in SimPy: cold starts and mean latency."""
    environment = simpy.Environment()
    cluster = _Cluster(environment, draws)

    def arrivals():
        for number, at in enumerate(draws.arrivals):
            yield environment.timeout(at - environment.now)
            environment.process(cluster.request(number))

    environment.process(arrivals())
    environment.run()
    return cluster.cold, cluster.total / len(draws.arrivals)
