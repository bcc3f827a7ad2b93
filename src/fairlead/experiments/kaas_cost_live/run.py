"""Serverful, FaaS and KaaS on the same devices with the same arrivals: what each client held, used and pays."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Protocol

import numpy as np

from fairlead.experiments.cases import Progress, Settings, origin, read_settings
from fairlead.experiments.claims import Claim, below, between, decide
from fairlead.experiments.kaas_clients import clients_of
from fairlead.experiments.kaas_pools import Actors, Place, Shared, Use
from fairlead.experiments.live_bench import busy_share
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, columns, measured, pick, quotient
from fairlead.kaas import Answer
from fairlead.kaas.graphs import Example

SERVERFUL, FAAS, KAAS = "serverful", "FaaS", "KaaS"
WAYS = (SERVERFUL, FAAS, KAAS)


class Pool(Protocol):
    """What runs clients' requests, and what they had of the devices."""

    uses: dict[str, Use]

    async def run(self, client: str) -> Answer:
        """One request of a client."""
        ...


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Every deployment with every seed; seeds come first, so that what else the machine does hits all alike."""
    settings = read_settings(__package__)
    seeds, seconds = (settings[f"quick_{key}" if quick else key] for key in ("seeds", "seconds"))
    clients = clients_of([settings["model"]], settings["clients"])
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with TemporaryDirectory(prefix="fairlead-kaas-cost-") as folder:
        place = place_of(settings, Path(folder))
        asyncio.run(compile_once(place, clients))
        for turn, seed in enumerate(seeds):
            for i, way in enumerate(WAYS):
                found[way].append(asyncio.run(run_way(settings, place, clients, way, seed, seconds)))
                progress((turn * len(WAYS) + i + 1) / (len(seeds) * len(WAYS)), f"{way}, seed {seed}")
    return Reproduction(
        name="kaas-cost-live",
        title="What a device costs six bursty clients: serverful, FaaS and KaaS, live on two PoCL devices",
        rows=tuple(row(way, runs) for way, runs in found.items()),
        notes=tuple(_notes(settings, seeds, seconds)),
    )


def place_of(settings: Settings, folder: Path) -> Place:
    """The devices of the settings."""
    return Place(
        devices=settings["devices"],
        memory_bytes=int(settings["memory_mb"] * 2**20),
        folder=folder,
        environment=settings["environment"],
    )


async def compile_once(place: Place, clients: Mapping[str, Example]) -> None:
    """Fill the compile cache, which outlives processes in every deployment."""
    async with Shared(place, clients) as pool:
        await pool.run(next(iter(clients)))


def deployed(
    settings: Settings, place: Place, clients: Mapping[str, Example], way: str
) -> AbstractAsyncContextManager[Pool]:
    """A deployment, not started yet."""
    if way == KAAS:
        return Shared(place, clients)
    if way == FAAS:
        return Actors(place, clients, places=settings["places"], keep_s=settings["keep_s"], most=1)
    return Actors(place, clients, places=settings["places"], is_reserved=True)


async def run_way(
    settings: Settings, place: Place, clients: Mapping[str, Example], way: str, seed: int, seconds: float
) -> dict[str, float]:
    """One deployment under the arrivals of a seed. Figures of devices are per client."""
    arrivals = sorted(chain(*(_bursts(settings["burst"], client, seed, seconds) for client in clients)))
    taken: list[float] = []
    with busy_share() as busy:
        async with deployed(settings, place, clients, way) as pool:
            began = perf_counter()

            async def ask(at_s: float, client: str) -> None:
                await asyncio.sleep(max(0.0, began + at_s - perf_counter()))
                await pool.run(client)
                taken.append(perf_counter() - began - at_s)

            await asyncio.gather(*(ask(*one) for one in arrivals))
            await asyncio.sleep(max(0.0, began + seconds - perf_counter()))
    return {**_shares(settings, way, pool.uses), **_latencies(taken), "busy": busy[0]}


def _bursts(burst: Settings, client: str, seed: int, seconds: float) -> Iterator[tuple[float, str]]:
    """The instants at which a client asks."""
    rng = np.random.default_rng([seed, *client.encode()])
    at_s = float(rng.uniform(0, burst["gap_s"] / 2))  # so that each client has at least one burst
    while at_s < seconds:
        for _ in range(rng.geometric(1 / burst["requests"])):
            if at_s < seconds:
                yield at_s, client
            at_s += float(rng.exponential(1 / burst["rate_rps"]))
        at_s += float(rng.exponential(burst["gap_s"]))


def _shares(settings: Settings, way: str, uses: Mapping[str, Use]) -> dict[str, float]:
    """What a client had and pays, on average; `usd_spread` is the largest bill per answer over the mean one."""
    bills = {client: _billed_s(settings, way, use) for client, use in uses.items()}
    usd = {client: seconds * settings["usd_per_device_hour"] / 3600 for client, seconds in bills.items()}
    answers = sum(use.answers for use in uses.values())
    each = [1000 * usd[client] / use.answers for client, use in uses.items() if use.answers]
    count = len(uses)
    return {
        "requests": answers,
        "held_s": sum(bills.values()) / count,
        "used_s": sum(use.used_s for use in uses.values()) / count,
        "loaded_s": sum(use.loaded_s for use in uses.values()) / count,
        "held_gb_s": sum(use.held_byte_s for use in uses.values()) / count / 2**30,
        "cold": sum(use.cold for use in uses.values()),
        "usd_per_1000": 1000 * sum(usd.values()) / answers,
        "usd_spread": max(each) / (sum(each) / len(each)),
    }


def _billed_s(settings: Settings, way: str, use: Use) -> float:
    """Device-seconds that a client keeps others from: its share of a device, or the time of its own runs and loads."""
    return use.held_s if way == KAAS else use.held_s / settings["places"]


def _latencies(taken: Sequence[float]) -> dict[str, float]:
    return {"p50_ms": 1e3 * float(np.median(taken)), "p99_ms": 1e3 * float(np.quantile(taken, 0.99))}


_DIGITS = {
    "requests": 0, "held_s": 4, "used_s": 4, "loaded_s": 4, "held_gb_s": 4, "cold": 0, "usd_per_1000": 5,
    "usd_spread": 3, "p50_ms": 1, "p99_ms": 1, "busy": 3,
}  # fmt: skip


def row(way: str, runs: Sequence[Mapping[str, float]]) -> dict[str, object]:
    """A deployment over its seeds."""
    found: dict[str, object] = {"way": way}
    for name, digits in _DIGITS.items():
        found |= columns(name, [one[name] for one in runs], digits)
    return found


def judge(rows: Rows) -> Iterator[Claim]:
    """The order of the thesis, and that the three did the same work."""
    if not rows:
        return  # no full run yet
    serverful, faas, kaas = (pick(rows, way=way) for way in WAYS)
    for costlier, cheaper in ((serverful, faas), (faas, kaas)):
        yield decide(
            f"device-seconds that a client holds: {cheaper['way']} over {costlier['way']}",
            below(1, "less, over the seeds"),
            quotient(cheaper, costlier, "held_s"),
            paper="serverful > FaaS > KaaS (UCB/EECS-2022-88, chapter 5)",
            ours={way: measured(pick(rows, way=way), "held_s").text() + " s" for way in WAYS},
        )
    yield decide(
        "cost per 1,000 requests: KaaS over serverful",
        below(1, "less, over the seeds"),
        quotient(kaas, serverful, "usd_per_1000"),
        paper="less while devices are mostly idle (UCB/EECS-2022-88, chapter 5)",
        ours={way: measured(pick(rows, way=way), "usd_per_1000").text(4) + " USD" for way in WAYS},
    )
    yield decide(
        "99th percentile of latency: KaaS over FaaS",
        below(1, "less, over the seeds"),
        quotient(kaas, faas, "p99_ms"),
        paper="a load in place of the start of a process",
        ours={way: measured(pick(rows, way=way), "p99_ms").text(0) + " ms" for way in WAYS},
    )
    yield decide(
        "device-seconds of kernels: KaaS over serverful",
        between(0.8, 1.25, "the same work within 25 %"),
        quotient(kaas, serverful, "used_s"),
        paper="the same kernels",
        kind="own",
    )


def _notes(settings: Settings, seeds: Sequence[int], seconds: float) -> Iterator[str]:
    yield f"{origin(seeds)} Measured: {seconds:g} s per cell, after a compile cache was filled."
    yield (
        f"held_s: serverful and FaaS have 1/{settings['places']} of a device while a client's process lives, its start "
        "included; KaaS has the time of its runs and loads. Constants that lie in shared memory are not billed, since "
        "others may take their room; held_gb_s counts them all the same."
    )
    yield "All deployments run one kernel graph at a time on a device. PoCL's devices are cores of this machine."
