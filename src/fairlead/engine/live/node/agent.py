"""The node agent: runs instances as processes of this machine, each with its limits, on nodes that are parts of it.

It may sit in the gateway's process, in another one, or on another machine; how instances are spoken to is not its
business. An instance is spawned, put under its limits, and only then told what to load. Its end is seen by the
kernel's own handle of the process, so a death is reported at once, whatever the cause.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

import msgspec

from fairlead.app.environments import known_python
from fairlead.app.secrets import public_environment
from fairlead.engine.live.contracts import Exit, InstanceSpec
from fairlead.engine.live.gpus import MachineGpus, NoShareError
from fairlead.engine.live.limits import Limiter, Usage, make_limiter
from fairlead.engine.live.logs.folder import LogFolder
from fairlead.engine.live.logs.instances import InstanceLogs
from fairlead.engine.live.node.environments import Environments
from fairlead.engine.live.node.process import InstanceProcess
from fairlead.model import Node
from fairlead.monitor import Place


class NodeAgent:
    """Runs the instances of this machine's nodes.

    Args:
        ended: Told once of every instance that was started, when its process and all that it left are gone.
        limits: A kind of limiter; None for the best that works here.
        is_reserved: Whether the nodes go before all else on this machine.
        gpus: Of which instances get shares; None where there are none to give.
        changed: Told of a node that has other devices than before.
        logs: Where what instances write is kept; None to keep only the last words of those that end.
    """

    def __init__(
        self,
        ended: Callable[[InstanceSpec, Exit], None],
        *,
        limits: str | None = None,
        is_reserved: bool = False,
        gpus: MachineGpus | None = None,
        changed: Callable[[Node], None] = lambda node: None,
        logs: LogFolder | None = None,
    ) -> None:
        self._logs = None if logs is None else InstanceLogs(logs)
        self._gpus = gpus
        self._changed = changed
        if gpus is not None:
            gpus.open(self._lose, self._offer)
        self._ended = ended
        self._limits = limits
        self._is_reserved = is_reserved
        self._numbers = count()
        self._environments = Environments()
        self._nodes: dict[str, tuple[Node, Limiter]] = {}
        self._with_gpus: dict[str, Node] = {}  # as they were added, with their devices
        self._limiters: list[Limiter] = []
        self._processes: dict[str, InstanceProcess] = {}

    def add(self, nodes: Sequence[Node], cpus: Mapping[str, tuple[int, ...]] = {}) -> None:
        """Make nodes; those that are there already, as they are, stay.

        `cpus` has those of nodes that are bound to some. Raises `FairleadError` where limits of this kind do not work.
        """
        bare = [msgspec.structs.replace(node, devices=()) for node in nodes]  # devices are not limited here
        new = [node for node in bare if node.name not in self._nodes or self._nodes[node.name][0] != node]
        self._with_gpus |= {node.name: node for node in nodes if node.devices}
        if new:
            limiter = make_limiter(self._limits)
            limiter.open(new, cpus=cpus, is_reserved=self._is_reserved)
            self._limiters.append(limiter)
            for node in new:
                self._nodes[node.name] = node, limiter

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that there are."""
        return tuple(node for node, _ in self._nodes.values())

    @property
    def kind(self) -> str:
        """The kind of limiter of its nodes."""
        return self._limiters[-1].kind

    def places(self) -> list[Place]:
        """Where the nodes are."""
        return [limiter.place(name) for name, (_, limiter) in self._nodes.items()]

    def __contains__(self, node: str) -> bool:
        """Whether there is a node of this name."""
        return node in self._nodes

    def has(self, key: str) -> bool:
        """Whether an instance has been started and has not ended."""
        return key in self._processes

    def start(self, spec: InstanceSpec, module: str, connection: socket.socket) -> None:
        """Start an instance under its limits: Python with this module, which gets the connection and our process id.

        The connection is closed here. Where the app has requirements, their environment is built first, if it is not
        there yet.
        """
        process = InstanceProcess(spec, next(self._numbers), self._nodes[spec.node][1], self._gone, self._logs)
        self._processes[spec.key] = process
        environment = public_environment()
        try:
            if self._gpus is not None:
                environment = self._gpus.environment(environment, spec.key, spec.device, spec.vgpus)
            elif spec.vgpus:
                raise NoShareError("this machine offers no GPU")
        except NoShareError as error:
            connection.close()
            process.refuse(str(error))
            return
        spawn = partial(_spawn, process, module, connection, environment)
        python = known_python(spec.code.requirements)
        if python is not None:
            spawn(python)
        else:
            self._environments.want(spec.code.requirements, spawn)

    def stop(self, key: str, grace_s: float, error: str | None = None) -> None:
        """End an instance by force, after a grace; `error` says why where it is not its own fault."""
        process = self._processes.get(key)
        if process is not None:
            process.kill_after(grace_s, error)

    def resize(self, key: str, vcpus: float) -> None:
        """Change what an instance may use of the CPU."""
        process = self._processes.get(key)
        if process is not None:
            process.limiter.resize(process.number, vcpus)

    def usage(self, key: str) -> Usage:
        """What an instance has used so far."""
        process = self._processes.get(key)
        if process is None:
            return Usage()
        found = process.limiter.usage(process.number)
        use = None if self._gpus is None else self._gpus.use(process.pid)
        if use is None:
            return found
        return msgspec.structs.replace(found, gpu_bytes=use.memory_bytes, gpu_share=use.utilisation)

    def cpu_s(self, key: str) -> float | None:
        """The CPU time that an instance has used so far."""
        process = self._processes.get(key)
        return None if process is None else process.limiter.cpu_s(process.number)

    def pid(self, key: str) -> int:
        """The process of an instance; -1 if there is none."""
        process = self._processes.get(key)
        return -1 if process is None else process.pid

    async def close(self) -> None:
        """End every instance, and free the nodes."""
        processes = list(self._processes.values())
        for process in processes:
            process.kill()
        for process in processes:
            await process.gone()
        if self._logs is not None:
            self._logs.close()
        for limiter in self._limiters:
            limiter.close()
        self._limiters.clear()
        self._nodes.clear()
        if self._gpus is not None:
            self._gpus.close()

    def _lose(self, keys: Sequence[str], error: str) -> None:
        """A GPU is lost: what ran there ends."""
        for key in keys:
            self.stop(key, 0, error)

    def _offer(self) -> None:
        """GPUs were lost, or are back: the nodes that have them list them so."""
        assert self._gpus is not None
        devices = self._gpus.devices
        for name, node in self._with_gpus.items():
            others = node.devices[len(devices) :]  # those for kernels come after the GPUs
            self._with_gpus[name] = now = msgspec.structs.replace(node, devices=(*devices, *others))
            self._changed(now)

    def _gone(self, process: InstanceProcess, how: Exit) -> None:
        del self._processes[process.spec.key]
        if self._gpus is not None:
            self._gpus.free(process.spec.key)
        self._ended(process.spec, how)


def _spawn(
    process: InstanceProcess,
    module: str,
    connection: socket.socket,
    environment: Mapping[str, str],
    python: str,
    error: str = "",
) -> None:
    with connection:
        if process.is_over:  # it was stopped while its environment was built
            return
        if error:
            process.refuse(error)
            return
        descriptor = connection.fileno()
        process.spawn((python, "-m", module, str(descriptor), str(os.getpid())), (descriptor,), environment)
