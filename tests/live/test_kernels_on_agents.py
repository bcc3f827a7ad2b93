"""Kernels on the devices of agents: what they answer, values between nodes, and what the gateway is told."""

import asyncio

import numpy as np
from agent_world import world
from kernel_world import CHAINS, MANY, Served, example, expected, run, write

from fairlead.engine.live.host import Host, Options
from fairlead.model import Device

LARGE = """
    app = App("large", policy="fifo")
    made = graphs.scaling(n=65536)

    @app.function
    def numbers(n): return np.arange(n, dtype=np.float32)

    @app.function
    def total(x): return float(np.sum(x, dtype=np.float64))

    app.workflow("total", numbers >> app.kernel("scale", made.graph) >> total)
"""


def test_kernels_run_on_agents_and_their_values_travel(tmp_path):
    async def test():
        async with world(tmp_path) as made:
            device = Device(vgpus=1, name="numpy", serves="kernels", memory_gb=8 / 1024)
            agents = [made.agent(name, devices=(device,)) for name in ("a", "b")]
            provider = made.provider(wait_s=60.0)
            paths = (write(tmp_path, MANY, "many.py"), write(tmp_path, LARGE, "large.py"))
            options = Options(apps=paths, records=False, warms_up=False)
            host = Host(tmp_path / "state", options, made.log.append, provider=provider, values=provider.values)
            try:
                await host.open()
                app = Served(host, made.log)
                for seed in (*range(CHAINS), *range(CHAINS)):
                    np.testing.assert_allclose(await app.answer(f"w{seed}", example(seed)), expected(seed), atol=1e-3)
                numbers = np.arange(65536, dtype=np.float64)
                for _ in range(3):
                    assert await app.answer("total", 65536) == 2 * numbers.sum()
                while sum(one.runs for one in host.status().devices) < 2 * CHAINS + 3:  # with the next beats
                    await asyncio.sleep(0.1)
                found = host.status().devices
                assert {one.node for one in found} <= {"a", "b"}
                assert all(one.used_bytes <= one.memory_bytes for one in found)
                agents[0].stop.set()  # its kernels go on elsewhere
                for seed in range(CHAINS):
                    np.testing.assert_allclose(await app.answer(f"w{seed}", example(seed)), expected(seed), atol=1e-3)
            finally:
                await host.close()

    run(test())
