"""Kernels of apps for tests: a host in this process, on NumPy or on the devices of PoCL."""

import asyncio
import os
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

import numpy as np
import pytest
import uvloop

from fairlead.engine.live.host import Host, Options
from fairlead.engine.live.kernels.finding import DeviceChoice
from fairlead.engine.live.values import Ending, encode
from fairlead.kaas.graphs import gemm_chain
from fairlead.kaas.tensors import run_here
from fairlead.workload import PolicyChoice

HAS_POCL = find_spec("pyopencl") is not None
needs_pocl = pytest.mark.skipif(not HAS_POCL, reason="needs the extra kaas: pip install 'fairlead[kaas]'")
ONE = [("numpy",), pytest.param(("opencl:0",), marks=needs_pocl)]
BOTH = ("opencl:0", "opencl:1")

HEAD = "import numpy as np\nfrom fairlead import App, each, fork, switch\nfrom fairlead.kaas import graphs\n"

COMPILED = TemporaryDirectory(prefix="fairlead-compiled-")  # one for all tests: compiling takes seconds
CHAINS = 4

MANY = f"""
    app = App("many")
    for seed in range({CHAINS}):
        made = graphs.gemm_chain(size=64, depth=16, seed=seed)
        app.workflow(f"w{{seed}}", app.kernel(f"k{{seed}}", made.graph, made.constants))
"""
"""Kernels with 256 KB of constants each, and 288 KB of their own."""


@pytest.fixture(autouse=True, scope="session")
def two_devices():
    """What PoCL offers to every process that a test starts."""
    os.environ["POCL_DEVICES"] = "basic basic"


def expected(seed: int) -> np.ndarray:
    """What a kernel of MANY answers."""
    made = gemm_chain(size=64, depth=16, seed=seed)
    return next(iter(run_here(made.graph, made.inputs, made.constants).values()))


def example(seed: int) -> np.ndarray:
    """What a kernel of MANY is called with."""
    return gemm_chain(size=64, depth=16, seed=seed).inputs["x"]


class Served:
    """A host that is open."""

    def __init__(self, host: Host, log: list[str]) -> None:
        self.host = host
        self.log = log

    async def call(self, workflow: str, value: object) -> Ending:
        """How a request ends."""
        future = asyncio.get_running_loop().create_future()
        self.host.submit(workflow, encode(value), done=future.set_result)
        return await asyncio.wait_for(future, 120)

    async def answer(self, workflow: str, value: object) -> object:
        """What a request is answered with."""
        ending = await self.call(workflow, value)
        assert ending.outcome == "completed", ending
        return self.host.read(ending.value)

    async def devices(self):
        """How the devices stand now."""
        await self.host.look_at_devices()
        return self.host.status().devices

    def executor(self, index: int = 0) -> int:
        """The process of a device."""
        kernels = self.host._shared.provider._kernels
        return kernels._devices["local", index]._executor.process_id

    def controller(self, app: str):
        return self.host._apps[app].runtime.controller


def write(folder: Path, text: str, name: str = "app.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(HEAD + dedent(text))
    return path


@asynccontextmanager
async def serving(folder: Path, *texts: str, devices=("numpy",), memory=0, policy=None, warms_up=False):
    paths = tuple(write(folder, text, f"app{i}.py") for i, text in enumerate(texts))
    options = Options(
        policy=None if policy is None else PolicyChoice(name=policy),
        devices=DeviceChoice(devices, memory),
        apps=paths,
        records=False,
        limits="affinity",
        warms_up=warms_up,
    )
    log: list[str] = []
    (folder / "state" / "kernels").mkdir(parents=True, exist_ok=True)
    if not (folder / "state" / "kernels" / "cache").exists():
        (folder / "state" / "kernels" / "cache").symlink_to(COMPILED.name)
    host = Host(folder / "state", options, log.append)
    try:
        await host.open()
        yield Served(host, log)
    finally:
        await host.close()


def run(coroutine):
    """Run it, but not for ever."""

    async def limited():
        async with asyncio.timeout(300):
            return await coroutine

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(limited())
