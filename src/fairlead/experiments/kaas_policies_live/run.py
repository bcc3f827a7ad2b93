"""Every policy with the same arrivals, live and simulated."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from fairlead.engine import simulate
from fairlead.experiments.cases import Progress, Settings, read_settings
from fairlead.experiments.claims import Claim, above, decide, paired
from fairlead.experiments.kaas_clients import clients_of
from fairlead.experiments.kaas_live.predicting import kernels
from fairlead.experiments.kaas_served import Asker, Span, live_records, profile_of, served_clients
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Row, Rows, columns, measured, values_of
from fairlead.kaas.graphs import Example
from fairlead.model import Recording

_DIGITS = {"wait_ms": 2, "latency_ms": 2, "cold": 4, "jain": 4}
Figures = Mapping[str, float]
Arrivals = Sequence[tuple[float, str]]


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Serve the clients under each policy in turn; then simulate the same arrivals."""
    settings = read_settings(__package__)
    seeds = settings["quick_seeds" if quick else "seeds"]
    policies = {name: settings["policies"][name] for name in settings["quick_policies" if quick else "policies"]}
    clients = clients_of(settings["models"], settings["clients"])
    profiles: dict[str, Figures] = {}
    arrivals: dict[int, Arrivals] = {}
    rows = []
    with TemporaryDirectory(prefix="fairlead-kaas-policies-") as folder:
        for i, (name, policy) in enumerate(policies.items()):
            own = Path(folder) / name
            with served_clients(own, settings["models"], settings["clients"], settings["devices"], policy) as asker:
                loads, alone = _prepare(asker, settings)
                if not profiles:
                    rate_rps = _rate(settings, alone)
                    arrivals = {seed: drawn(tuple(clients), rate_rps, settings["seconds"], seed) for seed in seeds}
                spans = [asker.open(arrivals[seed]) for seed in seeds]
            recording = live_records(own)
            if not profiles:
                profiles = {client: profile_of(recording, loads, alone[client]) for client in clients}
            live = [figures_of(recording, span.begin, span.end) for span in spans]
            told = [predict(settings, clients, profiles, policy, arrivals[seed]) for seed in seeds]
            rows.append(_row(name, live, told))
            progress((i + 1) / len(policies), name)
    return Reproduction(
        name="kaas-policies-live",
        title="The KaaS policies live on two PoCL devices: waits, cold starts and fairness",
        rows=tuple(rows),
        notes=(
            f"Measured: seeds {seeds}, {settings['seconds']} s of Poisson arrivals each, at {settings['load']:.0%} of "
            f"what the devices could do without loads. Times: {_told(profiles)}.",
            "A wait is from when a request is ready until it starts; a load comes after it. jain is of the clients' "
            "mean slowdowns: the latency over what a run takes alone.",
        ),
    )


def _prepare(asker: Asker, settings: Settings) -> tuple[Span, dict[str, Span]]:
    """Every client one after the other, most of which load, then each alone on all devices."""
    loads = asker.one_by_one(asker.clients * 2)
    outstanding = len(settings["devices"]["names"])
    alone = {}
    for client in asker.clients:
        asker.closed([client], outstanding, settings["profile_s"] / 4)
        alone[client] = asker.closed([client], outstanding, settings["profile_s"] / len(asker.clients))
    return loads, alone


def _rate(settings: Settings, alone: Mapping[str, Span]) -> float:
    """Requests per second of all clients alike at the load."""
    taken_s = [float(np.median(span.all_s)) for span in alone.values()]
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
    profiles: Mapping[str, Figures],
    policy: Mapping[str, object],
    arrivals: Arrivals,
) -> Figures:
    """The same arrivals in the simulator, after every client has run once, one after the other."""
    began = 2.0 * len(clients)
    listed = [
        {
            "workflow": client,
            "process": "list",
            "at": [2.0 * i, *(began + at_s for at_s, who in arrivals if who == client)],
        }
        for i, client in enumerate(clients)
    ]
    duration_s = began + settings["seconds"] + 1
    scenario = kernels(clients, profiles, settings["devices"], policy, listed, duration_s=duration_s)
    recording = simulate(scenario, seed=0)
    assert not recording.refusals, recording.refusals[0]
    return figures_of(recording, began, recording.end_s)


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


def _told(profiles: Mapping[str, Figures]) -> str:
    return ", ".join(
        f"{client} runs {1000 * one['run_s']:.1f} ms and loads {1000 * one['load_s']:.1f} ms"
        for client, one in list(profiles.items())[:2]
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
