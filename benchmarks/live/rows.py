"""What is measured of a server: light load, a closed loop, and shares of what that closed loop could do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from time import monotonic, perf_counter, process_time, sleep

import msgspec
from systems import BATCHED

from fairlead.load import Closed, LoadResult, Open, Plan, run_load

USERS = 32
LIGHT_RPS = 20.0
LIGHT, CLOSED = "light", "closed"
SHARES = (0.7, 1.3, 3.0, 10.0)
SERVICE_S = 0.010  # a batch of one
DEADLINE_S = 5 * SERVICE_S
BODY = b'{"input":1}'
MAX_IN_FLIGHT = 1500
TIMEOUT_S = 10.0
CALM = 1.2  # a probe above this says that somebody else is on the cores


@dataclass(frozen=True)
class Lengths:
    """Seconds of each kind of row, and of their warm-up."""

    light_s: float = 8.0
    closed_s: float = 6.0
    point_s: float = 15.0
    short_warm_up_s: float = 1.0
    point_warm_up_s: float = 2.0
    patience_s: float = 10.0


QUICK = Lengths(light_s=3.0, closed_s=2.0, point_s=4.0, short_warm_up_s=0.5, point_warm_up_s=1.0, patience_s=2.0)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One load on one server. `share` is that of the capacity measured before; `probe` was taken just before."""

    system: str
    stage: str
    load: str
    share: float | None
    capacity_rps: float | None
    probe: float
    result: LoadResult


def measure(
    system: str,
    stage: str,
    url: str,
    lengths: Lengths,
    say: Callable[[Row], None],
    shares: Sequence[float] = SHARES,
    deadlines_s: Sequence[float] = (DEADLINE_S,),
    capacity_rps: float | None = None,
) -> list[Row]:
    """The rows of one server that is up, in order; the batched stage at `shares` of its capacity, by deadline.

    The capacity is what its closed loop gets, unless it is given.
    """
    rows: list[Row] = []

    def take(load: str, plan: Plan, share: float | None = None, capacity: float | None = None) -> LoadResult:
        probe = wait_for_calm(lengths.patience_s)
        result = run_load(url, plan)
        row = Row(system=system, stage=stage, load=load, share=share, capacity_rps=capacity, probe=probe, result=result)
        rows.append(row)
        say(row)
        return result

    settle(url)
    take(LIGHT, _plan(Open(rate_rps=LIGHT_RPS), lengths.light_s, lengths.short_warm_up_s))
    closed = take(CLOSED, _plan(Closed(USERS), lengths.closed_s, lengths.short_warm_up_s))
    if stage == BATCHED:
        capacity = closed.answered_rps if capacity_rps is None else capacity_rps
        for deadline_s, share in product(deadlines_s, shares):
            settle(url)
            rate = max(share * capacity, 1.0)
            plan = _plan(Open(rate_rps=rate), lengths.point_s, lengths.point_warm_up_s, deadline_s)
            take(load_name(share, deadline_s), plan, share, capacity)
    return rows


def load_name(share: float, deadline_s: float = DEADLINE_S) -> str:
    """Of a load that is a share of the capacity; the usual deadline is not said."""
    return f"{share:.0%}" if deadline_s == DEADLINE_S else f"{share:.0%} in {deadline_s * 1e3:g} ms"


def settle(url: str, limit_s: float = 60.0) -> None:
    """Wait until single requests are quick again: a backlog of the last row is not the next one's."""
    end = monotonic() + limit_s
    while monotonic() < end:
        result = run_load(url, Plan(arrivals=Closed(1), duration_s=0.3, body=BODY, timeout_s=5.0))
        if result.latency.p95_s is not None and result.latency.p95_s < 20 * SERVICE_S and not result.errors:
            return
        sleep(0.5)


def wait_for_calm(patience_s: float) -> float:
    """The CPU probe: wall time over CPU time of a spin of 50 ms. Waits a while for it to be near 1."""
    end = monotonic() + patience_s
    while True:
        probe = cpu_probe()
        if probe <= CALM or monotonic() >= end:
            return probe
        sleep(0.5)


def cpu_probe() -> float:
    wall, cpu = perf_counter(), process_time()
    while process_time() - cpu < 0.05:
        pass
    return (perf_counter() - wall) / (process_time() - cpu)


def _plan(arrivals: Open | Closed, duration_s: float, warm_up_s: float, deadline_s: float | None = None) -> Plan:
    return Plan(
        arrivals=arrivals,
        duration_s=duration_s,
        warm_up_s=warm_up_s,
        deadline_s=deadline_s,
        body=BODY,
        timeout_s=TIMEOUT_S,
        max_in_flight=MAX_IN_FLIGHT,
    )
