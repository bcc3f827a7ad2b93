"""A Ray cluster whose autoscaler starts and ends raylets of this machine: Ray's own fake provider of machines."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from ray_cluster import ENVIRONMENT
from serving import descendants, is_alive, kill, wait_for


@contextmanager
def autoscaled(folder: Path, most: int = 2, idle_s: float = 6.0):
    """The address of a cluster: a head with one CPU, and up to `most` workers with two CPUs each, at first one."""
    from ray.util import get_node_ip_address  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"{get_node_ip_address()}:{port}"
    config = {
        "cluster_name": "fake_multinode",
        "max_workers": most,
        "provider": {
            "type": "fake_multinode",
            "use_node_id_as_ip": True,  # all nodes share this machine's address
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "gcs_address": address,
        },
        "available_node_types": {
            "worker": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 1, "max_workers": most},
            "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
        },
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": idle_s / 60,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }
    file = folder / "autoscaling.json"
    file.write_text(json.dumps(config))
    start = ["start", "--head", "--block", f"--port={port}", "--num-cpus=1", "--object-store-memory=80000000"]
    more = [f"--autoscaling-config={file}", "--include-dashboard=false", "--disable-usage-stats"]
    environment = {**os.environ, **ENVIRONMENT, "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    log = folder / "ray.log"
    with log.open("ab") as out:
        head = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *start, *more],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    pids: list[int] = []
    try:
        wait_for(lambda: "Ray runtime started" in log.read_text() or head.poll() is not None, 60, log.read_text)
        assert head.poll() is None, log.read_text()
        yield address
    finally:
        pids = descendants(head.pid)
        head.send_signal(signal.SIGTERM)
        try:
            head.wait(20)
        except subprocess.TimeoutExpired:
            head.kill()
            head.wait()
        for pid in pids:
            kill(pid)
        wait_for(lambda: not any(map(is_alive, pids)), 30)
