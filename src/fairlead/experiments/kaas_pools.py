"""Clients that share devices without a gateway: each in a process of its own, or all through one executor per device.

Both run the same graphs on the same devices, one run per device at a time. They differ in what holds device memory.

* `Actors`: a process per client, which opens the device, compiles (from the cache on disk) and loads its constants when
  it starts, and holds its memory until it ends. A device has a number of *places* for such processes. A client without
  one takes the place of the client that has most, after its present job: the rule of the policy `kaas-exclusive-pool`
  (N. Pemberton et al., arXiv 2212.08146).
* `Shared`: Kernel-as-a-Service, an executor per device, whose cap is the device's memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import perf_counter

from fairlead.kaas import Answer, Executor, ExecutorSettings, Request, Values
from fairlead.kaas.graphs import Example

_POLL_S = 0.1  # between two looks at what lies on a device
_LIMIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where clients run: the devices by name, their memory, and folders for values and compiled code."""

    devices: Sequence[str]
    memory_bytes: int
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def executor(self, device: str) -> Executor:
        """A process for a device, not started yet."""
        return Executor(
            ExecutorSettings(
                device=device,
                memory_bytes=self.memory_bytes,
                values=self.folder / "values",
                cache=self.folder / "cache",
                environment=self.environment,
            )
        )

    def keep(self, clients: Mapping[str, Example]) -> None:
        """Put the constants of all clients where executors find them."""
        values = Values(self.folder / "values")
        for client, example in clients.items():
            for key, value in example.values().items():
                values.put(client, key, value)


@dataclass
class Use:
    """What a client had of the devices, in seconds and byte-seconds, and how often it had to start or load."""

    used_s: float = 0.0  # its kernels ran
    loaded_s: float = 0.0  # its constants were loaded, or its process started, and no other could run there
    held_s: float = 0.0  # seconds for which a place on a device was its own
    held_byte_s: float = 0.0  # bytes of device memory, times how long they were taken
    cold: int = 0
    answers: int = 0


def bytes_of(example: Example) -> int:
    """The device memory of one run."""
    return sum(buffer.size for buffer in example.graph.buffers)


@dataclass(eq=False)
class _Actor:
    client: str
    device: int
    since: float
    executor: Executor | None = None
    is_idle: bool = False
    heir: _Waiting | None = None  # who gets its place when its job ends
    expiry: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class _Waiting:
    client: str
    future: asyncio.Future[_Actor]
    has_heirloom: bool = False  # a place is on its way


class Actors:
    """A process per client. Use it as a context.

    Args:
        place: The devices.
        clients: What each client runs.
        places: How many processes a device can have at a time; their memory must fit.
        keep_s: How long a process outlives its last job.
        most: How many processes a client can have.
        is_reserved: Whether every client has its process from the start and for ever (serverful). Then the places must
            suffice for all.
    """

    def __init__(
        self,
        place: Place,
        clients: Mapping[str, Example],
        *,
        places: int,
        keep_s: float = inf,
        most: float = inf,
        is_reserved: bool = False,
    ) -> None:
        self._place, self._clients = place, clients
        self._free = [places] * len(place.devices)
        self._turns = [asyncio.Lock() for _ in place.devices]
        self._keep_s, self._most, self._is_reserved = keep_s, most, is_reserved
        self._actors: list[_Actor] = []
        self._waiting: deque[_Waiting] = deque()
        self._robbed = dict.fromkeys(clients, 0)
        self._robberies = 0
        self._ending: set[asyncio.Task[None]] = set()
        self.uses = {client: Use() for client in clients}

    async def __aenter__(self) -> Actors:
        self._place.keep(self._clients)
        if self._is_reserved:
            for client in self._clients:
                device = max(range(len(self._free)), key=lambda i: self._free[i])
                actor = self._new(client, device)
                await self._start(actor)
                actor.is_idle = True
        return self

    async def __aexit__(self, *_: object) -> None:
        for actor in list(self._actors):
            self._end(actor)
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def run(self, client: str) -> Answer:
        """Ask for one request of a client, and wait for its answer."""
        waiting = _Waiting(client, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._match()
        try:
            actor = await waiting.future
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(waiting)
            raise
        try:
            if actor.executor is None:
                await self._start(actor)
            assert actor.executor is not None
            async with self._turns[actor.device]:
                answer = await actor.executor.run(_request(client, self._clients[client]))
        finally:
            self._give_back(actor)
        use = self.uses[client]
        use.answers += 1
        use.used_s += answer.timings.run_s
        use.loaded_s += answer.timings.load_s + answer.timings.compile_s
        return answer

    async def _start(self, actor: _Actor) -> None:
        began = perf_counter()
        executor = actor.executor = self._place.executor(self._place.devices[actor.device])
        await executor.start()
        use = self.uses[actor.client]
        use.loaded_s += perf_counter() - began
        use.cold += 1

    def _new(self, client: str, device: int) -> _Actor:
        actor = _Actor(client, device, perf_counter())
        self._free[device] -= 1
        self._actors.append(actor)
        return actor

    def _end(self, actor: _Actor) -> None:
        """Kill a process and free its place."""
        self._actors.remove(actor)
        self._free[actor.device] += 1
        held_s = perf_counter() - actor.since
        use = self.uses[actor.client]
        use.held_s += held_s
        use.held_byte_s += held_s * bytes_of(self._clients[actor.client])
        if actor.expiry is not None:
            actor.expiry.cancel()
        if actor.executor is not None:
            task = asyncio.get_running_loop().create_task(actor.executor.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _match(self) -> None:
        """Give those that wait a process or a place, in their order."""
        for waiting in list(self._waiting):
            actor = self._idle(waiting.client)
            may_grow = not self._is_reserved and self._count(waiting.client) < self._most
            if actor is None and may_grow:
                actor = self._spawned(waiting.client)
                if actor is None and not waiting.has_heirloom:
                    actor = self._taken(waiting)
            if actor is not None:
                self._hand_over(actor, waiting)

    def _hand_over(self, actor: _Actor, waiting: _Waiting) -> None:
        actor.is_idle = False
        if actor.expiry is not None:
            actor.expiry.cancel()
            actor.expiry = None
        self._waiting.remove(waiting)
        for other in self._actors:
            if other.heir is waiting:
                other.heir = None
        waiting.future.set_result(actor)

    def _count(self, client: str) -> int:
        return sum(one.client == client for one in self._actors)

    def _idle(self, client: str) -> _Actor | None:
        return next((one for one in self._actors if one.client == client and one.is_idle), None)

    def _spawned(self, client: str) -> _Actor | None:
        if not any(self._free):
            return None
        return self._new(client, max(range(len(self._free)), key=lambda i: self._free[i]))

    def _taken(self, waiting: _Waiting) -> _Actor | None:
        """The place of the client that has most processes: now if one is idle, else after its job."""
        own = self._count(waiting.client)
        able = [one for one in self._actors if one.heir is None and one.client != waiting.client]
        if not able:
            return None
        count = {one.client: self._count(one.client) for one in able}
        victim = min(count, key=lambda client: (-count[client], self._robbed[client]))
        if own and own + 1 >= count[victim]:
            return None
        self._robberies += 1
        self._robbed[victim] = self._robberies
        actor = min((one for one in able if one.client == victim), key=lambda one: not one.is_idle)
        if not actor.is_idle:
            actor.heir, waiting.has_heirloom = waiting, True
            return None
        self._end(actor)
        return self._new(waiting.client, actor.device)

    def _give_back(self, actor: _Actor) -> None:
        if actor.heir is not None:
            self._end(actor)
            if not actor.heir.future.done():
                self._hand_over(self._new(actor.heir.client, actor.device), actor.heir)
        else:
            actor.is_idle = True
            if self._keep_s < inf:
                actor.expiry = asyncio.get_running_loop().call_later(self._keep_s, self._expire, actor)
        self._match()

    def _expire(self, actor: _Actor) -> None:
        if actor.is_idle and actor in self._actors:
            self._end(actor)
            self._match()


class Shared:
    """One executor per device for all clients, first in, first out; where a client ran last if that is free."""

    def __init__(self, place: Place, clients: Mapping[str, Example]) -> None:
        self._place, self._clients = place, clients
        self._executors: list[Executor] = []
        self._busy: set[int] = set()
        self._last: dict[str, int] = {}  # the device on which each client ran last
        self._waiting: deque[tuple[str, asyncio.Future[int]]] = deque()
        self._watching: asyncio.Task[None] | None = None
        self.uses = {client: Use() for client in clients}
        self.evictions = 0

    async def __aenter__(self) -> Shared:
        self._place.keep(self._clients)
        self._executors = [self._place.executor(device) for device in self._place.devices]
        for executor in self._executors:
            await executor.start()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        for executor in self._executors:
            await executor.close()

    async def run(self, client: str) -> Answer:
        """Ask for one request of a client, and wait for its answer."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((client, future))
        self._match()
        device = await future
        try:
            answer = await self._executors[device].run(_request(client, self._clients[client]))
        finally:
            self._busy.discard(device)
            self._match()
        use = self.uses[client]
        use.answers += 1
        use.used_s += answer.timings.run_s
        use.loaded_s += answer.timings.load_s + answer.timings.compile_s
        use.held_s += answer.timings.run_s + answer.timings.load_s + answer.timings.compile_s
        use.cold += answer.is_cold
        self.evictions += answer.counts.evictions
        return answer

    def _match(self) -> None:
        while self._waiting and len(self._busy) < len(self._executors):
            client, future = self._waiting.popleft()
            if future.done():
                continue
            free = [i for i in range(len(self._executors)) if i not in self._busy]
            last = self._last.get(client)
            device = self._last[client] = last if last in free else free[0]
            self._busy.add(device)
            future.set_result(device)

    async def _watch(self) -> None:
        """Add up, tenant by tenant, the memory that lies on the devices."""
        before = perf_counter()
        while True:
            await asyncio.sleep(_POLL_S)
            now = perf_counter()
            for executor in self._executors:
                for resident in (await executor.status()).residents:
                    self.uses[resident.tenant].held_byte_s += resident.size * (now - before)
            before = now


def _request(client: str, example: Example) -> Request:
    return Request(tenant=client, graph=example.graph, inputs=example.inputs, limit_s=_LIMIT_S)
