"""The actor of a Ray node: sits in the placement group that reserves the node's share, and keeps an agent alive.

It is detached, so it outlives the driver and the gateway: the next gateway finds the agent and its instances. When the
agent has left, because it was drained or found no gateway for long, the placement group goes, and the actor with it.
"""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from time import monotonic, sleep

import ray
from ray.util import get_current_placement_group, remove_placement_group

_COMMAND = (sys.executable, "-m", "fairlead.engine.live.ray.agent")
_FIRST_DELAY_S, _MOST_DELAY_S = 0.1, 5.0
_STABLE_S = 10.0
_GRACE_S = 5.0


class Keeper:
    """Keeps the agent of a node.

    Args:
        order: The line that the agent is given.
        digest: Names the order: a gateway with another one replaces this actor.
    """

    def __init__(self, order: bytes, digest: str) -> None:
        self._order = order
        self._digest = digest
        self._is_ending = False
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._keep, daemon=True).start()

    def digest(self) -> str:
        """The name of its order."""
        return self._digest

    def pids(self) -> tuple[int, int]:
        """The processes of this actor and of its agent; -1 while there is none."""
        return os.getpid(), -1 if self._process is None else self._process.pid

    def over(self) -> None:
        """Returns when the agent has left for good."""
        self._over.wait()

    def end(self) -> None:
        """End the agent with its instances."""
        self._is_ending = True
        process = self._process
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._over.wait(_GRACE_S)

    def _keep(self) -> None:
        """Start the agent, and again whenever it has died, until it has left."""
        failures = 0
        while not self._is_ending:
            began = monotonic()
            if self._run() == 0:
                break
            failures = 0 if monotonic() - began > _STABLE_S else failures + 1
            sleep(min(_MOST_DELAY_S, _FIRST_DELAY_S * 2 ** min(failures, 10)))
        self._over.set()
        if not self._is_ending:
            sleep(1.0)  # a driver that is there hears of it first
            group = get_current_placement_group()
            if group is not None:
                remove_placement_group(group)

    def _run(self) -> int:
        environment = dict(os.environ)
        environment.pop("OMP_NUM_THREADS", None)  # Ray limits threads to the actor's own CPUs; instances have limits
        self._process = process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, env=environment)
        assert process.stdin is not None
        with suppress(OSError):  # it has died already
            process.stdin.write(self._order)
            process.stdin.flush()
        if self._is_ending:
            process.stdin.close()
        return process.wait()


def keeper_actor() -> "ray.actor.ActorClass":
    """The class as Ray starts it: it answers while it waits."""
    return ray.remote(num_cpus=0, max_concurrency=4, max_restarts=0)(Keeper)
