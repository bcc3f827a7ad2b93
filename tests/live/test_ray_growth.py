"""Grow and Shrink ask Ray's autoscaler, which starts and ends real raylets of this machine."""

import asyncio

import pytest
import uvloop
from autoscaled import autoscaled
from test_ray import provider_on

from fairlead.testing.backends import Heard

pytestmark = pytest.mark.ray_long


def test_rays_autoscaler_adds_a_node_and_removes_one_that_was_given_back(tmp_path):
    async def growing(address: str) -> None:
        heard = Heard()
        async with provider_on(address, tmp_path, heard) as (provider, inventory):
            heard.nodes |= {node.name: node for node in inventory.nodes}

            def workers() -> list[str]:
                return [name for name, node in heard.nodes.items() if node is not None and node.vcpus == 2.0]

            await heard.until(lambda: len(workers()) == 1, "the first worker is there")
            (first,) = workers()
            provider.grow(heard.nodes[first].kind)
            await heard.until(lambda: len(workers()) == 2, "a node joins")
            (new,) = set(workers()) - {first}
            provider.shrink(new)
            await heard.until(lambda: workers() == [first], "the node is given back")

    with (
        autoscaled(tmp_path) as address,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(growing(address))
