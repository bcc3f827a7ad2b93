"""An instance of a kernel: its constants on a device, and the batches that run there.

It is no process. It speaks as the instance of a function does: first `Ready` or `Failed`, then a `Done` for each batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
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
from fairlead.kaas.tensors import Array, inputs_of_value, value_of_outputs

Say = Callable[[Ready | Failed | Done], None]

_SMALL_BYTES = 1 << 18  # of inputs or outputs: more is read and written on a thread
_MOST_ERROR = 4000


@dataclass(eq=False)
class _Running:
    """A batch that is under way: the results that are there, and how the others are called off."""

    batch: Batch
    began: float
    results: list[Result | None]
    calls: dict[int, Callable[[], None]] = field(default_factory=dict)
    work_s: float = 0.0
    transfer_s: float = 0.0

    def __post_init__(self) -> None:
        self.left = set(range(len(self.results)))


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
        self._running: set[_Running] = set()
        self._is_over = False
        self._leaves: str | None = None  # why it is stopped as soon as nothing of it runs

    def start(self, code: asyncio.Future[KernelCode]) -> None:
        """Load it, once its code is there."""
        self._begin(self._load(code))

    def run(self, batch: Batch) -> None:
        """Run a batch; those before it need not have ended. All its invocations are given to the device at once."""
        running = _Running(batch, perf_counter(), [None] * len(batch.stages))
        self._running.add(running)
        for index, (stage, value) in enumerate(zip(batch.stages, batch.inputs, strict=True)):
            is_small = is_cheap(value) and _size(value) <= _SMALL_BYTES
            self._safely(self._read, running, index, stage, value, is_small=is_small)

    def stop(self, grace_s: float, reason: str = "it was stopped") -> None:
        """End it, after what it runs if that ends within its grace. On the device that may go on for a while."""
        if self._is_over:
            return
        if (self._tasks or self._running) and grace_s > 0:
            self._leaves = reason
            asyncio.get_running_loop().call_later(grace_s, self.stop, 0.0, reason)
            return
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        for running in self._running:
            for call_off in running.calls.values():
                call_off()
        if self._code is not None:
            self._device.leave(self._code.app, self._left)
        asyncio.get_running_loop().call_soon(self._ended, self, reason)

    def _safely(self, what: Callable[..., object], *arguments: object, **more: object) -> None:
        """Call a part of its runner: on a fault of ours the client gets no answer, so the instance ends."""
        try:
            what(*arguments, **more)
        except Exception as error:
            self.stop(0.0, f"its runner failed: {error!r}")

    def _begin(self, what: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.stop(0.0, f"its runner failed: {error!r}")
        else:
            self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if self._leaves is not None and not self._tasks and not self._running:
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

    def _read(self, running: _Running, index: int, stage: str, value: Value, *, is_small: bool) -> None:
        """Read the inputs of an invocation, and run it."""
        code = self._code
        assert code is not None, "a batch comes after Ready"

        def read() -> dict[str, Array] | FairleadError:
            try:
                return inputs_of_value(code.graph, self._store.read(value))
            except (LostValueError, KernelError) as error:
                return error

        async def read_slowly() -> None:
            self._submit(running, index, stage, await asyncio.to_thread(read), perf_counter() - began)

        began = perf_counter()
        if is_small:
            self._submit(running, index, stage, read(), perf_counter() - began)
        else:
            self._begin(read_slowly())

    def _submit(
        self, running: _Running, index: int, stage: str, inputs: dict[str, Array] | FairleadError, read_s: float
    ) -> None:
        code = self._code
        assert code is not None, "a batch comes after Ready"

        def answered(outcome: Answer | FairleadError) -> None:
            self._safely(self._answered, running, index, stage, outcome, read_s)

        async def run_later(request: Request) -> None:  # the executor is being started
            try:
                outcome: Answer | KernelError = await self._device.run(request)
            except KernelError as error:
                outcome = error
            self._answered(running, index, stage, outcome, read_s)

        try:
            if isinstance(inputs, FairleadError):
                raise inputs
            request = Request(tenant=code.app, graph=code.graph, inputs=inputs, limit_s=code.run_limit_s)
            call_off = self._device.submit(request, answered)
        except (LostValueError, KernelError) as error:  # whoever sent the batch is not told before it returns
            asyncio.get_running_loop().call_soon(answered, error)
            return
        if call_off is None:
            self._begin(run_later(request))
        elif index in running.left:
            running.calls[index] = call_off

    def _answered(
        self, running: _Running, index: int, stage: str, outcome: Answer | FairleadError, read_s: float
    ) -> None:
        """Turn what the device says of an invocation into its result."""
        code = self._code
        if self._is_over or code is None:
            return
        if isinstance(outcome, LostValueError):
            self._finish(running, index, Result(False, error=f"{LOST_INPUT}{outcome}"), 0.0, 0.0)
            return
        if isinstance(outcome, FairleadError):
            result = Result(False, error=f"{type(outcome).__name__}: {outcome}"[:_MOST_ERROR])
            self._finish(running, index, result, perf_counter() - running.began, 0.0)
            return
        answered_at, timings = perf_counter(), outcome.timings
        arguments = (code.graph, outcome, self._store, self.spec.max_items, stage in code.splits)

        def finish(result: Result) -> None:
            moved_s = read_s + timings.load_s + timings.download_s + perf_counter() - answered_at
            self._finish(running, index, result, timings.compile_s + timings.run_s, moved_s)

        async def write_slowly() -> None:
            finish(await asyncio.to_thread(_result, *arguments))

        if len(outcome.payload) <= _SMALL_BYTES:
            finish(_result(*arguments))
        else:
            self._begin(write_slowly())

    def _finish(self, running: _Running, index: int, result: Result, work_s: float, transfer_s: float) -> None:
        """Note the result of an invocation, and pass on those of its batch when it was the last."""
        running.results[index] = result
        running.left.discard(index)
        running.calls.pop(index, None)
        running.work_s += work_s
        running.transfer_s += transfer_s
        if not running.left and not self._is_over:
            self._running.discard(running)
            batch, results = running.batch, tuple(each for each in running.results if each is not None)
            self._say(Done(batch.batch, running.work_s, results, batch.generation, running.transfer_s))
            self._leave_if_idle()

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
