"""An agent's part in bringing values to other nodes: it uploads what its node has, and downloads what it needs."""

import asyncio
from collections.abc import Callable, Coroutine

from fairlead.engine.live.links import control
from fairlead.engine.live.objects import Objects, Place, StoreError
from fairlead.engine.live.store import Store
from fairlead.errors import FairleadError

_AT_A_TIME = 8  # transfers; others wait, so that few values are in memory


class Passing:
    """Copies values between the node's own store and an object store.

    Args:
        store: The node's own.
        say: Tells the gateway that is connected now.
    """

    def __init__(self, store: Store, say: Callable[[control.FromAgent], None]) -> None:
        self._store = store
        self._say = say
        self._objects: Objects | str = "the gateway uses no object store"
        self._epoch = 0
        self._connection = 0
        self._slots = asyncio.Semaphore(_AT_A_TIME)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, place: Place | None, epoch: int) -> None:
        """A gateway is connected, which uses this object store."""
        self._connection += 1
        self._epoch = epoch
        if place is not None:
            try:
                self._objects = Objects(place)
            except FairleadError as error:
                self._objects = str(error)

    def share(self, order: control.Share) -> None:
        """Upload a value."""
        self._start(self._share(order, self._connection))

    def bring(self, order: control.Bring) -> None:
        """Download a value."""
        self._start(self._bring(order, self._connection))

    async def close(self) -> None:
        """Leave off."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _share(self, order: control.Share, connection: int) -> None:
        error = ""
        try:
            async with self._slots:
                await self._open().put(self._name(order.number), self._store.file(order.name))
        except FileNotFoundError:
            error = "it does not exist any more"
        except (StoreError, ValueError) as failure:
            error = str(failure)
        if connection == self._connection:
            self._say(control.Shared(order.ticket, error))

    async def _bring(self, order: control.Bring, connection: int) -> None:
        error, value = "", None
        try:
            async with self._slots:
                data = await self._open().get(self._name(order.number), order.size)
                value = await asyncio.to_thread(self._store.put, data)
                if not isinstance(value, str):
                    error = "there is no room for it on the node that needs it"
        except StoreError as failure:
            error = str(failure)
        if connection == self._connection:
            self._say(control.Brought(order.ticket, value if isinstance(value, str) else "", error))
        elif value is not None:
            self._store.drop(value)  # whoever asked is gone

    def _open(self) -> Objects:
        if isinstance(self._objects, str):
            raise StoreError(self._objects)
        return self._objects

    def _name(self, number: int) -> str:
        return f"{self._epoch}/{number}"

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
