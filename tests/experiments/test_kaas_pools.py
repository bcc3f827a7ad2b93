"""Clients on a device without a gateway, as processes of their own and through shared executors, on NumPy."""

import asyncio

import numpy as np
import pytest

from fairlead.experiments.kaas_clients import clients_of
from fairlead.experiments.kaas_cost_live.run import FAAS, KAAS, SERVERFUL, run_way
from fairlead.experiments.kaas_pools import Actors, Place, Shared, bytes_of
from fairlead.kaas.tensors import run_here

MODEL = {"n": 16, "iterations": 2, "constants_mb": 1}
CLIENTS = clients_of([MODEL], 2)
SETTINGS = {
    "places": 2,
    "keep_s": 0.3,
    "burst": {"gap_s": 0.5, "requests": 2, "rate_rps": 20.0},
    "usd_per_device_hour": 1.0,
}


@pytest.fixture
def place(tmp_path):
    return Place(devices=["numpy"], memory_bytes=3 << 20, folder=tmp_path)


def run(coroutine):
    async def limited():
        async with asyncio.timeout(120):
            return await coroutine

    return asyncio.run(limited())


def test_vector_goes_through_the_beginning_of_the_constant():
    example = CLIENTS["client-1"]
    (table,) = example.constants.values()
    assert table.nbytes == 1 << 20
    matrix = table[: 16 * 16].reshape(16, 16)
    (answer,) = run_here(example.graph, example.inputs, example.constants).values()
    assert np.allclose(answer, example.inputs["x"] @ np.linalg.matrix_power(matrix, 4), rtol=1e-4)
    assert not np.array_equal(*[each.constants["table"][:100] for each in CLIENTS.values()])


def test_actors_that_share_one_place_start_anew_for_each_other(place):
    async def take_turns():
        async with Actors(place, CLIENTS, places=1) as pool:
            for _ in range(2):
                for client, example in CLIENTS.items():
                    answer = await pool.run(client)
                    (right,) = run_here(example.graph, example.inputs, example.constants).values()
                    assert np.allclose(answer.array("x"), right)
        return pool.uses

    uses = run(take_turns())
    assert [use.cold for use in uses.values()] == [2, 2]


def test_actors_with_a_place_each_start_once_and_a_busy_one_is_robbed_after_its_job(place):
    async def all_at_once():
        async with Actors(place, CLIENTS, places=2, most=1) as pool:
            await asyncio.gather(*(pool.run(client) for client in CLIENTS for _ in range(3)))
        async with Actors(place, CLIENTS, places=1) as contended:
            await asyncio.gather(*(contended.run(client) for client in CLIENTS for _ in range(2)))
        return pool.uses, contended.uses

    roomy, contended = run(all_at_once())
    assert [use.cold for use in roomy.values()] == [1, 1]
    assert [use.answers for use in roomy.values()] == [3, 3]
    assert [use.answers for use in contended.values()] == [2, 2]
    assert sum(use.cold for use in contended.values()) > 2


def test_shared_executors_evict_where_memory_is_short(place):
    async def take_turns(memory_bytes):
        short = Place(devices=place.devices, memory_bytes=memory_bytes, folder=place.folder)
        async with Shared(short, CLIENTS) as pool:
            for _ in range(3):
                for client in CLIENTS:
                    await pool.run(client)
            return pool.evictions, [use.cold for use in pool.uses.values()]

    one = bytes_of(CLIENTS["client-1"])
    assert run(take_turns(3 * one)) == (0, [1, 1])
    evictions, colds = run(take_turns(one + one // 8))
    assert evictions >= 5
    assert colds == [3, 3]


def test_three_deployments_answer_the_same_arrivals_and_bill_what_they_hold(place):
    figures = {way: run(run_way(SETTINGS, place, CLIENTS, way, 1, 1.5)) for way in (SERVERFUL, FAAS, KAAS)}
    assert len({found["requests"] for found in figures.values()}) == 1
    assert figures[SERVERFUL]["cold"] == 2
    assert figures[SERVERFUL]["held_s"] > 1.5 / 2  # half of the device, all the time
    assert figures[KAAS]["held_s"] < figures[SERVERFUL]["held_s"] / 3
    assert figures[KAAS]["held_s"] == pytest.approx(figures[KAAS]["used_s"] + figures[KAAS]["loaded_s"])
