"""Values between nodes through an object store: a node that has one uploads it, a node that needs it downloads it.

The gateway asks both, and hands a batch to an instance when all its inputs are on the instance's node. So instances
read files of their own node only, and know neither the store nor its credentials. A value goes up once, and comes down
once per node. A step that fails is the batch's failure, with its reason; the next attempt tries the step again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TypeVar

from fairlead.engine.live.links import control
from fairlead.engine.live.links.stream import StreamLink
from fairlead.engine.live.objects import Objects, StoreError
from fairlead.engine.live.store import names
from fairlead.engine.live.values import LOST_INPUT, LostValueError, Result, Value, reference
from fairlead.engine.live.wire import Batch, Done, frame

T = TypeVar("T")
Log = Callable[[str], None]

_STEP_S = 30.0  # of one upload or download, and a second more for every 5 MB
_BYTES_PER_S = 5e6
_SWEEP_S = 0.1  # objects that are released within it are deleted by one call
_MOST_GARBAGE = 100_000
_PAUSES_S = (1.0, 30.0)  # first and longest, between attempts to delete
_CLOSE_S = 5.0


class Carrier:
    """Brings values to the nodes that need them, through an object store. Used on the thread of the event loop.

    Args:
        objects: The store.
        tell: Sends a message to the agent of a node; False if it is not connected.
        release: Has a node delete the value of this name.
        log: Gets a line when the store cannot be cleaned.
    """

    def __init__(
        self,
        objects: Objects,
        tell: Callable[[str, control.ToAgent], bool],
        release: Callable[[str, str], None],
        log: Log,
    ) -> None:
        self.objects = objects
        self._tell = tell
        self._release = release
        self._log = log
        self._epoch = 0
        self._numbers = 0
        self._passages: dict[str, _Passage] = {}  # by reference
        self._asked: dict[int, tuple[str, asyncio.Future[str]]] = {}  # by ticket: the node that is to answer
        self._tasks: set[asyncio.Task[object]] = set()
        self._garbage: list[str] = []
        self._sweeping: asyncio.Task[object] | None = None

    def open(self, epoch: int) -> None:
        """Begin; what former gateways left is deleted meanwhile."""
        self._epoch = epoch
        self._task(self._clean())

    async def close(self) -> None:
        """Delete everything, as far as the store can be reached soon."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.objects.clear()
        except (StoreError, TimeoutError) as error:
            self._log(f"values are left in {self.objects.place.url} for the next gateway to delete: {error}")

    # --- what is asked for -----------------------------------------------------------------------------------------

    async def brought(self, text: str, node: str) -> str:
        """A reference to a copy of a value on this node. Raises LostValueError."""
        passage = self._passage(text)
        copying = passage.copies.get(node)
        if copying is None:
            copying = passage.copies[node] = self._task(self._bring(text, passage, node))
        return await self._outcome(copying)

    async def fetch(self, text: str) -> bytes:
        """The bytes of a value, for the gateway itself. Raises LostValueError."""
        passage = self._passage(text)
        await self._outcome(self._uploading(text, passage))
        try:
            return await self.objects.get(self._name(passage.number), reference(text).size)
        except StoreError as error:
            raise LostValueError(f"{_what(text)} is lost: {error}", reference(text).node) from None

    def release(self, text: str) -> None:
        """A value is not needed any more: delete its object and its copies, also those that are being made."""
        passage = self._passages.pop(text, None)
        if passage is None:
            return
        if passage.upload is None:  # it failed, or was too slow: the object may be there all the same
            self._discard(passage.number)
        else:
            passage.upload.add_done_callback(lambda done: self._discard(passage.number))
        for node, copying in passage.copies.items():
            copying.add_done_callback(lambda done, node=node: self._drop(node, done))  # type: ignore[misc]

    def answered(self, node: str, message: control.Shared | control.Brought, home: str) -> None:
        """An agent has done a step, or could not. ValueError if it refers to what is not its own."""
        value = message.value if isinstance(message, control.Brought) else ""
        if value and reference(value).home != home:
            raise ValueError("it refers to a value of another node")
        asked, waiting = self._asked.get(message.ticket, (None, None))
        if asked != node or waiting is None or waiting.done():
            if value:
                self._release(node, reference(value).name)
        elif message.error:
            waiting.set_exception(LostValueError(self.objects.place.without_secrets(message.error)))
        else:
            waiting.set_result(value)

    def lost(self, node: str) -> None:
        """A node is gone: what it was asked for will not come, and its copies are of no use."""
        for asked, waiting in list(self._asked.values()):
            if asked == node and not waiting.done():
                waiting.set_exception(LostValueError(f"node {node} was lost"))
        for passage in self._passages.values():
            copying = passage.copies.pop(node, None)
            if copying is not None:
                copying.add_done_callback(lambda done: self._drop(node, done))

    # --- steps -----------------------------------------------------------------------------------------------------

    def _passage(self, text: str) -> "_Passage":
        passage = self._passages.get(text)
        if passage is None:
            self._numbers += 1
            passage = self._passages[text] = _Passage(self._numbers)
        return passage

    def _uploading(self, text: str, passage: "_Passage") -> asyncio.Task[str]:
        if passage.upload is None:
            passage.upload = self._task(self._share(text, passage))
        return passage.upload

    async def _share(self, text: str, passage: "_Passage") -> str:
        found = reference(text)
        try:
            return await self._step(text, found.node, lambda t: control.Share(t, passage.number, found.name))
        except LostValueError:
            passage.upload = None  # the next who needs it tries again
            raise

    async def _bring(self, text: str, passage: "_Passage", node: str) -> str:
        size = reference(text).size
        try:
            await self._outcome(self._uploading(text, passage))
            return await self._step(text, node, lambda t: control.Bring(t, passage.number, size))
        except LostValueError:
            passage.copies.pop(node, None)
            raise

    async def _step(self, text: str, node: str, order: Callable[[int], control.ToAgent]) -> str:
        """Have the agent of a node do something, and wait for its answer."""
        self._numbers += 1
        ticket = self._numbers
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[ticket] = node, waiting
        limit_s = _STEP_S + reference(text).size / _BYTES_PER_S
        try:
            if not self._tell(node, order(ticket)):
                raise LostValueError(f"node {node} is not connected")
            async with asyncio.timeout(limit_s):
                return await waiting
        except LostValueError as error:
            raise LostValueError(f"{_what(text)} is lost: {error}", reference(text).node) from None
        except TimeoutError:
            why = f"node {node} took more than {limit_s:.0f} s"
            raise LostValueError(f"{_what(text)} is lost: {why}", reference(text).node) from None
        finally:
            del self._asked[ticket]

    async def _outcome(self, task: asyncio.Task[T]) -> T:
        """What a shared step gives; whoever waits may leave off without ending it for others."""
        return await asyncio.shield(task)

    def _task(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is looked at
        return task

    # --- deletion --------------------------------------------------------------------------------------------------

    def _name(self, number: int) -> str:
        return f"{self._epoch}/{number}"

    def _drop(self, node: str, done: asyncio.Task[str]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._release(node, reference(done.result()).name)

    def _discard(self, number: int) -> None:
        """Delete an object soon."""
        if len(self._garbage) < _MOST_GARBAGE:
            self._garbage.append(self._name(number))
        if self._sweeping is None or self._sweeping.done():
            with suppress(RuntimeError):  # the loop has ended: the next gateway deletes it
                self._sweeping = self._task(self._sweep())

    async def _sweep(self) -> None:
        pause_s, longest_s = _PAUSES_S
        while self._garbage:
            await asyncio.sleep(_SWEEP_S)
            names, self._garbage = self._garbage, []
            try:
                await self.objects.delete(names)
                pause_s = _PAUSES_S[0]
            except StoreError as error:
                self._garbage = (names + self._garbage)[:_MOST_GARBAGE]
                self._log(f"{len(self._garbage)} values cannot be deleted now: {error}; trying again in {pause_s:g} s")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)

    async def _clean(self) -> None:
        """Delete what former gateways left; every gateway of this state folder has a higher epoch than the last."""
        try:
            count = await self.objects.clear(keep=f"{self._epoch}/")
            if count:
                self._log(f"deleted {count} values that a former gateway left in {self.objects.place.url}")
        except StoreError as error:
            self._log(f"values of a former gateway may be left: {error}")


class _Passage:
    """A value on its way: its object, and its copies by node."""

    __slots__ = ("copies", "number", "upload")

    def __init__(self, number: int) -> None:
        self.number = number
        self.upload: asyncio.Task[str] | None = None
        self.copies: dict[str, asyncio.Task[str]] = {}


class CarriedLink(StreamLink):
    """The way to an instance to whose node values of other nodes are brought first.

    Args:
        carrier: Brings them.
        node: Of the instance.
        send, generation, late, home: See `StreamLink`.
    """

    def __init__(
        self,
        carrier: Carrier,
        node: str,
        send: Callable[[bytes], None],
        generation: int,
        late: Callable[[Done], None],
        home: str,
    ) -> None:
        super().__init__(send, generation, late, home)
        self._carrier = carrier
        self._node = node
        self._carrying: set[asyncio.Task[None]] = set()

    def run(self, batch: Batch) -> None:
        """Send a batch once its inputs are on the instance's node. ValueError if it is too large."""
        wanted = {
            text
            for value in batch.inputs
            if not isinstance(value, bytes)
            for text in names(value)
            if reference(text).node not in ("", self._node)
        }
        if not wanted:
            super().run(batch)
            return
        frame(batch)  # one that is too large is refused now
        task = asyncio.get_running_loop().create_task(self._carry(batch, sorted(wanted)))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    def fence(self, generation: int) -> None:
        """Give up the batches under way, also those that wait for their inputs."""
        super().fence(generation)
        for task in self._carrying:
            task.cancel()

    async def _carry(self, batch: Batch, wanted: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            copies = await asyncio.gather(*(self._carrier.brought(text, self._node) for text in wanted))
            known = dict(zip(wanted, copies, strict=True))
            inputs = [_at_home(value, known) for value in batch.inputs]
            self.carried(batch.batch, loop.time() - began)
            super().run(Batch(batch.batch, batch.stages, inputs, batch.generation, batch.about))
        except (LostValueError, ValueError) as error:
            lost_at = error.node if isinstance(error, LostValueError) else ""
            failed = Result(False, error=f"{LOST_INPUT}{error}", lost_at=lost_at)
            self.tell(Done(batch.batch, 0.0, (failed,) * len(batch.inputs)))


def _at_home(value: Value, known: dict[str, str]) -> Value:
    """A value with references to copies in the place of those that were brought."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return known.get(value, value)
    return [_at_home(part, known) for part in value]


def _what(text: str) -> str:
    found = reference(text)
    return f"a value of {found.size / 2**20:.2f} MiB on node {found.node}"
