"""Ray: the back end conforms on a real cluster of three raylets, and nodes come and go."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from agent_world import TOKEN
from ray_cluster import raylets

from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.links.address import Address, bound_address, listen_on
from fairlead.engine.live.providers.agents import AgentProvider, Timing
from fairlead.engine.live.ray.kinds import Share
from fairlead.engine.live.ray.messages import Open
from fairlead.engine.live.ray.provider import RayError, RayProvider
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import decode
from fairlead.testing.backends import (
    BACKEND_CHECKS,
    Heard,
    Opened,
    a_node_that_is_given_back_is_lost,
    closing_ends_everything,
    write_app,
)

pytestmark = pytest.mark.ray

OWNER = "0123456789abcdef"


@pytest.fixture(scope="module")
def cluster():
    with raylets() as made:
        yield made


@asynccontextmanager
async def provider_on(address: str, folder: Path, heard, **share):
    """The back end on a cluster, open; yields it with what it found."""
    store = Store.make(folder / "values")
    log: list[str] = []
    with listen_on(Address("127.0.0.1", 0), "--agents-listen") as listening:
        agents = AgentProvider(listening, TOKEN, None, store, folder, log.append, timing=Timing(wait_s=40.0))
        order = Open(
            address=address, owner=OWNER, join=str(bound_address(listening)), token=TOKEN, share=Share(**share)
        )
        provider = RayProvider(agents, order, folder, log.append)
        provider.log = log  # type: ignore[attr-defined]
        try:
            yield provider, await provider.open(heard)
        finally:
            await provider.close()
            store.close()


def on_loop(work) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


class Relay:
    """Passes a provider's reports on to whoever listens now."""

    def __init__(self) -> None:
        self.to = Heard()

    def __getattr__(self, name: str):
        return lambda *words: getattr(self.to, name)(*words)


def test_the_ray_back_end_conforms(cluster, tmp_path):
    """One provider for all checks: starting agents takes seconds. What gives nodes back or closes comes last."""
    last = [a_node_that_is_given_back_is_lost, closing_ends_everything]
    checks = [check for check in BACKEND_CHECKS if check not in last] + last

    async def all_of_them() -> None:
        relay = Relay()
        async with provider_on(cluster.address, tmp_path, relay) as (provider, inventory):
            assert [node.vcpus for node in inventory.nodes] == [4.0] * 3, provider.log
            for check in checks:
                heard = relay.to = Heard()
                opened = Opened(provider, provider.values, write_app(tmp_path), heard, inventory)
                await check(opened)
                for key in [key for key in heard.links if key not in heard.exits]:
                    provider.stop(key, 0.0)
                    await opened.gone(key)

    on_loop(all_of_them())


def test_a_node_that_was_given_back_is_taken_again_when_one_more_is_wanted(cluster, tmp_path):
    async def shrinking_and_growing() -> None:
        heard = Heard()
        async with provider_on(cluster.address, tmp_path, heard) as (provider, inventory):
            given = inventory.nodes[-1]
            provider.shrink(given.name)
            await heard.until(lambda: heard.nodes.get(given.name, ...) is None, "the node is lost")
            provider.grow(given.kind)
            await heard.until(lambda: heard.nodes.get(given.name) is not None, "the node joins again")

    on_loop(shrinking_and_growing())


@pytest.mark.ray_long
def test_instances_that_reserve_for_themselves_are_in_rays_account(cluster, tmp_path):
    """Four CPUs of one node: two instances of two vCPUs fit, a third is denied; what has ended is free again."""

    async def reserving() -> None:
        heard = Heard()
        async with provider_on(cluster.address, tmp_path, heard, by_instance=True) as (provider, inventory):
            b = Opened(provider, provider.values, write_app(tmp_path), heard, inventory)
            name = inventory.nodes[0].name
            specs = [b.spec("echo", node=name, vcpus=1.9) for _ in range(3)]
            for spec in specs:
                provider.start(spec)
            denied = await b.gone(specs[2].key)
            assert denied.error == "Ray has no room for it on its node"
            assert heard.ready == {spec.key for spec in specs[:2]}
            provider.resize(specs[0].key, 1.0)
            await heard.until(lambda: heard.refused == [(specs[0].key, 1.9)], "the resize is refused")
            provider.stop(specs[0].key, 0.0)
            await b.gone(specs[0].key)
            again = b.spec("echo", node=name, vcpus=1.9)
            provider.start(again)
            await heard.until(lambda: again.key in heard.ready, "there is room again")

    on_loop(reserving())


def test_instances_see_the_gpu_that_ray_gave_their_node(cluster, tmp_path):
    """Ray is told that there are two GPUs; it says which by number, and no driver knows them."""

    async def sharing() -> None:
        heard = Heard()
        async with provider_on(cluster.address, tmp_path, heard) as (provider, inventory):
            (found,) = [node for node in inventory.nodes if node.devices]
            assert [(device.name, device.vgpus) for device in found.devices] == [("GPU 0", 1.0), ("GPU 1", 1.0)]
            file = tmp_path / "gpus.py"
            file.write_text(
                "import os\nfrom fairlead.app import App\napp = App('gpus')\n"
                "seen = app.function(name='seen')(lambda value: os.environ['CUDA_VISIBLE_DEVICES'])\n"
                "app.workflow('seen', seen)\n"
            )
            b = Opened(provider, provider.values, AppCode(str(file), "gpus"), heard, inventory)
            shares = [(1, 1.0), (0, 0.5), (0, 0.5), (-1, 0.0)]
            specs = [b.spec("seen", node=found.name, vcpus=0.5, device=d, vgpus=v) for d, v in shares]
            for spec in specs:
                provider.start(spec)
            await heard.until(lambda: heard.ready == {spec.key for spec in specs}, "all are ready")
            for spec in specs:
                b.run(spec.key, 1, "seen", None)
            answers = [decode((await b.answer(spec.key, 1)).results[0].value) for spec in specs]
            assert answers == ["1", "0", "0", ""]
            third = b.spec("seen", node=found.name, vcpus=0.5, device=0, vgpus=0.5)
            provider.start(third)
            assert "GPU 0 (0) has 0 of 1 vGPUs left" in (await b.gone(third.key)).error

    node = cluster.add(num_gpus=2)
    try:
        on_loop(sharing())
    finally:
        cluster.remove(node)


def test_an_address_without_a_cluster_is_an_error(tmp_path):
    async def opening() -> None:
        with pytest.raises(RayError, match="cannot be joined"):
            async with provider_on("127.0.0.1:9", tmp_path, Heard()):
                pass

    on_loop(opening())
