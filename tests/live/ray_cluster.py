"""A real Ray cluster on this machine for tests: a head and two more raylets, ended whatever happens.

`serving_on` runs `fairlead serve` on it. `RayNode` has the processes of a node, which can be killed and frozen.
"""

import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory

from agent_processes import Watched
from serving import Serving, command, descendants, wait_for, write_app

AGENT = "fairlead.engine.live.ray.agent"
INSTANCE = "live.links.instance"

QUICK = {"health_check_period_ms": 1000, "health_check_timeout_ms": 2000, "health_check_failure_threshold": 3}
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_DEDUP_LOGS": "0",
}


class Raylets:
    """The cluster: its address, and nodes that can be added and taken away."""

    def __init__(self, cluster) -> None:
        self._cluster = cluster
        self.address = cluster.address

    @property
    def nodes(self) -> list["RayNode"]:
        """All nodes, the head first."""
        head = self._cluster.head_node
        return [RayNode(node) for node in (head, *(one for one in self._cluster.list_all_nodes() if one is not head))]

    def add(self, **options) -> "RayNode":
        """A node more."""
        return RayNode(self._cluster.add_node(**({"num_cpus": 4, "object_store_memory": 80 << 20} | options)))

    def remove(self, node: "RayNode") -> None:
        """End a node's raylet, as when its machine is switched off."""
        self._cluster.remove_node(node.made, allow_graceful=False)

    def kill_gcs(self) -> None:
        """End what keeps the cluster's state."""
        self._cluster.head_node.kill_gcs_server()

    def start_gcs(self) -> None:
        """Start it again."""
        self._cluster.head_node.start_gcs_server()


class RayNode:
    """One node: its raylet with all that it has started, the agent and the instances among them."""

    def __init__(self, made) -> None:
        self.made = made
        self.raylet: int = made.all_processes["raylet"][0].process.pid
        self._frozen: list[int] = []

    def has(self, name: str) -> bool:
        """Whether Fairlead's node of this name is this one."""
        return name.endswith(self.made.node_id[-8:])

    @property
    def agent(self) -> int:
        """The process of its agent."""
        return next(pid for pid in descendants(self.raylet) if AGENT in command(pid))

    @property
    def instances(self) -> list[int]:
        """The processes of its instances."""
        return [pid for pid in descendants(self.raylet) if INSTANCE in command(pid)]

    def freeze(self, *, with_raylet: bool = True) -> None:
        """Stop the node, as a machine that hangs; its connections stay open. Without the raylet, only what we run."""
        root = self.raylet if with_raylet else self.agent
        self._frozen = [root, *descendants(root)]
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on: instances first, so that they answer before their agent learns that they were given up."""
        instances = [pid for pid in self._frozen if INSTANCE in command(pid)]
        for pid in instances:
            _continue(pid)
        time.sleep(0.5)
        for pid in self._frozen:
            _continue(pid)


def _continue(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@contextmanager
def raylets(*, head=None, others=({}, {})):
    """Raylets of this machine; the head and those after it have these options."""
    cache = TemporaryDirectory()  # of environments of apps
    changed = ENVIRONMENT | {"XDG_CACHE_HOME": cache.name}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    import ray  # noqa: PLC0415 - it reads its settings when it is imported
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    first = {"num_cpus": 4, "object_store_memory": 80 << 20, "include_dashboard": False, "_system_config": QUICK}
    cluster = Cluster(initialize_head=True, head_node_args=first | (head or {}))
    try:
        made = Raylets(cluster)
        for options in others:
            made.add(**options)
        yield made
    finally:
        ray.shutdown()
        cluster.shutdown()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        cache.cleanup()


class RayServed(Watched):
    """A gateway on raylets of this machine."""

    def __init__(self, cluster: Raylets, served: Serving) -> None:
        self.cluster = cluster
        self.served = served

    @property
    def instances(self) -> dict[int, str]:
        """By process id: the node of an instance."""
        names = self.nodes
        return {
            pid: next((name for name in names if node.has(name)), "")
            for node in self.cluster.nodes
            for pid in node.instances
        }

    def name_of(self, node: RayNode) -> str:
        """What the gateway calls a node that it counts on."""
        return next(name for name in self.nodes if node.has(name))


@contextmanager
def serving_on(address: str, folder, *more: str, code: str, token: str | None = None):
    """An app on the cluster at an address, served; its agents are gone afterwards."""
    host = address.partition(":")[0]
    app = write_app(folder / "app.py", code)
    options = ("--backend", "ray", "--address", address, "--agents-listen", f"{host}:0", *more)
    made = Serving(app, folder / "state", *options, token=token)
    try:
        yield made.wait_until_serving()
    finally:
        with suppress(subprocess.TimeoutExpired):
            made.stop()
        made.end()
        wait_for(lambda: not agents(), 150, lambda: f"agents are left: {agents()}")


def agents() -> list[int]:
    """The agents of this process's raylets."""
    return [pid for pid in descendants(os.getpid()) if AGENT in command(pid)]
