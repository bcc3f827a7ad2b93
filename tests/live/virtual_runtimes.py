"""Builders for tests: a runtime on virtual time, from the text of an app. Its functions run in this process.

Functions take time with `sleep(seconds)` and end their instance with `die(error)`. They see what a test gives as
`names`, and their instances share nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import msgspec
import numpy as np
from runtimes import Served as OnProcesses

from fairlead.app import App
from fairlead.app.scenario import scenario_of
from fairlead.engine.live.clock import Clock
from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.data import LocalValues
from fairlead.engine.live.instances import Instances, SharedProvider
from fairlead.engine.live.records import RunHead, RunLog
from fairlead.engine.live.runtime import Runtime
from fairlead.engine.live.store import Store
from fairlead.model import Cluster, Node
from fairlead.testing.virtual import Traits, VirtualCluster, VirtualProvider
from fairlead.testing.virtual import run as run_virtual
from fairlead.workload import PolicyChoice

HEAD = """
from fairlead.app import App, each, fork, switch
from fairlead.testing.virtual import die, sleep
app = App('test')
"""
QUIET = Traits(start_s=(0.2, 0.2), delay_s=(0.0005, 0.0005), overhead_s=(0.001, 0.001))


class Served(OnProcesses):
    """A runtime that is open, with what a test wants to do to it and to its cluster."""

    cluster: VirtualCluster

    def keys(self, function: str) -> list[str]:
        """The keys of a function's instances that exist and were not told to stop."""
        living = self.cluster.instances()
        return [key for key in self.runtime._instances.keys(function) if key in living]

    def kill(self, key: str) -> None:
        """End an instance by force."""
        self.cluster.kill(key, "it was ended by SIGKILL")


def app_of(source: str, names: Mapping[str, object] = {}) -> App:
    """The app of a text; line numbers are those of the text."""
    module: dict[str, object] = dict(names)
    exec(HEAD, module)
    exec(compile(dedent(source), "app.py", "exec"), module)
    return module["app"]


@asynccontextmanager
async def served(
    source: str,
    policy: str = "fifo",
    *,
    names: Mapping[str, object] = {},
    nodes: tuple[Node, ...] = (),
    overcommit: float = 1.0,
    scaler: str | None = None,
    given: Mapping[str, object] = {},
    period_s: float = 0.3,
    traits: Traits = QUIET,
    max_items: int = 10_000,
    warms_up: bool = True,
    record_to: Path | None = None,
    **parameters,
):
    """Serve the app of this text; under a scaler, with what is `given` to it, if there is one."""
    loop = asyncio.get_running_loop()
    manifest = app_of(source, names).manifest()
    if not nodes and not manifest.nodes:
        nodes = (Node(name="local", kind="local", vcpus=2, memory_gb=8),)
    scenario = scenario_of(manifest, cluster=Cluster(nodes=nodes) if nodes else None)
    grown = tuple(msgspec.structs.replace(node, overcommit=overcommit) for node in scenario.cluster.nodes)
    scenario = replace(
        scenario,
        cluster=Cluster(nodes=grown),
        policy=PolicyChoice(name=policy, parameters=parameters),
        scaler=None if scaler is None else PolicyChoice(name=scaler, parameters=given),
        control_period_s=period_s,
    )
    store, log = Store.make(), []
    head = RunHead(app=manifest.name, scenario=scenario, awaits_end=True)
    cluster = VirtualCluster(grown, lambda _: app_of(source, names), np.random.default_rng(0), traits, store=store)
    shared = SharedProvider(VirtualProvider(cluster))
    try:
        await shared.open()
        instances = Instances(shared, LocalValues(store), AppCode("app.py"), 1, log.append, max_items=max_items)
        runtime = Runtime(
            manifest,
            scenario,
            instances,
            log.append,
            None if record_to is None else RunLog(record_to, head),
            is_watched=False,
            max_items=max_items,
            warms_up=warms_up,
            clock=Clock(loop.time, loop.time),
        )
        try:
            await runtime.open()
            app = Served(runtime, store, log)
            app.cluster = cluster
            yield app
        finally:
            await runtime.close()
            assert cluster.instances() == {}, "instances outlive their runtime"
    finally:
        await shared.close()
        store.close()
    assert cluster.violations == []


def run(test: Callable[[], Awaitable[None]], limit_s: float = 10_000.0) -> None:
    """Run a test's coroutine on virtual time."""
    run_virtual(test(), limit_s=limit_s)
