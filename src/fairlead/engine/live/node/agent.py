"""The node agent: runs instances as processes of this machine, each with its limits, on nodes that are parts of it.

It may sit in the gateway's process, in another one, or on another machine; how instances are spoken to is not its
business. An instance is spawned, put under its limits, and only then told what to load. Its end is seen by the
kernel's own handle of the process, so a death is reported at once, whatever the cause.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count

import msgspec

from fairlead.engine.live.contracts import Exit, InstanceSpec
from fairlead.engine.live.limits import Limiter, Usage, make_limiter
from fairlead.engine.live.node.process import InstanceProcess
from fairlead.model import Node
from fairlead.monitor import Place


class NodeAgent:
    """Runs the instances of this machine's nodes.

    Args:
        ended: Told once of every instance that was started, when its process and all that it left are gone.
        limits: A kind of limiter; None for the best that works here.
        is_reserved: Whether the nodes go before all else on this machine.
    """

    def __init__(
        self,
        ended: Callable[[InstanceSpec, Exit], None],
        *,
        limits: str | None = None,
        is_reserved: bool = False,
    ) -> None:
        self._ended = ended
        self._limits = limits
        self._is_reserved = is_reserved
        self._numbers = count()
        self._nodes: dict[str, tuple[Node, Limiter]] = {}
        self._limiters: list[Limiter] = []
        self._processes: dict[str, InstanceProcess] = {}

    def add(self, nodes: Sequence[Node], cpus: Mapping[str, tuple[int, ...]] = {}) -> None:
        """Make nodes; those that are there already, as they are, stay.

        `cpus` has those of nodes that are bound to some. Raises `FairleadError` where limits of this kind do not work.
        """
        bare = [msgspec.structs.replace(node, devices=()) for node in nodes]  # devices are not limited here
        new = [node for node in bare if node.name not in self._nodes or self._nodes[node.name][0] != node]
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

    def start(self, spec: InstanceSpec, command: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        """Start an instance with this command, under its limits."""
        process = InstanceProcess(spec, next(self._numbers), self._nodes[spec.node][1], self._gone)
        self._processes[spec.key] = process
        process.spawn(command, descriptors)

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
        return Usage() if process is None else process.limiter.usage(process.number)

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
        for limiter in self._limiters:
            limiter.close()
        self._limiters.clear()
        self._nodes.clear()

    def _gone(self, process: InstanceProcess, how: Exit) -> None:
        del self._processes[process.spec.key]
        self._ended(process.spec, how)
