"""The process of one device: `python -m fairlead.kaas.worker FD PARENT BOARD SLOT...`.

The next request loads while the present one runs; at most one is loaded ahead. It runs no Python of a user: a request
brings a graph and bytes. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock, Semaphore, Thread
from typing import NoReturn

from fairlead.errors import FairleadError
from fairlead.kaas.devices import Device, open_device
from fairlead.kaas.errors import DeviceLostError, KernelError
from fairlead.kaas.graph import Graph
from fairlead.kaas.memory import Key
from fairlead.kaas.parse import parse_graph
from fairlead.kaas.runner import Loaded, Runner
from fairlead.kaas.slots import Board, Slot
from fairlead.kaas.values import Values
from fairlead.kaas.wire import Ask, Begin, Channel, Done, Drop, Failed, Forget, Ready, Refused, Reply, Run, evictions

_PR_SET_PDEATHSIG = 1
_LOADED = 2  # requests that have device memory: one that runs, and one that loads or is loaded


class Worker:
    """Serves a channel until its end, on two threads with one code.

    One of them receives and loads. When nothing runs, it runs what it has loaded itself, without a hand-over that the
    request would wait for, and the other one receives. What is loaded during a run is left to the thread that runs.
    """

    def __init__(
        self, channel: Channel, device: Device, memory_bytes: int, values: Values, board: Board, slots: Sequence[Slot]
    ) -> None:
        self._channel = channel
        self._runner = Runner(device, memory_bytes, values, self._evicted)
        self._board = board
        self._slots = slots
        self._sending = Lock()
        self._receiving = Lock()
        self._state = Lock()  # guards the two below
        self._is_running = False
        self._loaded: deque[tuple[Run, Loaded]] = deque()
        self._ahead = Semaphore(_LOADED)
        self._graphs: dict[str, Graph | str] = {}  # a text says what is wrong with that graph

    def serve(self) -> NoReturn:
        """Receive, load and run, until the parent is gone: then the process ends, even if a kernel runs."""
        Thread(target=self._work, daemon=True).start()
        self._work()

    def _work(self) -> NoReturn:
        try:
            while True:
                with self._receiving:
                    following: tuple[Run, Loaded] | None = self._receive()
                while following is not None:
                    self._run(*following)
                    self._ahead.release()
                    with self._state:
                        following = self._loaded.popleft() if self._loaded else None
                        self._is_running = following is not None
        except ConnectionError:  # the parent is gone
            os._exit(0)
        except BaseException as error:  # a thread must not end alone: the parent would wait
            _give_up(error)

    def _receive(self) -> tuple[Run, Loaded]:
        """Receive and load until there is something that the caller is to run."""
        while (order := self._channel.receive()) is not None:
            if isinstance(order, Run):
                loaded = self._load(order)
                if loaded is None:
                    continue
                with self._state:
                    if not self._is_running:
                        self._is_running = True
                        return order, loaded
                    self._loaded.append((order, loaded))
            elif isinstance(order, Drop):
                self._graphs.pop(order.digest, None)
            elif isinstance(order, Forget | Ask):
                if isinstance(order, Forget):
                    self._runner.forget(order.tenant)
                self._send(self._runner.report(order.id))
        os._exit(0)

    def _register(self, digest: str, text: bytes) -> None:
        try:
            self._graphs[digest] = parse_graph(text)
        except FairleadError as error:
            self._graphs[digest] = str(error)

    def _load(self, run: Run) -> Loaded | None:
        """What is ready to run. None for what is answered already."""
        data = self._slots[run.slot].view(run.described + run.sent)
        if run.described:
            self._register(run.graph, data[: run.described].tobytes())
        graph = self._graphs.get(run.graph, "the graph is not registered")
        if isinstance(graph, str):
            self._send(Refused(run.id, "request", graph))
            return None
        try:
            if run.is_load:
                self._send(Done(run.id, *self._runner.load_ahead(run.tenant, graph, run.keys)))
                return None
            self._ahead.acquire()
            try:
                return self._runner.load(run.tenant, graph, run.keys, data[run.described :])
            except BaseException:
                self._ahead.release()
                raise
        except KernelError as error:
            self._refuse(run.id, error)
            return None

    def _run(self, run: Run, loaded: Loaded) -> None:
        outputs = self._slots[run.slot].view(loaded.graph.returned_bytes)
        try:
            done = self._runner.run(loaded, outputs, partial(self._board.begin, run.id))
        except KernelError as error:
            self._refuse(run.id, error)
        else:
            self._send(Done(run.id, *done))

    def _refuse(self, identity: int, error: KernelError) -> None:
        if isinstance(error, DeviceLostError):  # what is left of it is of no use: a new process opens it anew
            _give_up(error)
        self._send(Refused(identity, error.kind, str(error)[:8000]))

    def _evicted(self, keys: tuple[Key, ...]) -> None:
        for message in evictions([(key.tenant, key.key) for key in keys]):
            self._send(message)

    def _send(self, message: Reply) -> None:
        with self._sending:
            self._channel.send(message)


def _give_up(error: BaseException) -> NoReturn:
    print(f"kernels failed: {error!r}", file=sys.stderr, flush=True)  # noqa: T201 - to the parent's log
    os._exit(1)


def main(descriptor: int, parent: int, *shared: int) -> None:
    """Serve the parent of this process id until it is gone. `shared` are the files of its board and slots."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(OSError):  # what its parent sends wakes it: it must not take the parent's core in mid-turn
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if os.getppid() != parent:  # it ended before it could be watched
        sys.exit("the parent is gone")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; it is for the parent
    sys.setswitchinterval(0.0005)  # the two threads take turns soon
    with socket.socket(fileno=descriptor) as connection:
        channel = Channel(connection)
        begin = channel.receive()
        if not isinstance(begin, Begin):
            return
        try:
            device = open_device(begin.device, Path(begin.cache))
        except (FairleadError, ValueError) as error:
            channel.send(Failed(str(error)))
            return
        info = device.memory()
        memory_bytes = min(begin.memory_bytes, info.total) if begin.memory_bytes else info.total
        channel.send(Ready(device.name, device.language, device.identity, memory_bytes))
        board, *slots = shared
        values = Values(Path(begin.values))
        Worker(channel, device, memory_bytes, values, Board(board), [Slot(slot) for slot in slots]).serve()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
