"""The agent of a Ray node shares out the GPUs that Ray gave it, whether or not a driver knows them."""

import asyncio

import msgspec
import pytest
import uvloop
from agent_world import TOKEN, world

from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.links.address import Address, listen_on
from fairlead.engine.live.node.service import AgentOrder, AgentService
from fairlead.engine.live.values import decode
from fairlead.model import Device, Node
from fairlead.testing.backends import Heard, Opened

APP = """
import os
from fairlead.app import App

app = App("gpus")
seen = app.function(name="seen")(lambda value: os.environ["CUDA_VISIBLE_DEVICES"])
app.workflow("seen", seen)
"""


@pytest.mark.parametrize("has_kernels", [False, True], ids=["for-functions", "for-kernels"])
def test_instances_see_the_gpu_that_ray_gave_their_node(tmp_path, monkeypatch, has_kernels):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    (tmp_path / "gpus.py").write_text(APP)
    device = Device(vgpus=1, name="numpy", serves="kernels") if has_kernels else Device(vgpus=1)
    node = Node(name="ray", kind="gpu", vcpus=4, devices=(device,) * 2)

    async def main():
        async with world(tmp_path) as made, asyncio.timeout(120):
            provider, heard, stop = made.provider(), Heard(), asyncio.Event()
            with listen_on(Address("127.0.0.1", 0), "--listen") as listening:
                order = AgentOrder(join=made.address, token=TOKEN, node=node, folder=tmp_path / "ray", gpus=None)
                serving = asyncio.create_task(AgentService(order, listening, made.log.append).run(stop))
                inventory = await provider.open(heard)
                b = Opened(provider, provider.values, AppCode(str(tmp_path / "gpus.py"), "gpus"), heard, inventory)
                try:
                    if has_kernels:
                        assert inventory.nodes == (node,)
                    else:
                        await check(b, provider, heard, inventory.nodes[0])
                finally:
                    await provider.close()
                    stop.set()
                    await serving

    async def check(b, provider, heard, found):
        assert [(one.name, one.vgpus) for one in found.devices] == [("GPU 1", 1.0), ("GPU 0", 1.0)]
        shares = [(1, 1.0), (0, 0.5), (0, 0.5), (-1, 0.0)]
        specs = [b.spec("seen", node="ray", vcpus=0.5, device=number, vgpus=vgpus) for number, vgpus in shares]
        for spec in specs:
            provider.start(spec)
        await heard.until(lambda: heard.ready == {spec.key for spec in specs}, "all are ready")
        for spec in specs:
            b.run(spec.key, 1, "seen", None)
        answers = [decode((await b.answer(spec.key, 1)).results[0].value) for spec in specs]
        assert answers == ["0", "1", "1", ""]
        more = msgspec.structs.replace(specs[1], key="1.9999")
        provider.start(more)
        assert "GPU 0 (1) has 0 of 1 vGPUs left" in (await b.gone(more.key)).error
        provider.stop(specs[1].key, 0.0)
        await b.gone(specs[1].key)
        again = msgspec.structs.replace(specs[1], key="1.10000")
        provider.start(again)
        await heard.until(lambda: again.key in heard.ready, "what has ended is free")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
