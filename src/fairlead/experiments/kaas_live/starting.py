"""How long the first answer of a kernel graph takes: nothing compiled, compiled on disk, and warm."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from uuid import uuid4

from fairlead.experiments.kaas_pools import Place
from fairlead.kaas import Request
from fairlead.kaas.graphs import Example

_WARM = 20


def measure_starts(place: Place, clients: Mapping[str, Example]) -> dict[str, float]:
    """Seconds until an answer on an open device: `cold` with an empty compile cache, `cached`, and `warm`."""
    fresh = replace(place, folder=place.folder / uuid4().hex)
    fresh.keep(clients)
    client, example = next(iter(clients.items()))
    cold_s = asyncio.run(_first(fresh, client, example))[0]
    cached_s, warm_s = asyncio.run(_first(fresh, client, example))
    return {"cold_s": cold_s, "cached_s": cached_s, "warm_s": warm_s}


async def _first(place: Place, client: str, example: Example) -> tuple[float, float]:
    """What the first request of a process takes, and the median of those after it."""
    request = Request(tenant=client, graph=example.graph, inputs=example.inputs, limit_s=120)
    async with place.executor(place.devices[0]) as executor:
        taken = []
        for _ in range(1 + _WARM):
            began = perf_counter()
            await executor.run(request)
            taken.append(perf_counter() - began)
    return taken[0], median(taken[1:])


def place_of(devices: Mapping[str, object], folder: Path) -> Place:
    """The devices of an experiment's settings."""
    names, environment = devices["names"], devices["environment"]
    assert isinstance(names, list)
    assert isinstance(environment, dict)
    return Place(
        devices=names,
        memory_bytes=int(float(str(devices["memory_mb"])) * 2**20),
        folder=folder,
        environment=environment,
    )
