"""A runtime over agents in this process: an app file is served on their nodes, and nodes die."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

from agent_world import Running, World, world
from runtimes import HEAD, until
from runtimes import Served as OnProcesses

from fairlead.app.describe import describe
from fairlead.app.scenario import scenario_of
from fairlead.engine.live.contracts import AppCode
from fairlead.engine.live.instances import Instances, SharedProvider
from fairlead.engine.live.runtime import Runtime
from fairlead.model import Cluster
from fairlead.workload import PolicyChoice


class Served(OnProcesses):
    """A runtime on nodes of agents, by name."""

    world: World
    agents: dict[str, Running]

    def where(self, request: int, stage: str) -> str:
        """The node that holds the output of a stage."""
        value = self.runtime._transit.open[request].outputs[stage, 0]
        return value.split("@")[1]

    async def kill(self, node: str) -> None:
        """End an agent with its instances and values."""
        await self.agents[node].close_now()

    async def revive(self, node: str) -> None:
        """Start another agent for a node that died."""
        self.agents[node] = self.world.agent(node, self.agents[node]._order.node.vcpus)
        nodes = self.runtime.controller.nodes
        await until(lambda: nodes[node].is_up)

    def stored(self) -> list[str]:
        """The values that are kept anywhere."""
        stores = [agent._store for agent in self.agents.values()] + [self.store]
        folders = [folder for store in stores for folder in (store.folder, store.spill) if folder is not None]
        return [path.name for folder in folders if folder.is_dir() for path in folder.iterdir()]


@asynccontextmanager
async def served(folder: Path, source: str, policy: str = "fifo", nodes: dict[str, float] | None = None, **how):
    """Serve an app file with this text on agents with these vCPUs."""
    path = folder / "app.py"
    path.write_text(HEAD + dedent(source))
    manifest = await asyncio.to_thread(describe, path)
    async with world(folder) as made:
        agents = {name: made.agent(name, vcpus) for name, vcpus in (nodes or {"a": 2, "b": 2}).items()}
        provider, log = made.provider(**how), []
        shared = SharedProvider(provider)
        await shared.open()
        await until(lambda: len(shared.inventory.nodes) == len(agents))
        scenario = replace(
            scenario_of(manifest, cluster=Cluster(nodes=shared.inventory.nodes)), policy=PolicyChoice(name=policy)
        )
        instances = Instances(shared, provider.values, AppCode(str(path), "spread"), 1, log.append)
        runtime = Runtime(manifest, scenario, instances, log.append, is_watched=False, warms_up=False)
        try:
            await runtime.open()
            served = Served(runtime, made._stores[0], log)
            served.world, served.agents = made, agents
            yield served
        finally:
            await runtime.close()
            await shared.close()
