"""Networks that use as many threads as their instance has vCPUs at the moment."""

import os
from functools import cache
from hashlib import sha256
from math import ceil
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).resolve().parent


class Network:
    """One network, with a session for every number of threads that an instance of this app may get on this machine."""

    def __init__(self, name: str, threads: tuple[int, ...]) -> None:
        data = checked(f"{name}.onnx")
        cpus = os.cpu_count() or 1
        self._sessions = {count: _session(data, count) for count in threads if count <= cpus}

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """What the network gives for a batch, computed on the vCPUs that this instance has now."""
        threads = max((count for count in self._sessions if count <= ceil(cores() - 0.01)), default=1)
        return self._sessions[threads].run(None, {"input": batch})[0]


def checked(name: str) -> bytes:
    """A file of this folder; ValueError if it is not the one that `SHA256SUMS` lists."""
    data = (HERE / name).read_bytes()
    if f"{sha256(data).hexdigest()}  {name}" not in (HERE / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        raise ValueError(f"{HERE / name} differs from SHA256SUMS. Get it back with: git checkout {name}")
    return data


def cores() -> float:
    """How many cores this instance may use now. An instance is resized while it runs, so this is read for every batch.

    It is the CPU quota of the instance's control group; where there are no groups, the number of CPUs it is pinned to.
    """
    pinned = float(len(os.sched_getaffinity(0)))
    group = _group()
    try:
        if group is None:
            return pinned
        if (group / "cpu.max").exists():  # version 2: "max 100000" or "20000 10000"
            quota, period = (group / "cpu.max").read_text().split()
        else:  # version 1: -1 is no quota
            quota = (group / "cpu.cfs_quota_us").read_text().strip().replace("-1", "max")
            period = (group / "cpu.cfs_period_us").read_text()
    except OSError:
        return pinned
    return pinned if quota == "max" else min(pinned, int(quota) / int(period))


@cache
def _group() -> Path | None:
    """The control group that limits the CPU time of this process; an instance is in its own before its code is run."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "cpu" in controllers.split(","):
            for mount in (controllers or "unified", ""):
                group = Path("/sys/fs/cgroup", mount, path.lstrip("/"))
                if (group / "cpu.max").exists() or (group / "cpu.cfs_quota_us").exists():
                    return group
    return None


def _session(data: bytes, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting would use up the CPU quota
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
