"""Every policy with the same arrivals, live and simulated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from fairlead.experiments.cases import Progress, Settings, read_settings
from fairlead.experiments.claims import Claim, above, decide, paired
from fairlead.experiments.kaas_alone import Alone, ScenarioOf, Times, users_of, with_decisions, with_delays
from fairlead.experiments.kaas_clients import clients_of
from fairlead.experiments.kaas_live.predicting import kernels
from fairlead.experiments.kaas_live.predicting import predict as simulated
from fairlead.experiments.kaas_served import Asker, Span, live_records, served_clients
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Row, Rows, columns, measured, values_of
from fairlead.kaas.graphs import Example
from fairlead.model import Recording
from fairlead.profile import Host
from fairlead.workload import Scenario

_BETWEEN_S = 1.0  # of simulated time without requests, between two sets of arrivals
_DIGITS = {"wait_ms": 2, "latency_ms": 2, "cold": 4, "jain": 4}
Figures = Mapping[str, float]
Arrivals = Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Measured:
    """One policy live: its records, and when each set of arrivals came."""

    name: str
    policy: Mapping[str, object]
    recording: Recording
    spans: Sequence[Span]


@dataclass(frozen=True)
class Live:
    """Every policy live, with what the clients measured alone under the first."""

    arrivals: Sequence[Arrivals]
    alone: Alone
    policies: Sequence[Measured]


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Serve the clients under each policy in turn; then simulate the same arrivals."""
    settings = read_settings(__package__)
    live = measure(settings, quick=quick, progress=progress)
    return beside_prediction(settings, live, quick=quick)


def measure(settings: Settings, *, quick: bool, progress: Progress) -> Live:
    """Every policy with the same arrivals, on a gateway of its own."""
    seeds = settings["quick_seeds" if quick else "seeds"]
    policies = {name: settings["policies"][name] for name in settings["quick_policies" if quick else "policies"]}
    alone: Alone | None = None
    arrivals: list[Arrivals] = []
    found = []
    with TemporaryDirectory(prefix="fairlead-kaas-policies-") as folder:
        for i, (name, policy) in enumerate(policies.items()):
            own = Path(folder) / name
            with served_clients(own, settings["models"], settings["clients"], settings["devices"], policy) as asker:
                if alone is None:
                    alone = _alone(asker, settings)
                    rate_rps = _rate(settings, alone)
                    arrivals = [drawn(asker.clients, rate_rps, settings["seconds"], seed) for seed in seeds]
                _warm(asker, settings)
                spans = [asker.open(each) for each in arrivals]
            found.append(Measured(name, policy, live_records(own), spans))
            progress(0.9 * (i + 1) / len(policies), name)
    assert alone is not None, "there is a policy"
    return Live(arrivals, alone, found)


def beside_prediction(settings: Settings, live: Live, *, quick: bool) -> Reproduction:
    """Each policy beside what the simulator says of the same arrivals."""
    seeds = settings["quick_seeds" if quick else "seeds"]
    clients = clients_of(settings["models"], settings["clients"])
    first = live.policies[0]
    host = live.alone.host(first.recording)
    times = live.alone.times(first.recording, host)
    host = with_delays(host, live.alone, first.recording, _scenarios(settings, clients, times, first.policy))
    rows = []
    for one in live.policies:
        seen = [figures_of(one.recording, span.begin, span.end) for span in one.spans]
        rows.append(_row(one.name, seen, predict(settings, clients, times, host, one.policy, live.arrivals)))
    return Reproduction(
        name="kaas-policies-live",
        title="The KaaS policies live on two PoCL devices: waits, cold starts and fairness",
        rows=tuple(rows),
        notes=(
            f"Measured: seeds {seeds}, {settings['seconds']} s of Poisson arrivals each, at {settings['load']:.0%} of "
            f"what the devices could do without loads. Times: {_told(times)}.",
            "A wait is from when a request is ready until it starts; a load comes after it. jain is of the clients' "
            "mean slowdowns: the latency over what a run takes alone.",
        ),
    )


def _alone(asker: Asker, settings: Settings) -> Alone:
    """Every client once, then each alone: with one request open, with one per device, and with more.

    Loads count once every client has loaded on every device.
    """
    asker.one_by_one(asker.clients)
    users = 1, len(settings["devices"]["names"]), settings["alone_outstanding"]
    spans: list[dict[str, list[Span]]] = []
    for outstanding in users:
        own = {}
        for client in asker.clients:
            asker.closed([client], outstanding, settings["settle_s"])
            own[client] = [asker.closed([client], outstanding, settings["profile_s"] / len(asker.clients))]
        spans.append(own)
    one, two, many = spans
    last = asker.clients[-1]
    return Alone(one, two, many, users, (two[last][0].end, many[last][0].end))


def _warm(asker: Asker, settings: Settings) -> None:
    """Every client once, and then on all devices: later loads neither compile nor write anything."""
    asker.one_by_one(asker.clients)
    for client in asker.clients:
        asker.closed([client], len(settings["devices"]["names"]), settings["settle_s"])


def _scenarios(
    settings: Settings, clients: Mapping[str, Example], times: Mapping[str, Times], policy: Mapping[str, object]
) -> ScenarioOf:
    def scenario_of(host: Host, arrivals: Sequence[Mapping[str, object]], end_s: float) -> Scenario:
        return kernels(clients, times, host, settings["devices"], policy, arrivals, duration_s=end_s)

    return scenario_of


def _rate(settings: Settings, alone: Alone) -> float:
    """Requests per second of all clients alike at the load."""
    taken_s = [float(np.median(span.all_s)) for (span,) in alone.two.values()]
    return float(settings["load"] * len(settings["devices"]["names"]) / np.mean(taken_s))


def drawn(clients: Sequence[str], rate_rps: float, seconds: float, seed: int) -> list[tuple[float, str]]:
    """Poisson arrivals of clients that are all alike."""
    rng = np.random.default_rng(seed)
    at_s, found = float(rng.exponential(1 / rate_rps)), []
    while at_s < seconds:
        found.append((at_s, clients[int(rng.integers(len(clients)))]))
        at_s += float(rng.exponential(1 / rate_rps))
    return found


def predict(
    settings: Settings,
    clients: Mapping[str, Example],
    times: Mapping[str, Times],
    host: Host,
    policy: Mapping[str, object],
    drawn: Sequence[Arrivals],
) -> list[Figures]:
    """What the simulator says of arrivals one after the other, after every client has warmed up as it did live."""
    count, settle_s = len(settings["devices"]["names"]), settings["settle_s"]
    listed: list[Mapping[str, object]] = [
        {"workflow": client, "process": "list", "at": [_BETWEEN_S * i]} for i, client in enumerate(clients)
    ]
    begin = _BETWEEN_S * len(clients)
    for client in clients:
        listed.append(users_of(client, count, begin, begin + settle_s))
        begin += settle_s + _BETWEEN_S
    step = settings["seconds"] + _BETWEEN_S
    begins = [begin + i * step for i in range(len(drawn))]
    for client in clients:
        at = [begin + at_s for begin, own in zip(begins, drawn, strict=True) for at_s, who in own if who == client]
        listed.append({"workflow": client, "process": "list", "at": at})

    def scenario(host: Host) -> Scenario:
        return kernels(clients, times, host, settings["devices"], policy, listed, duration_s=begins[-1] + step)

    recording = simulated(scenario(with_decisions(host, scenario(host))), 0)
    return [figures_of(recording, begin, begin + step) for begin in begins]


def figures_of(recording: Recording, begin: float, end: float) -> Figures:
    """Of the runs that became ready in a span."""
    runs = recording.invocations.filter(
        pl.col("ready").is_between(begin, end) & (pl.col("outcome") == "done")
    ).with_columns(
        wait=pl.col("start") - pl.col("ready"),
        latency=pl.col("end") - pl.col("ready"),
        run=pl.col("end") - pl.col("start") - pl.col("cold_s"),
    )
    slowdowns = runs.group_by("workflow").agg(s=pl.col("latency").mean() / pl.col("run").median())["s"].to_numpy()
    return {
        "wait_ms": 1000 * float(runs["wait"].mean()),  # type: ignore[arg-type]
        "latency_ms": 1000 * float(runs["latency"].mean()),  # type: ignore[arg-type]
        "cold": runs.filter(pl.col("cold_s") > 0).height / runs.height,
        "jain": float(slowdowns.sum() ** 2 / (slowdowns.size * (slowdowns**2).sum())),
    }


def _row(name: str, live: Sequence[Figures], told: Sequence[Figures]) -> Row:
    row: dict[str, object] = {"policy": name}
    for figure, digits in _DIGITS.items():
        row |= columns(figure, [one[figure] for one in live], digits)
        row |= columns(f"{figure}_predicted", [one[figure] for one in told], digits)
    return row


def _told(times: Mapping[str, Times]) -> str:
    return ", ".join(
        f"{client} runs {1000 * one.run_s:.2f} ms and loads {1000 * one.load_s:.2f} ms"
        for client, one in list(times.items())[:2]
    )


def judge(rows: Rows) -> Iterator[Claim]:
    """The order of every two policies that differ in the simulation by more than the noise, and live too."""
    if not rows:
        return  # no full run yet
    settings = read_settings(__package__)
    for figure, what in (("wait_ms", "mean wait"), ("cold", "cold starts")):
        pairs = list(_ordered(rows, figure, settings["apart"]))
        if pairs:
            yield decide(
                f"order of the policies by {what}: every pair that simulation and measurement both tell apart",
                above(0, "the same order, seed by seed"),
                *(paired(values_of(more, figure), values_of(less, figure)) for less, more in pairs),
                paper="simulated only (UCB/EECS-2022-88, 6)",
                ours={row["policy"]: _both(row, figure) for row in rows},
                kind="own",
                note=f"{len(pairs)} of {len(rows) * (len(rows) - 1) // 2} pairs.",
            )
    least = min(rows, key=lambda row: float(row["jain"]))
    yield decide(
        f"fairness: Jain's index of the clients' slowdowns, at its lowest ({least['policy']})",
        above(0.5, "more than 0.5 under every policy"),
        *(measured(row, "jain") for row in rows),
        paper="not published",
        ours={row["policy"]: _both(row, "jain") for row in rows},
        kind="own",
    )


def _ordered(rows: Rows, figure: str, apart: float) -> Iterator[tuple[Row, Row]]:
    """Pairs that the simulation orders clearly, the smaller first, and that differ live by more than the noise."""
    for one, other in combinations(rows, 2):
        less, more = sorted((one, other), key=lambda row: float(row[f"{figure}_predicted"]))
        low, high = float(less[f"{figure}_predicted"]), float(more[f"{figure}_predicted"])
        difference = paired(values_of(more, figure), values_of(less, figure))
        is_noise = difference.interval is None or difference.low <= 0 <= difference.high
        if high - low > apart * max(high, 1e-9) and not is_noise:
            yield less, more


def _both(row: Row, figure: str) -> str:
    return f"{measured(row, figure).text(2)}, predicted {float(row[f'{figure}_predicted']):.2f}"
