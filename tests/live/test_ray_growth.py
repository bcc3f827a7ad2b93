"""Grow and Shrink ask Ray's autoscaler, which starts and ends real raylets of this machine."""

import asyncio
import os

import pytest
import uvloop
from autoscaled import autoscaled
from serving import command, descendants
from test_ray import provider_on

from fairlead.testing.backends import Heard

pytestmark = pytest.mark.ray_long


def workers(heard: Heard) -> set[str]:
    return {name for name, node in heard.nodes.items() if node is not None and node.vcpus == 2.0}


def raylet_pids() -> list[int]:
    return [pid for pid in descendants(os.getpid()) if command(pid).partition(" ")[0].endswith("raylet/raylet")]


@pytest.mark.parametrize("more", [1, 2], ids=["one", "two"])
def test_rays_autoscaler_adds_nodes_and_removes_one_that_was_given_back(tmp_path, more):
    async def growing(address: str) -> None:
        heard = Heard()
        async with provider_on(address, tmp_path, heard) as (provider, inventory):
            heard.nodes |= {node.name: node for node in inventory.nodes}
            await heard.until(lambda: len(workers(heard)) == 1, "the first worker is there")
            (first,) = workers(heard)
            for number in range(more):
                provider.grow(heard.nodes[first].kind)
                await heard.until(lambda count=number + 2: len(workers(heard)) == count, "a node joins")
            assert len(raylet_pids()) == more + 2
            provider.shrink(max(workers(heard) - {first}))
            await heard.until(lambda: len(workers(heard)) == more, "the node is given back")
            async with asyncio.timeout(60):
                while len(raylet_pids()) > more + 1:
                    await asyncio.sleep(0.1)
            await asyncio.sleep(3)
            assert len(raylet_pids()) == more + 1, "the autoscaler still has to provide a node that was given back"

    with (
        autoscaled(tmp_path, most=3) as address,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(growing(address))
