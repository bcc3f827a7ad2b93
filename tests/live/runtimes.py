"""Builders for tests: a runtime over real processes, from the text of an app file."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

from fairlead.app.describe import describe
from fairlead.app.scenario import scenario_of
from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.instances import Instances, SharedProvider
from fairlead.engine.live.providers.local import LocalProvider
from fairlead.engine.live.runtime import Runtime
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import Ending, encode
from fairlead.workload import PolicyChoice

HEAD = "from fairlead.app import App, each, fork, switch\napp = App('test')\n"

COMPOSED = """
    @app.function()
    def double(x): return 2 * x

    @app.function(batch=(1, 2, 4))
    def negate(xs): return [-x for x in xs]

    @app.function()
    def numbers(n): return list(range(n))

    @app.function()
    def total(xs): return sum(xs)

    @app.function()
    def blob(n): return b"x" * n

    @app.function()
    def size(data): return len(data)

    app.workflow("chain", double >> negate)
    app.workflow("fork", double >> fork(negate, double) >> total)
    app.workflow("each", numbers >> each(double >> negate) >> total)
    app.workflow("open-each", numbers >> each(double))
    app.workflow("input-each", each(double) >> total)
    app.workflow("switch", double >> switch(lambda x: "big" if x > 10 else "small", {"big": negate, "small": None}))
    app.workflow("large", blob >> size)
"""


class Served:
    """A runtime that is open, with what a test wants to do to it."""

    def __init__(self, runtime: Runtime, store: Store, log: list[str]) -> None:
        self.runtime = runtime
        self.store = store
        self.log = log

    def begin(
        self, workflow: str, value: object, deadline_s: float | None = None, late_limit_s: float | None = None
    ) -> tuple[int, asyncio.Future]:
        """Submit a request: its number, and its ending to come. With `late_limit_s` as one whose caller waits."""
        future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        how = {"deadline_s": deadline_s, "budget_usd": None, "late_limit_s": late_limit_s}
        return self.runtime.submit(workflow, encode(value), done=future.set_result, **how), future

    async def call(self, workflow: str, value: object, deadline_s: float | None = None) -> Ending:
        """Submit a request and wait for its ending."""
        return await asyncio.wait_for(self.begin(workflow, value, deadline_s)[1], 60)

    async def answer(self, workflow: str, value: object) -> object:
        """What a request is answered with."""
        ending = await self.call(workflow, value)
        assert ending.outcome == "completed", ending
        assert ending.value is not None
        return self.store.read(ending.value)

    def pids(self, function: str) -> list[int]:
        """The processes of a function's instances."""
        instances = self.runtime._instances
        found = [instances._provider.agent.pid(key) for key in instances.keys(function)]
        return [pid for pid in found if pid > 0]


@asynccontextmanager
async def served(
    folder: Path,
    source: str,
    policy: str = "fifo",
    store: Store | None = None,
    max_items: int = 10_000,
    warms_up: bool = True,
    **parameters,
):
    """Serve an app file with this text."""
    path = folder / "app.py"
    path.write_text(HEAD + dedent(source))
    manifest = await asyncio.to_thread(describe, path)
    scenario = replace(scenario_of(manifest), policy=PolicyChoice(name=policy, parameters=parameters))
    store, log = store or Store.make(), []
    async with local_instances(path, scenario.cluster, store, log, max_items=max_items) as instances:
        runtime = Runtime(manifest, scenario, instances, log.append, max_items=max_items, warms_up=warms_up)
        try:
            await runtime.open()
            yield Served(runtime, store, log)
        finally:
            await runtime.close()


@asynccontextmanager
async def local_instances(path, cluster, store, log, *, emulated=None, max_items=10_000):
    """Instances on this machine; the store is closed with them."""
    shared = SharedProvider(LocalProvider(store, emulated=emulated))
    try:
        await shared.open()
        shared.declare(cluster.nodes)
        yield Instances(shared, LocalValues(store), AppCode(str(path)), 1, log.append, max_items=max_items)
    finally:
        await shared.close()
        store.close()


async def until(holds: Callable[[], bool], limit_s: float = 300.0) -> None:
    """Wait until something holds."""
    for _ in range(int(limit_s / 0.02)):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to hold in time")


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine."""
    asyncio.run(test())


def ready(app, function: str) -> int:
    """How many instances of a function are ready, of a runtime on either clock."""
    return sum(
        instance.is_ready and not instance.is_draining
        for instance in app.runtime.controller.pool.instances.values()
        if instance.flavour.function.name == function
    )


@asynccontextmanager
async def load(app, clients: int, seconds: float):
    """Clients that call without a pause; how their requests ended."""
    endings: list[str] = []
    is_over = False

    async def keep_calling() -> None:
        while not is_over:
            endings.append((await app.call("main", seconds)).outcome)

    calling = [asyncio.ensure_future(keep_calling()) for _ in range(clients)]
    try:
        yield endings
    finally:
        is_over = True
        await asyncio.gather(*calling)
