"""The process of one device: `python -m fairlead.kaas.worker FD PARENT`.

Its main thread receives and loads; a second one runs. So the next request loads while the present one runs; at most one
is loaded ahead. It runs no Python of a user: a request brings a graph and bytes. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import NoReturn

from fairlead.errors import FairleadError
from fairlead.kaas.devices import Device, open_device
from fairlead.kaas.errors import DeviceLostError, KernelError
from fairlead.kaas.graph import Graph
from fairlead.kaas.memory import Key
from fairlead.kaas.parse import parse_graph
from fairlead.kaas.runner import Loaded, Runner
from fairlead.kaas.values import Values
from fairlead.kaas.wire import (
    NOTHING,
    Ask,
    Begin,
    Channel,
    Done,
    Drop,
    Evicted,
    Failed,
    Forget,
    Payload,
    Ready,
    Refused,
    Register,
    Reply,
    Run,
    Running,
)  # fmt: skip

_PR_SET_PDEATHSIG = 1
_LOADED = 2  # requests that have device memory: one that runs, and one that loads or is loaded


class Worker:
    """Serves a channel until its end."""

    def __init__(self, channel: Channel, device: Device, memory_bytes: int, values: Values) -> None:
        self._channel = channel
        self._runner = Runner(device, memory_bytes, values, self._evicted)
        self._sending = Lock()
        self._graphs: dict[str, Graph | str] = {}  # a text says what is wrong with that graph
        self._ahead = Semaphore(_LOADED)
        self._loaded: SimpleQueue[tuple[int, Loaded]] = SimpleQueue()

    def serve(self) -> None:
        """Receive and load, until the parent is gone."""
        Thread(target=self._run_all, daemon=True).start()
        while (received := self._channel.receive()) is not None:
            order, payload = received
            if isinstance(order, Run):
                self._load(order, payload)
            elif isinstance(order, Register):
                self._register(order, payload)
            elif isinstance(order, Drop):
                self._graphs.pop(order.digest, None)
            elif isinstance(order, Forget | Ask):
                if isinstance(order, Forget):
                    self._runner.forget(order.tenant)
                self._send(self._runner.report(order.id))

    def _register(self, order: Register, payload: Payload) -> None:
        try:
            self._graphs[order.digest] = parse_graph(payload.tobytes())
        except FairleadError as error:
            self._graphs[order.digest] = str(error)

    def _load(self, run: Run, payload: Payload) -> None:
        graph = self._graphs.get(run.graph, "the graph is not registered")
        if isinstance(graph, str):
            self._send(Refused(run.id, "request", graph))
            return
        if run.is_load:
            try:
                timings, counts = self._runner.load_ahead(run.tenant, graph, run.keys)
            except KernelError as error:
                self._refuse(run.id, error)
            else:
                self._send(Done(run.id, timings, counts))
            return
        self._ahead.acquire()
        try:
            loaded = self._runner.load(run.tenant, graph, run.keys, payload)
        except KernelError as error:
            self._ahead.release()
            self._refuse(run.id, error)
        else:
            self._loaded.put((run.id, loaded))

    def _run_all(self) -> None:
        while True:
            identity, loaded = self._loaded.get()
            try:
                timings, outputs = self._runner.run(loaded, lambda i=identity: self._send(Running(i)))  # type: ignore[misc]
            except KernelError as error:
                self._refuse(identity, error)
            except BaseException as error:  # a thread must not end alone: the parent would wait
                _give_up(error)
            else:
                self._send(Done(identity, timings, loaded.counts), outputs)
            self._ahead.release()

    def _refuse(self, identity: int, error: KernelError) -> None:
        if isinstance(error, DeviceLostError):  # what is left of it is of no use: a new process opens it anew
            _give_up(error)
        self._send(Refused(identity, error.kind, str(error)[:8000]))

    def _evicted(self, keys: tuple[Key, ...]) -> None:
        self._send(Evicted(tuple((key.tenant, key.key) for key in keys)))

    def _send(self, message: Reply, payload: Payload = NOTHING) -> None:
        with self._sending:
            self._channel.send(message, payload)


def _give_up(error: BaseException) -> NoReturn:
    print(f"kernels failed: {error!r}", file=sys.stderr, flush=True)  # noqa: T201 - to the parent's log
    os._exit(1)


def main(descriptor: int, parent: int) -> None:
    """Serve the parent of this process id until it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be watched
        sys.exit("the parent is gone")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; it is for the parent
    sys.setswitchinterval(0.0005)  # the two threads take turns soon
    with socket.socket(fileno=descriptor) as connection:
        channel = Channel(connection)
        received = channel.receive()
        if received is None or not isinstance(received[0], Begin):
            return
        begin = received[0]
        try:
            device = open_device(begin.device, Path(begin.cache))
        except (FairleadError, ValueError) as error:
            channel.send(Failed(str(error)))
            return
        info = device.memory()
        memory_bytes = min(begin.memory_bytes, info.total) if begin.memory_bytes else info.total
        channel.send(Ready(device.name, device.language, device.identity, memory_bytes))
        with suppress(ConnectionError):  # the parent is gone
            Worker(channel, device, memory_bytes, Values(Path(begin.values))).serve()
        os._exit(0)  # a kernel may be running


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
