"""A real Ray cluster on this machine for tests: a head and two more raylets, ended whatever happens."""

import os
from contextlib import contextmanager

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

    def add(self, **options):
        """A node more."""
        return self._cluster.add_node(**({"num_cpus": 4, "object_store_memory": 80 << 20} | options))

    def remove(self, node) -> None:
        """End a node's raylet, as when its machine is switched off."""
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_gcs(self) -> None:
        """End what keeps the cluster's state."""
        self._cluster.head_node.kill_gcs_server()

    def start_gcs(self) -> None:
        """Start it again."""
        self._cluster.head_node.start_gcs_server()


@contextmanager
def raylets(*, head=None, others=({}, {})):
    """Raylets of this machine; the head and those after it have these options."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
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
