"""The engine against a second program: a chain of four stages on 16 nodes, to the last bit.

Both get the same arrivals and service times. The other program is a plain event loop over a heap, written for this one
case: one queue for all, oldest first; a warm node before a cold one, then the node with most free vCPUs, then the
lowest number; an instance is gone when it was idle for the whole keep-alive time.
"""

from collections import deque
from heapq import heappop, heappush

import numpy as np
import pytest

from fairlead.engine import simulate
from fairlead.engine.sim import Physics
from fairlead.testing import check_capacity, cluster, declared, scenario

NODES, VCPUS, STAGES = 16, 16, 4
COLD_S, KEEP_S, MEAN_S = 0.5, 30.0, 0.25


def reference(arrivals, service):
    """Cold starts by stage, and when each request is answered. Idle instances are stacks of when they turned idle."""
    free = [VCPUS] * NODES
    idle = [[deque() for _ in range(STAGES)] for _ in range(NODES)]
    queue, heap, answers, cold = deque(), [], [0.0] * len(arrivals), [0] * STAGES
    for i, at in enumerate(arrivals):
        heappush(heap, (at, 1, i, i, -1, -1))  # after the ends of its instant
    sequence = 0
    while heap:
        now = heap[0][0]
        while heap and heap[0][0] == now:
            _, _, _, request, stage, node = heappop(heap)
            if node >= 0:
                free[node] += 1
                idle[node][stage].append(now)
            if stage == STAGES - 1:
                answers[request] = now
            else:
                queue.append((request, stage + 1))
        while queue and any(free):
            request, stage = queue.popleft()
            for node in range(NODES):
                while idle[node][stage] and idle[node][stage][0] + KEEP_S <= now:
                    idle[node][stage].popleft()
            able = [n for n in range(NODES) if free[n]]
            node = max(able, key=lambda n: (bool(idle[n][stage]), free[n], -n))
            start = now
            if idle[node][stage]:
                idle[node][stage].pop()  # the one used last
            else:
                cold[stage] += 1
                start += COLD_S
            free[node] -= 1
            sequence += 1
            heappush(heap, (start + service[request][stage], 0, sequence, request, stage, node))
    return cold, answers


class Drawn(Physics):
    """Service times from a table."""

    def __init__(self, where, service):
        super().__init__(where, seed=0)
        self.service = service

    def work_s(self, effect):
        invocation = effect.invocations[0]
        return self.service[invocation.request][int(invocation.stage[1:])]


@pytest.mark.parametrize(
    ("rate", "count"),
    [(180.0, 1000), (2.0, 1000), (400.0, 1000)],
    ids=["busy", "idle-enough-to-expire", "overloaded"],
)
def test_engine_and_reference_agree_exactly(rate, count):
    rng = np.random.default_rng(7)
    arrivals = np.cumsum(rng.exponential(1 / rate, count)).tolist()
    service = rng.exponential(MEAN_S, (count, STAGES)).tolist()
    function = declared(MEAN_S, cold_start_s=COLD_S, keep_alive_s=KEEP_S, idle_holds="memory")
    where = scenario(
        {f"f{i}": function for i in range(STAGES)},
        arrivals=arrivals,
        on=cluster(NODES, vcpus=VCPUS),
        duration_s=arrivals[-1] + 1,
    )
    recording = simulate(where, "fifo", physics=Drawn(where, service))
    cold, answers = reference(arrivals, service)
    table = recording.invocations
    assert [table.filter(table["is_cold"], table["function"] == f"f{i}").height for i in range(STAGES)] == cold
    assert recording.requests.sort("request")["end"].to_list() == answers
    assert ("expired" in set(recording.instances["cause"])) == (rate < 10)
    check_capacity(recording, where)
