"""An app on a Ray cluster: three nodes of this machine, of two kinds, and a fourth that joins while it serves.

Needs `pip install 'fairlead[ray]'`. On real machines `ray start` takes the place of `Cluster`; see docs/guide/ray.md.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}  # before Ray reads them

from ray.cluster_utils import Cluster

APP = Path(__file__).with_name("06_first_app.py")
SMALL = {"num_cpus": 2, "object_store_memory": 80 << 20}


def ask(url: str, path: str) -> dict:
    """What the gateway answers."""
    with urllib.request.urlopen(f"{url}{path}", timeout=30) as reply:
        return json.load(reply)


def wait_for(seconds: float, found):
    """What is found, once it is there."""
    until = time.monotonic() + seconds
    while not (answer := found()):
        if time.monotonic() > until:
            raise SystemExit("it took too long")
        time.sleep(0.1)
    return answer


def main() -> None:
    """Start a cluster, serve on it, and add a node."""
    cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")
        server = None
        try:
            cluster.add_node(**SMALL)
            cluster.add_node(**SMALL, labels={"fairlead.io/kind": "slow", "fairlead.io/speed": "0.5"})
            command = [sys.executable, "-m", "fairlead", "serve", str(APP), "--port", "0", "--state", str(state)]
            ray = ["--backend", "ray", "--address", cluster.address, "--agents-listen", "127.0.0.1:0"]
            server = subprocess.Popen([*command, *ray], stdout=subprocess.DEVNULL)
            written = state / "gateway.json"
            wait_for(120, written.exists)
            url = json.loads(written.read_text())["url"]

            def kinds() -> list[str]:
                return sorted(node["kind"] for node in ask(url, "/v1/nodes")["nodes"])

            print("kinds of nodes:", ", ".join(kinds()))
            cluster.add_node(**SMALL)
            wait_for(60, lambda: len(kinds()) == 4)
            print("a node has joined:", ", ".join(kinds()))
        finally:
            if server is not None:
                server.send_signal(signal.SIGTERM)
                server.wait(60)
            cluster.shutdown()


if __name__ == "__main__":
    main()
