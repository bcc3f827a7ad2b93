"""An instance of a kernel: its constants on a device, and the batches that run there.

It is no process. It speaks as the instance of a function does: first `Ready` or `Failed`, then a `Done` for each batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter

import numpy as np

from fairlead.engine.live.contracts import InstanceSpec
from fairlead.engine.live.kernels.code import KernelCode
from fairlead.engine.live.kernels.device import LiveDevice
from fairlead.engine.live.store import Store, is_cheap
from fairlead.engine.live.values import LOST_INPUT, LostValueError, Result, Value, encode
from fairlead.engine.live.wire import Batch, Done, Failed, Ready
from fairlead.errors import FairleadError
from fairlead.kaas.errors import KernelError
from fairlead.kaas.graph import Graph
from fairlead.kaas.request import Answer, Request
from fairlead.kaas.tensors import inputs_of_value, value_of_outputs

Say = Callable[[Ready | Failed | Done], None]

_SMALL_BYTES = 1 << 18  # of inputs or outputs: more is read and written on a thread
_MOST_ERROR = 4000


class KernelInstance:
    """A kernel on a device.

    Args:
        spec: The instance.
        device: Where it runs.
        store: Where large values lie.
        say: Gets what it says.
        evicted: Told the names of its buffers that are not on the device any more.
        ended: Told once when nothing of it is left, with the reason.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        device: LiveDevice,
        store: Store,
        say: Say,
        evicted: Callable[[tuple[str, ...]], None],
        ended: Callable[[KernelInstance, str], None],
    ) -> None:
        self.spec = spec
        self._device = device
        self._store = store
        self._say = say
        self._evicted = evicted
        self._ended = ended
        self._code: KernelCode | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._leaves: str | None = None  # why it is stopped as soon as nothing of it runs

    def start(self, code: asyncio.Future[KernelCode]) -> None:
        """Load it, once its code is there."""
        self._begin(self._load(code))

    def run(self, batch: Batch) -> None:
        """Run a batch; those before it need not have ended."""
        self._begin(self._run(batch))

    def stop(self, grace_s: float, reason: str = "it was stopped") -> None:
        """End it, after what it runs if that ends within its grace. On the device that may go on for a while."""
        if self._is_over:
            return
        if self._tasks and grace_s > 0:
            self._leaves = reason
            asyncio.get_running_loop().call_later(grace_s, self.stop, 0.0, reason)
            return
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        if self._code is not None:
            self._device.leave(self._code.app, self._left)
        asyncio.get_running_loop().call_soon(self._ended, self, reason)

    def _begin(self, what: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if (
            not task.cancelled() and (error := task.exception()) is not None
        ):  # a fault of ours: the client gets no answer
            self.stop(0.0, f"its runner failed: {error!r}")
        elif self._leaves is not None and not self._tasks:
            self.stop(0.0, self._leaves)

    async def _load(self, reading: asyncio.Future[KernelCode]) -> None:
        began = perf_counter()
        try:
            code = await asyncio.shield(reading)
            answer = await self._device.load(Request(tenant=code.app, graph=code.graph))
        except FairleadError as error:
            self._say(Failed(str(error)[:_MOST_ERROR]))
            self.stop(0.0, str(error)[:_MOST_ERROR])
            return
        self._code = code
        self._device.join(code.app, self._left)
        setup_s = answer.timings.load_s
        self._say(Ready(max(0.0, perf_counter() - began - setup_s), setup_s))

    async def _run(self, batch: Batch) -> None:
        assert self._code is not None, "a batch comes after Ready"
        results, work_s, transfer_s = [], 0.0, 0.0
        for stage, value in zip(batch.stages, batch.inputs, strict=True):
            result, worked_s, moved_s = await self._one(self._code, stage, value)
            results.append(result)
            work_s += worked_s
            transfer_s += moved_s
        self._say(Done(batch.batch, work_s, tuple(results), batch.generation, transfer_s))

    async def _one(self, code: KernelCode, stage: str, value: Value) -> tuple[Result, float, float]:
        """One invocation: its result, the time of its kernels, and that of moving its data."""
        began = perf_counter()
        try:
            if is_cheap(value) and _size(value) <= _SMALL_BYTES:
                inputs = inputs_of_value(code.graph, self._store.read(value))
            else:
                inputs = await asyncio.to_thread(lambda: inputs_of_value(code.graph, self._store.read(value)))
            request = Request(tenant=code.app, graph=code.graph, inputs=inputs, limit_s=code.run_limit_s)
            read_s = perf_counter() - began
            answer = await self._device.run(request)
            answered = perf_counter()
            is_split = stage in code.splits
            if len(answer.payload) <= _SMALL_BYTES:
                result = _result(code.graph, answer, self._store, self.spec.max_items, is_split)
            else:
                store, most = self._store, self.spec.max_items
                result = await asyncio.to_thread(_result, code.graph, answer, store, most, is_split)
        except LostValueError as error:
            return Result(False, error=f"{LOST_INPUT}{error}"), 0.0, 0.0
        except KernelError as error:
            return Result(False, error=f"{type(error).__name__}: {error}"[:_MOST_ERROR]), perf_counter() - began, 0.0
        timings = answer.timings
        moved_s = read_s + timings.load_s + timings.download_s + (perf_counter() - answered)
        return result, timings.compile_s + timings.run_s, moved_s

    def _left(self, keys: Sequence[str] | None) -> None:
        """Something of its app is not on the device any more."""
        assert self._code is not None
        buffers = self._code.buffers
        gone = dict.fromkeys(name for key in (buffers if keys is None else keys) for name in buffers.get(key, ()))
        if gone:
            self._evicted(tuple(gone))


def _result(graph: Graph, answer: Answer, store: Store, max_items: int, is_split: bool) -> Result:
    """What the outputs mean to the stages after it. A stage that maps over them gets the parts of the first axis."""
    outputs = {buffer.name: answer.array(buffer.name) for buffer in graph.buffers if buffer.is_returned}
    value = value_of_outputs(graph, outputs)
    if not is_split:
        return Result(True, store.put(encode(value)))
    if not isinstance(value, np.ndarray) or value.ndim == 0:
        return Result(False, error="the next stage maps over its output, which must be one array with a first axis.")
    if len(value) > max_items:
        return Result(False, error=f"the next stage maps over {len(value)} items; at most {max_items} are allowed.")
    parts: Sequence[Value] = [store.put(encode(np.ascontiguousarray(part))) for part in value]
    return Result(True, parts, None, len(parts))


def _size(value: Value) -> int:
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, str):
        size = value.partition(":")[2].partition("@")[0]
        return int(size) if size.isdigit() else 0
    return sum(map(_size, value))
