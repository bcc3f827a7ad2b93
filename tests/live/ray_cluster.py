"""A real Ray cluster on this machine for tests: a head and two more raylets, ended whatever happens."""

import os
from contextlib import contextmanager
from pathlib import Path

SMALL = {"object_store_memory": 80 << 20, "include_dashboard": False, "num_prestart_python_workers": 0}
TOKEN = "a-ray-token-for-tests-0123456789abcdef"
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

    def add(self, **options):
        """A node more."""
        return self._cluster.add_node(**({"num_cpus": 4, "object_store_memory": 80 << 20} | options))

    def remove(self, node) -> None:
        """End a node's raylet, as when its machine is switched off."""
        self._cluster.remove_node(node, allow_graceful=False)

    @property
    def raylets(self):
        return list(self._cluster.list_all_nodes())


@contextmanager
def raylets(folder: Path, *, others=({}, {}), system=None):
    """Raylets of this machine; those after the head have these options."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    import ray  # noqa: PLC0415 - it reads its settings when it is imported
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    head = {"num_cpus": 4, "object_store_memory": 80 << 20, "include_dashboard": False}
    if system:
        head["_system_config"] = system
    cluster = Cluster(initialize_head=True, head_node_args=head)
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
