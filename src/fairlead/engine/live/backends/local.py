"""Instances as processes of this machine, each with its limits, on nodes that are parts of the machine.

The reference back end. An instance is spawned, put under its limits, and only then told what to load. Its end is seen
by the kernel's own handle of the process, so a death is reported at once, whatever the cause.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from fairlead.app.secrets import public_environment
from fairlead.engine.live.backends.base import Reports
from fairlead.engine.live.limits import Limiter, Usage
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import MOST_ITEMS, Result, Value
from fairlead.engine.live.wire import Batch, Begin, Done, Failed, Frames, Ready, frame, report
from fairlead.model import Cluster, Configuration
from fairlead.monitor import Place

Log = Callable[[str], None]

_MOST_OUTPUT = 8192  # bytes of an instance's last output that are kept for messages
_FIRST_DELAY_S, _MOST_DELAY_S = 0.1, 10.0  # between starts of a function that keeps failing to start
_GRACE_S = 2.0  # for an idle instance to end by itself
_LAST_WORDS_S = 0.002  # between the end of a process and its report: what it said last comes first


class LocalBackend:
    """Runs the functions of one app file as processes.

    Args:
        app: The app file.
        cluster: The nodes to be; the limiter makes them.
        limiter: Puts processes under their limits.
        store: Shared memory for large values.
        log: Gets a line for everything worth knowing, such as the last words of an instance that died.
        cpus: Those of nodes that are bound to some.
        is_reserved: Whether the nodes go before all else on this machine.
        max_items: How many items an output may give to a map stage.
    """

    def __init__(
        self,
        app: str,
        cluster: Cluster,
        limiter: Limiter,
        store: Store,
        log: Log,
        *,
        cpus: Mapping[str, tuple[int, ...]] = {},
        is_reserved: bool = False,
        max_items: int = MOST_ITEMS,
    ) -> None:
        self._app = app
        self._max_items = max_items
        self._cluster = cluster
        self._cpus = cpus
        self._is_reserved = is_reserved
        self._limiter = limiter
        self._log = log
        self._instances: dict[int, _Process] = {}
        self._failures: dict[str, int] = {}  # by function: starts that failed in a row
        self._processes: set[_Process] = set()  # those that run, also what was told to end
        self._leaving: set[_Process] = set()  # those that have ended, and are being cleared up
        self._spent_s: dict[str, float] = {}  # by function: CPU time of those that have ended
        self._store = store

    def capacity(self) -> Cluster:
        """The nodes there are."""
        return self._cluster

    async def open(self, reports: Reports) -> None:
        """Make the nodes."""
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self._limiter.open(self._cluster.nodes, cpus=self._cpus, is_reserved=self._is_reserved)

    def places(self) -> Sequence[Place]:
        """Its nodes are all on this machine."""
        return [self._limiter.place(node.name) for node in self._cluster.nodes]

    def start(self, instance: int, function: str, configuration: Configuration, node: str) -> None:
        """Start an instance; where starts of this function have failed, a little later each time."""
        process = _Process(self, instance, function, configuration, node)
        self._instances[instance] = process
        failures = self._failures.get(function, 0)
        delay_s = min(_MOST_DELAY_S, _FIRST_DELAY_S * 2 ** (failures - 1)) if failures else 0.0
        process.starting = self._loop.call_later(delay_s, process.spawn)

    def run(self, batch: int, instance: int, stages: Sequence[str], inputs: Sequence[Value]) -> None:
        """Pass a batch on."""
        try:
            data = frame(Batch(batch, stages, inputs))
        except ValueError as error:  # too large
            failed = [Result(False, error=str(error))] * len(inputs)
            self._loop.call_soon(self._reports.finished, batch, failed, 0.0)
        else:
            self._instances[instance].send(data)

    def resize(self, instance: int, vcpus: float) -> None:
        """Change what an instance may use of the CPU."""
        self._limiter.resize(instance, vcpus)

    def cpu_s(self) -> Mapping[str, float]:
        """CPU time by function: of what has ended, and of what runs."""
        found = dict(self._spent_s)
        for process in self._processes:
            found[process.function] = found.get(process.function, 0.0) + (self.usage(process.instance).cpu_s or 0.0)
        return found

    def stop(self, instance: int, now: bool) -> None:
        """End an instance, whose end is then no news."""
        process = self._instances.pop(instance, None)
        if process is not None:
            process.end(now)

    def put(self, data: bytes) -> Value:
        """Keep a large value in shared memory."""
        value = self._store.put(data)
        self._store.hold(value)
        return value

    def release(self, value: Value) -> None:
        """Free what a value keeps in shared memory."""
        self._store.drop(value)

    def started(self, instance: int) -> tuple[float, float]:
        """How long an instance that is ready took to load its code, and for its `setup`."""
        return self._instances[instance].started

    def usage(self, instance: int) -> Usage:
        """What an instance has used so far."""
        return self._limiter.usage(instance)

    def size_bytes(self, value: Value) -> int:
        """How large a value is, wherever it is kept."""
        return self._store.size_bytes(value)

    async def close(self) -> None:
        """End every instance, and free the nodes."""
        processes = {*self._instances.values(), *self._processes, *self._leaving}
        self._instances.clear()
        for process in processes:
            process.end(now=True)
        for process in processes:
            await process.gone()
        self._limiter.close()

    def _begin(self, function: str) -> Begin:
        """What a new instance is told."""
        spill = self._store.spill
        return Begin(
            self._app, function, str(self._store.folder), None if spill is None else str(spill), self._max_items
        )

    # --- what processes tell -----------------------------------------------------------------------------------

    def _heard(self, process: "_Process", message: Ready | Failed | Done) -> None:
        if self._instances.get(process.instance) is not process:
            if isinstance(message, Done):  # it was stopped: nobody waits for this
                for result in message.results:
                    self._store.drop(result.value)
            return
        if isinstance(message, Done):
            for result in message.results:
                self._store.hold(result.value)
            self._reports.finished(message.batch, message.results, message.work_s)
        elif isinstance(message, Ready):
            self._failures.pop(process.function, None)
            process.is_ready = True
            process.started = (message.load_s, message.setup_s)
            self._reports.ready(process.instance)
        else:
            process.error = message.error

    def _exited(self, process: "_Process") -> None:
        """Add up what a process has used, while the kernel still knows."""
        self._processes.discard(process)
        self._leaving.add(process)
        used_s = self.usage(process.instance).cpu_s or 0.0
        self._spent_s[process.function] = self._spent_s.get(process.function, 0.0) + used_s

    def _ended(self, process: "_Process", error: str) -> None:
        self._leaving.discard(process)
        self._store.forget(process.pid)
        if self._instances.get(process.instance) is not process:
            return
        del self._instances[process.instance]
        if not process.is_ready:
            self._failures[process.function] = self._failures.get(process.function, 0) + 1
        self._log(f"instance {process.instance} of {process.function}: {error}{process.last_words()}")
        self._reports.lost(process.instance, error)


class _Process(asyncio.Protocol):
    """One instance: its process, its channel, and the tail of what it prints."""

    def __init__(
        self, backend: LocalBackend, instance: int, function: str, configuration: Configuration, node: str
    ) -> None:
        self._backend = backend
        self.instance = instance
        self.function = function
        self._configuration = configuration
        self._node = node
        self._loop = backend._loop
        self._frames = Frames()
        self._output = bytearray()
        self._popen: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._end: asyncio.Future[None] = self._loop.create_future()
        self.starting: asyncio.TimerHandle | None = None
        self.is_ready = False
        self.started = (0.0, 0.0)
        self.error: str | None = None
        self.pid = -1

    def spawn(self) -> None:
        """Start the process; whatever goes wrong is its end."""
        self.starting = None
        try:
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    popen = subprocess.Popen(
                        [sys.executable, "-m", "fairlead.engine.live.worker", str(theirs.fileno()), str(os.getpid())],
                        pass_fds=(theirs.fileno(),),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        env=public_environment(),
                    )
            except BaseException:
                ours.close()
                raise
        except OSError as error:
            self._loop.call_soon(self._finish, f"it could not be started: {error}")
            return
        self._popen, self.pid = popen, popen.pid
        self._backend._processes.add(self)  # from now on it is waited for, whatever comes
        self._handle = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._handle, self._exited)
        assert popen.stdout is not None
        os.set_blocking(popen.stdout.fileno(), False)
        self._loop.add_reader(popen.stdout.fileno(), self._hear)
        configuration = self._configuration
        self._backend._limiter.admit(self.instance, popen.pid, self._node, configuration.vcpus, configuration.memory_gb)
        self._unsent.insert(0, frame(self._backend._begin(self.function)))
        ours.setblocking(False)
        self._connecting = self._loop.create_task(self._connect(ours))

    async def _connect(self, connection: socket.socket) -> None:
        transport, _ = await self._loop.create_unix_connection(lambda: self, sock=connection)
        transport.writelines(self._unsent)
        self._unsent.clear()
        self._transport = transport

    def send(self, data: bytes) -> None:
        """Pass a frame on, in order. One that is dying does not get it: its end, which is about to be seen, says so."""
        if self._transport is None:
            self._unsent.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel has ended; the process mostly too. One that lives on without it is of no use."""
        self._loop.call_later(_GRACE_S, self._cut_off)

    def _cut_off(self) -> None:
        if self._popen is not None and self._popen.returncode is None:
            self.error = self.error or "it closed its channel"
            self._kill()

    def data_received(self, data: bytes) -> None:
        """Take in what the instance says; nonsense ends it."""
        try:
            messages = [report(body) for body in self._frames.feed(data)]
        except ValueError as error:
            self.error = f"it broke its channel: {error}"
            self._kill()
            return
        for message in messages:
            self._backend._heard(self, message)

    def end(self, now: bool) -> None:
        """Stop it: a busy one by force, an idle one by closing its channel, and by force a little later."""
        if self.starting is not None:
            self.starting.cancel()
            self._finish("it was stopped before it started")
        elif now or self._transport is None:
            self._kill()
        else:
            self._transport.close()
            self._loop.call_later(_GRACE_S, self._kill)

    async def gone(self) -> None:
        """Wait for its end."""
        await self._end

    def last_words(self) -> str:
        """The end of what it printed, for a message."""
        text = self._output.decode("utf-8", "replace").strip()
        return f"; its last output:\n{text}" if text else ""

    def _hear(self) -> None:
        assert self._popen is not None
        assert self._popen.stdout is not None
        try:
            data = os.read(self._popen.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if data:
            self._output += data
            del self._output[:-_MOST_OUTPUT]
        else:
            self._loop.remove_reader(self._popen.stdout.fileno())

    def _kill(self) -> None:
        """End it with all its own children, which share its session."""
        if self._popen is not None and self._popen.returncode is None:
            try:
                os.killpg(self._popen.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError:
                self._popen.kill()

    def _exited(self) -> None:
        """The process has ended; what it said before may still be on its way, and is heard first."""
        popen = self._popen
        assert popen is not None
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._backend._exited(self)
        code = popen.wait()
        self._kill_children(popen.pid)
        self._loop.call_later(_LAST_WORDS_S, self._bury, code)

    def _kill_children(self, group: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

    def _bury(self, code: int) -> None:
        assert self._popen is not None
        assert self._popen.stdout is not None
        self._hear()
        self._loop.remove_reader(self._popen.stdout.fileno())
        self._popen.stdout.close()
        usage = self._backend._limiter.usage(self.instance)
        self._backend._limiter.remove(self.instance)
        self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        error = self.error
        if error is None and usage.oom_kills:
            error = f"it was ended for using more memory than its limit of {self._configuration.memory_gb:g} GB"
        if error is None:
            error = f"it exited with code {code}" if code >= 0 else f"it was ended by {signal.Signals(-code).name}"
        self._finish(error)

    def _finish(self, error: str) -> None:
        if not self._end.done():
            self._end.set_result(None)
            self._backend._ended(self, error)
