"""What clients measured alone while they were served, as a simulation of the same gateway and devices needs it.

With one request open, nothing waits for a core, so that elapsed times tell what a run and a load take. With one per
device, all devices are at work, and the gateway is hardly ever idle for long: its CPU time per request is what it takes
under load. With more, requests wait, and runs lose more time to the others on the same cores.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import sched_getaffinity
from statistics import fmean, median

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.calibrate.agree import decision_line
from fairlead.engine import simulate
from fairlead.engine.sim.hosted import HostedSimulation
from fairlead.experiments.kaas_served import Cpu, Span
from fairlead.model import Recording
from fairlead.policy import make_policy
from fairlead.profile import Host
from fairlead.workload import Scenario

_READ_PART = 0.6  # of what a request and its answer take together
_LEAST_PART, _MOST_PART = 0.2, 0.8  # of the gateway's time that goes to requests and answers
_QUANTILES = (np.arange(50) + 0.5) / 50
_WAKES = 3  # of gateway and client for a request: it comes, its run ends, and it is answered
_ROUNDS = 3  # of corrections
_SETTLE_S, _BETWEEN_S = 0.3, 1.0  # of simulated time before and after a client measures alone
_TURNS = 2  # of the controller for a request: when it comes, and when its run ends

Numbers = NDArray[np.float64]
Window = tuple[float, float]
Spans = Mapping[str, Window]
"""By client, in a simulation."""
ScenarioOf = Callable[[Host, Sequence[Mapping[str, object]], float], Scenario]


@dataclass(frozen=True)
class Times:
    """Of one client's kernel, in seconds: a run and a load beyond the gateway's own time, and the spread of runs.

    `share` is the part of a run in which its device uses a core.
    """

    run_s: float
    spread: float
    load_s: float
    share: float


@dataclass(frozen=True)
class Alone:
    """What clients measured one after the other: with one request open, with one per device, and with more.

    Each did so once or several times, so that what else the machine did hits this and what is predicted alike. `loads`
    is from when to when loads count: the first of each client compile code and write values.
    """

    one: Mapping[str, Sequence[Span]]
    two: Mapping[str, Sequence[Span]]
    many: Mapping[str, Sequence[Span]]
    users: tuple[int, int, int]  # requests open in each of the three
    loads: Window

    def host(self, recording: Recording) -> Host:
        """The machine: its cores, and what gateway and client take of them for a request."""
        spans = [span for own in self.two.values() for span in own]
        cpu = sum((span.cpu for span in spans), Cpu())
        count = sum(_runs(recording, [span]).height for span in spans)
        gateway_s, client_s = cpu.gateway_s / count, cpu.client_s / count
        around = [_median(_latencies(own)) - _middle(_runs(recording, own), "ready") for own in self.one.values()]
        request_s = min(max(median(around) - client_s, _LEAST_PART * gateway_s), _MOST_PART * gateway_s)
        pair_s = gateway_s - request_s
        return Host(
            cores=len(sched_getaffinity(0)),
            client_s=client_s,
            request_s=_READ_PART * request_s,
            answer_s=(1 - _READ_PART) * request_s,
            turn_s=pair_s / 2 / _TURNS,
            send_s=pair_s / 4,
            end_s=pair_s / 4,
        )

    def times(self, recording: Recording, host: Host) -> dict[str, Times]:
        """Of every client's kernel. Loads are all alike, as constants are."""
        between_s = host.turn_s + host.send_s + host.end_s
        done = recording.invocations.filter(pl.col("start").is_between(*self.loads) & (pl.col("outcome") == "done"))
        cold_s = float(done.filter(pl.col("cold_s") > 0)["cold_s"].median())  # type: ignore[arg-type]
        found = {}
        for client, spans in self.one.items():
            runs = _runs(recording, spans)
            run_s = _middle(runs, "start") - between_s
            warm = runs.filter(pl.col("cold_s") == 0)
            found[client] = Times(
                run_s=run_s,
                spread=float(warm.select(_quartiles_apart(pl.col("end") - pl.col("start"))).item()),
                load_s=max(1e-4, cold_s - _TURNS * host.turn_s),
                share=min(1.0, sum(span.cpu.devices_s for span in spans) / runs.height / run_s),
            )
        return found


def with_delays(host: Host, alone: Alone, recording: Recording, scenario_of: ScenarioOf) -> Host:
    """The host with the time that is lost while all devices are at work, beyond what the simulator shows of that.

    A process may wake on a core that another one uses, though one is free. Runs lose it, and so do the gateway and the
    client at each of a request's wake-ups. `scenario_of` makes a scenario with a host, arrivals and a length.
    """
    arrivals, spans = _rehearsed(alone)
    end_s = max(end for _, end in spans[-1].values()) + _BETWEEN_S
    for _ in range(_ROUNDS):
        host = _corrected(host, alone, recording, simulate(scenario_of(host, arrivals, end_s)), spans)
    return host


def for_all(host: Host, client: str, clients: Iterable[str]) -> Host:
    """The host where runs of all clients lose what those of one do."""
    return msgspec.structs.replace(
        host,
        run_delay_s=dict.fromkeys(clients, host.run_delay_s[client]),
        run_delay_busy_s=dict.fromkeys(clients, host.run_delay_busy_s[client]),
    )


def _rehearsed(alone: Alone) -> tuple[list[dict[str, object]], list[Spans]]:
    """Each client alone in a simulation: with one request open per device, then with more."""
    arrivals: list[dict[str, object]] = []
    spans: list[Spans] = []
    begin = 0.0
    for measured, users in ((alone.two, alone.users[1]), (alone.many, alone.users[2])):
        own = {}
        for client, own_spans in measured.items():
            until = begin + _SETTLE_S + sum(span.end - span.begin for span in own_spans)
            arrivals.append(users_of(client, users, begin, until))
            own[client] = begin + _SETTLE_S, until
            begin = until + _BETWEEN_S
        spans.append(own)
    return arrivals, spans


def users_of(client: str, users: int, begin: float, end: float) -> dict[str, object]:
    """Arrivals of a client that keeps a number of requests open, from one instant to another."""
    return {
        "workflow": client,
        "process": "closed-loop",
        "users": users,
        "think_s": 0.0,
        "from_s": begin,
        "until_s": end,
    }


def _corrected(host: Host, alone: Alone, recording: Recording, predicted: Recording, spans: Sequence[Spans]) -> Host:
    """One step towards the measured times."""
    found: list[dict[str, tuple[float, ...]]] = []
    before = host.run_delay_s, host.run_delay_busy_s
    for measured, simulated, own in zip((alone.two, alone.many), spans, before, strict=True):
        delays = {}
        for client, seen in measured.items():
            delay_s = _spread(_took(_runs(recording, seen))) - _spread(_took(_between(predicted, *simulated[client])))
            delay_s += np.array(own.get(client, 0.0))
            delays[client] = tuple(np.maximum.accumulate(np.maximum(0.0, delay_s)).tolist())
        found.append(delays)
    around_s = []
    for client, seen in alone.two.items():
        begin, end = spans[0][client]
        asked = predicted.requests.filter(pl.col("arrival").is_between(begin, end))
        taken = asked.select(pl.col("end") - pl.col("arrival")).to_numpy().ravel()
        made_s = taken.mean() - _took(_between(predicted, begin, end)).mean()
        around_s.append(fmean(_latencies(seen)) - _took(_runs(recording, seen)).mean() - made_s)
    wake_s = max(0.0, sum(host.wake_s) + fmean(around_s) / _WAKES)
    return msgspec.structs.replace(host, run_delay_s=found[0], run_delay_busy_s=found[1], wake_s=(wake_s,))


def with_decisions(host: Host, scenario: Scenario, waiting: float = 1.0) -> Host:
    """The host with what decisions of the scenario's policy take, as the simulator times them.

    A turn of the controller was measured with `waiting` invocations to decide on, which is taken out of it.
    """
    policy = scenario.policy
    run = HostedSimulation(
        scenario, (policy.name, make_policy(policy.name, policy.parameters)), (None, None), 0, None, ()
    )
    run.run(None, {})
    fixed_s, each_s = decision_line(run.decided)
    return msgspec.structs.replace(
        host,
        turn_s=max(0.0, host.turn_s - fixed_s - each_s * waiting),
        decision_s={policy.name: fixed_s},
        decision_waiting_s={policy.name: each_s},
    )


def _runs(recording: Recording, spans: Sequence[Span]) -> pl.DataFrame:
    return pl.concat([_between(recording, span.begin, span.end) for span in spans])


def _latencies(spans: Sequence[Span]) -> list[float]:
    return [one for span in spans for one in span.all_s]


def _between(recording: Recording, begin: float, end: float) -> pl.DataFrame:
    return recording.invocations.filter(pl.col("start").is_between(begin, end) & (pl.col("outcome") == "done"))


def _took(runs: pl.DataFrame) -> Numbers:
    """How long warm runs took."""
    return runs.filter(pl.col("cold_s") == 0).select(pl.col("end") - pl.col("start")).to_numpy().ravel()


def _spread(took: Numbers) -> Numbers:
    found: Numbers = np.quantile(took, _QUANTILES)
    return found


def _middle(runs: pl.DataFrame, since: str) -> float:
    """Median time of warm runs since they were ready, or started."""
    warm = runs.filter(pl.col("cold_s") == 0)
    return float(warm.select((pl.col("end") - pl.col(since)).median()).item())


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _quartiles_apart(times: pl.Expr) -> pl.Expr:
    """The standard deviation of a normal distribution with these quartiles: outliers say nothing of the noise."""
    return (times.quantile(0.75) - times.quantile(0.25)) / 1.349
