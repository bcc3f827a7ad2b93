"""The parent's side of a device: starts its process, watches it, restarts it, and repeats what was under way.

For an event loop; one `Executor` per device. Kernels have no side effects, so a request can be repeated. A process that
hangs is killed, and only the request that hung fails.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import TracebackType

from msgspec.structs import replace

from fairlead.kaas.errors import KINDS, DeviceLostError, DeviceMemoryError, KernelError, TimeLimitError
from fairlead.kaas.graph import graph_json
from fairlead.kaas.request import Answer, Request, Status, inputs_of
from fairlead.kaas.slots import Board, Slot
from fairlead.kaas.wire import (
    Ask,
    Begin,
    Counts,
    Done,
    Drop,
    Evicted,
    Failed,
    Forget,
    Order,
    Ready,
    Refused,
    Replies,
    Reply,
    Report,
    Run,
    frame,
)  # fmt: skip

_WINDOW = 3  # requests in the process: one runs, one loads, one is in the channel
_READ = 1 << 16  # bytes that are received at once
_MOST_GRAPHS = 1024  # that a process knows
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_STARTS = 5  # failed starts in a row after which waiting requests fail


@dataclass(frozen=True, kw_only=True)
class ExecutorSettings:
    """How a device is used.

    Args:
        device: `numpy`, `opencl:0`, `cuda:1`.
        memory_bytes: Cap on device memory; 0 takes what the driver reports.
        values: Folder of `Values`.
        cache: Folder for compiled code.
        load_limit_s: How long compiling and loading a request may take.
        start_limit_s: How long the process may take to open its device.
        attempts: How often a request is tried when the process dies under it.
        environment: Variables for the process, beside its parent's.
    """

    device: str
    values: Path
    cache: Path
    memory_bytes: int = 0
    load_limit_s: float = 60.0
    start_limit_s: float = 30.0
    attempts: int = 3
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class _Pending:
    """A request that is not answered yet."""

    id: int
    request: Request
    payload: list[memoryview] | None  # None for one that is only loaded
    answered: Callable[[Answer | KernelError], None] | None  # None once it was told, or does not want to be
    asked_at: float
    deaths: int = 0
    slot: int = 0  # of the process that it was sent to


class Executor:
    """Runs requests on one device, in the order in which they come. Use it as a context, or `start` and `close` it.

    Args:
        settings: How the device is used.
        evicted: Told what is not on the device any more, as tenants and keys; None for everything, as when its process
            has ended.
    """

    def __init__(
        self,
        settings: ExecutorSettings,
        evicted: Callable[[Sequence[tuple[str, str]] | None], None] = lambda buffers: None,
    ) -> None:
        self.settings = settings
        self._evicted = evicted
        self.restarts = 0
        self.ready: Ready | None = None  # what the device is; None while it is not open
        self._process: subprocess.Popen[bytes] | None = None
        self._link: _Link | None = None
        self._waiting: deque[_Pending] = deque()
        self._sent: OrderedDict[int, _Pending] = OrderedDict()
        self._suspects: set[int] = set()  # under way when a process died: sent one at a time
        self._asked: dict[int, asyncio.Future[Report]] = {}
        self._known: OrderedDict[str, None] = OrderedDict()
        self._shared: _Shared | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self._oldest_since = 0.0  # when what is the oldest of those in the process became that
        self._starting: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._next = 0
        self._is_closed = False
        self._counts = Counts()
        self._device_s: dict[str, float] = {}
        self._answered = 0

    async def __aenter__(self) -> Executor:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the device. DeviceLostError if that fails: a device that never worked is not tried again."""
        try:
            await self._open()
        except BaseException:
            self._is_closed = True
            self._kill()
            raise

    async def close(self) -> None:
        """End the process. Requests that are not answered fail."""
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
            with suppress(asyncio.CancelledError):
                await self._starting
        self._kill()
        self._fail_all(DeviceLostError("The executor was closed."))

    async def run(self, request: Request) -> Answer:
        """The answer to a request; a KernelError if it fails."""
        return await self._future(request, inputs_of(request))

    async def load(self, request: Request) -> Answer:
        """Compile the graph of a request and load its constants, for when it comes; its inputs are not looked at.

        The answer has no outputs. Whether the constants are still there when the request comes depends on what else
        needs the room.
        """
        return await self._future(request, None)

    def submit(self, request: Request, answered: Callable[[Answer | KernelError], None]) -> Callable[[], None]:
        """Run a request, and call `answered` as soon as its answer is there; calls off the request if it is called.

        `answered` must not raise. RequestError if the request is wrong, DeviceLostError if the executor is closed.
        """
        pending = self._put(request, inputs_of(request), answered)
        return lambda: self._give_up(pending)

    async def _future(self, request: Request, payload: list[memoryview] | None) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(outcome: Answer | KernelError) -> None:
            if future.done():
                return
            if isinstance(outcome, KernelError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        pending = self._put(request, payload, answered)
        try:
            return await future
        except asyncio.CancelledError:
            self._give_up(pending)
            raise

    def _put(
        self, request: Request, payload: list[memoryview] | None, answered: Callable[[Answer | KernelError], None]
    ) -> _Pending:
        if self._is_closed:
            raise DeviceLostError("The executor is closed.")
        self._next += 1
        pending = _Pending(self._next, request, payload, answered, perf_counter())
        self._waiting.append(pending)
        self._send_waiting()
        return pending

    def _give_up(self, pending: _Pending) -> None:
        """Tell the caller of a request nothing any more. The answer to what was sent already is dropped."""
        pending.answered = None
        with suppress(ValueError):
            self._waiting.remove(pending)
            self._suspects.discard(pending.id)

    async def status(self) -> Status:
        """What lies on the device, and what was done since the start, restarts included."""
        self._next += 1
        return self._status(await self._ask(Ask(self._next)))

    async def forget(self, tenant: str) -> None:
        """Free what a tenant has on the device."""
        self._next += 1
        await self._ask(Forget(self._next, tenant))

    @property
    def process_id(self) -> int | None:
        """Of the process that drives the device; None while there is none."""
        return None if self._process is None else self._process.pid

    def _status(self, report: Report) -> Status:
        return Status(
            device=self.settings.device,
            name="" if self.ready is None else self.ready.name,
            memory_bytes=report.capacity,
            used_bytes=report.used,
            pinned_bytes=report.pinned,
            peak_bytes=report.peak,
            residents=report.residents,
            counts=self._counts,
            device_s=dict(self._device_s),
            answered=self._answered,
            waiting=len(self._waiting) + len(self._sent),
            restarts=self.restarts,
        )

    async def _ask(self, order: Ask | Forget) -> Report:
        if self._link is None or self.ready is None:
            raise DeviceLostError("The device's process is being restarted.")
        future: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        self._asked[order.id] = future
        self._link.send(order)
        return await future

    async def _open(self) -> None:
        """Start a process and wait until it has opened its device."""
        settings, loop = self.settings, asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        shared = _Shared()
        files = [theirs.fileno(), *shared.descriptors]
        try:
            command = [sys.executable, "-m", "fairlead.kaas.worker", str(files[0]), str(os.getpid())]
            self._process = subprocess.Popen(
                [*command, *map(str, files[1:])],
                pass_fds=files,
                env={**os.environ, **settings.environment},
                stdin=subprocess.DEVNULL,
            )
        except BaseException:
            ours.close()
            shared.close()
            raise
        finally:
            theirs.close()
        opened = self._opened = loop.create_future()
        self._shared = shared
        link = self._link = _Link(self, ours)
        link.send(Begin(settings.device, settings.memory_bytes, str(settings.values), str(settings.cache)))
        try:
            async with asyncio.timeout(settings.start_limit_s):
                await opened
        except TimeoutError:
            self._kill()
            raise DeviceLostError(f"{settings.device} did not open within {settings.start_limit_s:g} s.") from None
        self._send_waiting()

    async def _restart(self) -> None:
        """Open the device again and again, until it works."""
        pause_s, failed = 0.0, 0
        while not self._is_closed:
            await asyncio.sleep(pause_s)
            try:
                await self._open()
            except (DeviceLostError, OSError) as error:
                self._kill()
                failed += 1
                pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
                if failed >= _STARTS:
                    self._fail_all(DeviceLostError(f"{self.settings.device} cannot be opened again: {error}"))
            else:
                return

    def _send_waiting(self) -> None:
        """Send what the process can take."""
        link, shared = self._link, self._shared
        if link is None or shared is None or self.ready is None:
            return
        while self._waiting and len(self._sent) < (1 if self._suspects else _WINDOW):
            pending = self._waiting.popleft()
            if pending.answered is None:
                self._suspects.discard(pending.id)
                continue
            request = pending.request
            graph = request.graph
            is_known = graph.digest in self._known
            self._known[graph.digest] = None
            self._known.move_to_end(graph.digest)
            if len(self._known) > _MOST_GRAPHS:
                link.send(Drop(self._known.popitem(last=False)[0]))
            self._sent[pending.id] = pending
            if len(self._sent) == 1:
                self._watch()
            described = b"" if is_known else graph_json(graph)
            is_load = pending.payload is None
            sent = 0 if is_load else graph.sent_bytes
            pending.slot = shared.free.pop()
            size = max(len(described) + sent, 0 if is_load else graph.returned_bytes)
            try:
                data = shared.slots[pending.slot].grow(size)
            except OSError as error:
                del self._sent[pending.id]
                shared.free.append(pending.slot)
                self._tell(pending, DeviceMemoryError(f"The host has no {size} bytes left: {error}"))
                continue
            start = 0
            for part in (described, *(pending.payload or ())):
                data[start : start + len(part)] = part
                start += len(part)
            keys = dict(request.keys)
            link.send(Run(pending.id, request.tenant, graph.digest, keys, pending.slot, len(described), sent, is_load))

    def _watch(self) -> None:
        """See to it that the clock rings in time for the oldest request in the process, which it was not before."""
        if self._sent:
            limit_s = min(next(iter(self._sent.values())).request.limit_s, self.settings.load_limit_s)
            self._oldest_since = perf_counter()
            self._ring(self._oldest_since + limit_s)

    def _ring(self, at: float) -> None:
        """Have `_look` called at this instant; it may come earlier."""
        if self._clock is None or at < self._rings_at:
            if self._clock is not None:
                self._clock.cancel()
            self._rings_at = at
            self._clock = asyncio.get_running_loop().call_later(max(0.0, at - perf_counter()), self._look)

    def _look(self) -> None:
        """End a process whose request takes too long."""
        self._clock = None
        if not self._sent or self._shared is None:
            return
        identity, since = self._shared.board.read()
        running = self._sent.get(identity)
        pending = running or next(iter(self._sent.values()))
        own_s = pending.request.limit_s
        limit_s = self.settings.load_limit_s if running is None else own_s
        now = perf_counter()
        left_s = (self._oldest_since if running is None else since) + limit_s - now
        if left_s <= 0:
            self._too_late(pending, "load and compile" if running is None else "run", limit_s)
        else:
            self._ring(now + min(left_s, own_s))  # it may begin to run now

    def _too_late(self, pending: _Pending, what: str, limit_s: float) -> None:
        del self._sent[pending.id]
        self._suspects.discard(pending.id)
        self.lost()
        name = pending.request.graph.name
        self._tell(pending, TimeLimitError(f"{name} did not {what} within {limit_s:g} s; the executor was restarted."))

    def received(self, reply: Reply) -> None:
        """Take a message of the process."""
        if isinstance(reply, Done | Refused):
            pending = self._sent.pop(reply.id, None)
            if pending is not None:
                self._suspects.discard(pending.id)
                outcome = self._outcome(pending, reply)
                if self._shared is not None:
                    self._shared.settle(pending.slot)
                self._watch()
                self._send_waiting()
                self._tell(pending, outcome)
        elif isinstance(reply, Evicted):
            self._evicted(reply.buffers)
        elif isinstance(reply, Report):
            future = self._asked.pop(reply.id, None)
            if future is not None and not future.done():
                future.set_result(reply)
        elif isinstance(reply, Ready):
            self.ready = reply
            if self._opened is not None and not self._opened.done():
                self._opened.set_result(None)
        elif isinstance(reply, Failed) and self._opened is not None and not self._opened.done():
            self._opened.set_exception(DeviceLostError(reply.error))

    def _outcome(self, pending: _Pending, reply: Done | Refused) -> Answer | KernelError:
        """What the process says of a request, with the outputs copied out of its slot."""
        if isinstance(reply, Refused):
            return KINDS.get(reply.kind, KernelError)(reply.message)
        tenant, graph = pending.request.tenant, pending.request.graph
        self._device_s[tenant] = self._device_s.get(tenant, 0.0) + reply.timings.run_s
        self._counts = self._counts.plus(reply.counts)
        self._answered += pending.payload is not None
        outputs = bytearray()
        if pending.payload is not None and pending.answered is not None and self._shared is not None:
            outputs += self._shared.slots[pending.slot].grow(graph.returned_bytes)
        wait_s, reply_s = reply.began - pending.asked_at, perf_counter() - reply.ended
        return Answer(graph, outputs, replace(reply.timings, wait_s=wait_s, reply_s=reply_s), reply.counts)

    def _tell(self, pending: _Pending, outcome: Answer | KernelError) -> None:
        answered, pending.answered = pending.answered, None
        if answered is not None:
            answered(outcome)

    def lost(self, link: _Link | None = None) -> None:
        """The process is gone, or is to go: start another one, and repeat what was under way."""
        if link is not None and link is not self._link:
            return  # an earlier one
        was_open = self.ready is not None
        self._kill()
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(DeviceLostError(f"The process of {self.settings.device} ended at its start."))
        for future in self._asked.values():
            if not future.done():
                future.set_exception(DeviceLostError("The device's process ended."))
        self._asked.clear()
        again, died = [], []
        for pending in self._sent.values():
            pending.deaths += 1
            if pending.deaths < self.settings.attempts:
                again.append(pending)
                self._suspects.add(pending.id)
            else:
                self._suspects.discard(pending.id)
                died.append(pending)
        self._sent.clear()
        self._waiting.extendleft(reversed(again))
        if was_open and not self._is_closed:
            self.restarts += 1
            self._evicted(None)
            self._starting = asyncio.get_running_loop().create_task(self._restart())
        for pending in died:
            what = f"The process of {self.settings.device} died {pending.deaths} times"
            self._tell(pending, DeviceLostError(f"{what} while {pending.request.graph.name} was under way."))

    def _kill(self) -> None:
        """End the process and the channel."""
        self.ready = None
        self._known.clear()
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        link, self._link = self._link, None
        if link is not None:
            link.close()
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            asyncio.get_running_loop().run_in_executor(None, process.wait)

    def _fail_all(self, error: KernelError) -> None:
        failed = (*self._sent.values(), *self._waiting)
        self._sent.clear()
        self._waiting.clear()
        self._suspects.clear()
        for pending in failed:
            self._tell(pending, error)


class _Shared:
    """What is shared with one process: its board, and a slot for each request that it can have."""

    def __init__(self) -> None:
        self.board = Board()
        self.slots = [Slot() for _ in range(_WINDOW)]
        self.free = list(range(_WINDOW))

    @property
    def descriptors(self) -> list[int]:
        return [self.board.descriptor, *(slot.descriptor for slot in self.slots)]

    def settle(self, slot: int) -> None:
        """A slot is free again."""
        self.slots[slot].settle()
        self.free.append(slot)

    def close(self) -> None:
        self.board.close()
        for slot in self.slots:
            slot.close()


class _Link:
    """The channel, as the event loop sees it. What is sent goes at once, not when the loop's turn is over."""

    def __init__(self, executor: Executor, connection: socket.socket) -> None:
        self._executor = executor
        self._socket = connection
        self._replies = Replies()
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        connection.setblocking(False)
        self._loop.add_reader(connection, self._readable)

    def send(self, order: Order) -> None:
        """Pass a message on."""
        self._unsent += frame(order)
        if not self._flush():
            self._loop.add_writer(self._socket, self._writable)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _flush(self) -> bool:
        """Send what the socket takes; whether that was all."""
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return False
        except OSError:  # it has ended, which is read too
            self._unsent.clear()
        return not self._unsent

    def _writable(self) -> None:
        if self._flush() and not self._is_closed:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            replies = self._replies.feed(data)
        except ValueError as error:
            print(f"{self._executor.settings.device}: {error}", file=sys.stderr)  # noqa: T201 - the parent's log
            data = b""
            replies = []
        for reply in replies:
            if self._is_closed:
                return
            self._executor.received(reply)
        if not data:
            self._executor.lost(self)
