"""An instance of a kernel, on a NumPy device, without a gateway."""

import asyncio

import numpy as np

from fairlead.engine.live.contracts import AppCode, InstanceSpec
from fairlead.engine.live.kernels.code import KernelCode
from fairlead.engine.live.kernels.device import LiveDevice
from fairlead.engine.live.kernels.instance import KernelInstance
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import encode
from fairlead.engine.live.wire import Batch, Done
from fairlead.kaas.graphs import scaling
from fairlead.model import Device

DRAIN_S = 1000.0


def test_instance_that_is_stopped_as_its_run_ends_is_gone_at_once(tmp_path):
    """The gateway may evict it in the very turn in which it says that it is done: then nothing is left to wait for."""
    graph = scaling(n=4).graph
    code = KernelCode(app="a", graph=graph, values={}, run_limit_s=10.0, splits=frozenset(), buffers={})
    spec = InstanceSpec(
        key="k", code=AppCode(str(tmp_path)), function="f", node="n", vcpus=0, memory_gb=0, max_items=1, is_kernel=True
    )
    store = Store(tmp_path / "store")

    async def serve():
        device = LiveDevice("n", 0, Device(vgpus=1, name="numpy"), tmp_path / "device", print)
        gone = asyncio.get_running_loop().create_future()
        said = []

        def say(message):
            said.append(message)
            if isinstance(message, Done):
                instance.stop(DRAIN_S)
            else:
                value = store.put(encode(np.ones(4, np.float32)))
                instance.run(Batch(1, ("main/f",), (value,), generation=1))

        instance = KernelInstance(
            spec, device, store, say, lambda names: None, lambda _, reason: gone.set_result(reason)
        )
        reading = asyncio.get_running_loop().create_future()
        reading.set_result(code)
        instance.start(reading)
        try:
            async with asyncio.timeout(120):
                await gone
        finally:
            await device.close()
        return said

    *_, done = asyncio.run(serve())
    assert done.results[0].ok, done
