"""Workload A: one function that keeps its instances alive for 10 s, as one scenario and as bare programs.

Poisson arrivals at 20/s, an exponential service of 0.5 s, a cold start of 1 s before it, at most 64 instances, lost
when all are busy, the most recently used instance first. The C programs are in `c`. Simfaas knows no cold start apart
from the service: there a cold service is exponential with the same mean, 1.5 s, so its figures are close, not equal.
"""

from collections import deque
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
from measure import Answer

from fairlead.engine.core.effects import RunBatch
from fairlead.engine.sim import Physics
from fairlead.model import Cluster, Function, Node, Workflow
from fairlead.profile import Exponential, Profile
from fairlead.workload import Listed, Scenario

RATE_RPS, MEAN_S, COLD_S, KEEP_ALIVE_S, INSTANCES = 20.0, 0.5, 1.0, 10.0, 64

CONSTANTS = {"MEAN_S": MEAN_S, "COLD_S": COLD_S, "KEEP_ALIVE_S": KEEP_ALIVE_S, "INSTANCES": INSTANCES}


class Draws:
    """Arrivals and service times for so many requests, as arrays and as lists. A service takes MEAN_S x its factor."""

    def __init__(self, requests: int) -> None:
        rng = np.random.default_rng(7)
        self.times = np.cumsum(rng.exponential(1 / RATE_RPS, requests))
        self.factors = rng.standard_exponential(requests)

    @cached_property
    def arrivals(self) -> list[float]:
        return self.times.tolist()

    @cached_property
    def services(self) -> list[float]:
        return (MEAN_S * self.factors).tolist()

    @cached_property
    def scenario(self) -> Scenario:
        return scenario(self)


def scenario(draws: Draws) -> Scenario:
    """The same thing, declared: 64 vCPUs are 64 instances, and `fifo` with queue_limit 0 loses who finds all busy."""
    return Scenario(
        name="workload-a",
        cluster=Cluster(nodes=(Node(name="n", kind="n", vcpus=INSTANCES),)),
        functions={"f": Function(name="f", keep_alive_s=KEEP_ALIVE_S, idle_holds="memory")},
        profiles={"f": Profile(law=Exponential(MEAN_S), cold_start_s=COLD_S)},
        workflows={"one": Workflow.chain("one", "f")},
        arrivals=(Listed(workflow="one", at=tuple(draws.arrivals)),),
        duration_s=draws.arrivals[-1] + 1,
    )


class Drawn(Physics):
    """Physics that reads service times from the common draws."""

    def __init__(self, of: Scenario, draws: Draws) -> None:
        super().__init__(of, seed=0)
        self._services = draws.services

    def work_s(self, effect: RunBatch) -> float:
        return self._services[effect.invocations[0].request]


def run_events(draws: Draws) -> Answer:
    """The generic way: the end of every idle period is an event, stale if the instance was used since."""
    heap: list[tuple[float, int, bool]] = []
    idle: deque[int] = deque()
    busy = cold = rejected = stamp = 0
    total_s = 0.0
    for now, service_s in zip(draws.arrivals, draws.services, strict=True):
        while heap and heap[0][0] <= now:
            at, mark, is_expiry = heappop(heap)
            if is_expiry:
                if idle and idle[0] == mark:
                    idle.popleft()
            else:
                busy -= 1
                stamp += 1
                idle.append(stamp)
                heappush(heap, (at + KEEP_ALIVE_S, stamp, True))
        if busy >= INSTANCES:
            rejected += 1
            continue
        begins = now
        if idle:
            idle.pop()
        else:
            cold += 1
            begins += COLD_S
        end = begins + service_s
        busy += 1
        total_s += end - now
        stamp += 1
        heappush(heap, (end, stamp, False))
    return _answer(draws, cold, rejected, total_s)


def run_lazy(draws: Draws) -> Answer:
    """Without events for what nobody notices: an idle period's end is looked for at the next arrival."""
    heap: list[float] = []
    idle: deque[float] = deque()
    busy = cold = rejected = 0
    total_s = 0.0
    for now, service_s in zip(draws.arrivals, draws.services, strict=True):
        while heap and heap[0] <= now:
            busy -= 1
            idle.append(heappop(heap) + KEEP_ALIVE_S)
        while idle and idle[0] <= now:
            idle.popleft()
        if busy >= INSTANCES:
            rejected += 1
            continue
        begins = now
        if idle:
            idle.pop()
        else:
            cold += 1
            begins += COLD_S
        end = begins + service_s
        busy += 1
        total_s += end - now
        heappush(heap, end)
    return _answer(draws, cold, rejected, total_s)


def _answer(draws: Draws, cold: int, rejected: int, total_s: float) -> Answer:
    return Answer(cold_starts=cold, rejected=rejected, latency_mean_s=total_s / (len(draws.arrivals) - rejected))
