"""The devices that the tests run on: NumPy everywhere, and two of PoCL where the extra `kaas` is installed."""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest
import uvloop

from fairlead.kaas import Executor, ExecutorSettings, Values

POCL = {"POCL_DEVICES": "basic basic"}
NO_POCL = "needs the extra kaas: pip install 'fairlead[kaas]'"
needs_pocl = pytest.mark.skipif(find_spec("pyopencl") is None, reason=NO_POCL)
DEVICES = ["numpy", pytest.param("opencl:0", marks=needs_pocl), pytest.param("opencl:1", marks=needs_pocl)]


class Desk:
    """A folder of values, and executors that use it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder / "values"
        self.cache = cache
        self.values = Values(self.folder)

    def executor(self, device: str = "numpy", **settings) -> Executor:
        settings = {"environment": POCL, "values": self.folder, "cache": self.cache, **settings}
        return Executor(ExecutorSettings(device=device, **settings))

    def put(self, example, tenant: str = "t") -> None:
        for key, value in example.values().items():
            self.values.put(tenant, key, value)


def run(coroutine):
    """Run it, but not for ever."""

    async def limited():
        async with asyncio.timeout(300):
            return await coroutine

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the loop of every gateway
        return runner.run(limited())
