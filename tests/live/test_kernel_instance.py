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


class Bench:
    """An instance of a kernel that doubles `n` numbers, and what it says."""

    def __init__(self, folder, n, heard):
        self.store = Store(folder / "store")
        self.device = LiveDevice("n", 0, Device(vgpus=1, name="numpy"), folder / "device", print)
        self.said = []
        self.gone = asyncio.get_running_loop().create_future()
        code = AppCode(str(folder))
        spec = InstanceSpec(
            key="k", code=code, function="f", node="n", vcpus=0, memory_gb=0, max_items=1, is_kernel=True
        )

        def say(message):
            self.said.append(message)
            heard(self, message)

        self.instance = KernelInstance(
            spec, self.device, self.store, say, lambda names: None, lambda _, reason: self.gone.set_result(reason)
        )
        reading = asyncio.get_running_loop().create_future()
        graph = scaling(n=n).graph
        reading.set_result(
            KernelCode(app="a", graph=graph, values={}, run_limit_s=10.0, splits=frozenset(), buffers={})
        )
        self.instance.start(reading)

    def run(self, *values):
        stored = tuple(self.store.put(encode(value)) for value in values)
        self.instance.run(Batch(1, ("main/f",) * len(values), stored, generation=1))

    def values(self, done):
        return [self.store.read(result.value) if result.ok else result.error for result in done.results]


def serve(folder, heard, n=4):
    """What an instance says until it has ended, and how its values are read."""

    async def go():
        bench = Bench(folder, n, heard)
        try:
            async with asyncio.timeout(120):
                await bench.gone
        finally:
            await bench.device.close()
        return bench

    return asyncio.run(go())


def test_instance_that_is_stopped_as_its_run_ends_is_gone_at_once(tmp_path):
    """The gateway may evict it in the very turn in which it says that it is done: then nothing is left to wait for."""

    def heard(bench, message):
        if isinstance(message, Done):
            bench.instance.stop(DRAIN_S)
        else:
            bench.run(np.ones(4, np.float32))

    *_, done = serve(tmp_path, heard).said
    assert done.results[0].ok, done


def test_batch_is_answered_in_its_order_and_what_is_wrong_in_it_fails_alone(tmp_path):
    ones, said_meanwhile = np.ones(4, np.float32), []

    def heard(bench, message):
        if isinstance(message, Done):
            bench.instance.stop(DRAIN_S)
        else:
            bench.run(ones, ones[:3], 3 * ones)
            said_meanwhile.append(len(bench.said))

    bench = serve(tmp_path, heard)
    assert said_meanwhile == [1]  # who sends a batch is not told of it before it is sent
    *_, done = bench.said
    first, wrong, last = bench.values(done)
    assert (first[0], last[0]) == (2, 6)
    assert "must be float32 [4]; got float32 [3]" in wrong
    assert done.work_s > 0


def test_large_values_are_run_as_small_ones_are(tmp_path):
    def heard(bench, message):
        if isinstance(message, Done):
            bench.instance.stop(DRAIN_S)
        else:
            bench.run(np.ones(100_000, np.float32), np.full(100_000, 4, np.float32))

    bench = serve(tmp_path, heard, n=100_000)
    assert [value[-1] for value in bench.values(bench.said[-1])] == [2, 8]


def test_instance_that_is_stopped_at_once_says_no_more_of_what_it_runs(tmp_path):
    def heard(bench, message):
        bench.run(np.ones(4, np.float32))
        bench.instance.stop(0.0, "enough")

    bench = serve(tmp_path, heard)
    assert [type(message).__name__ for message in bench.said] == ["Ready"]
    assert bench.gone.result() == "enough"
