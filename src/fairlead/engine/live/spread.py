"""Values of several nodes: each is kept where it was made, and read from there or brought through an object store."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from fairlead.engine.live.links.address import parse_address
from fairlead.engine.live.links.reading import Reader
from fairlead.engine.live.store import Store, names
from fairlead.engine.live.values import LostValueError, Reference, Value, reference

GATEWAY_HOME = "@@"
"""The end of references to values that the gateway keeps: instances read them where they dialled."""


class Passing(Protocol):
    """Brings values to where they are needed."""

    async def fetch(self, text: str, /) -> bytes:
        """The bytes of a value, in bounded time. Raises LostValueError."""
        ...

    def release(self, text: str, /) -> None:
        """Forget a value, wherever it was brought to."""
        ...


class SpreadValues:
    """The values of a gateway whose instances run on several nodes.

    Args:
        store: Keeps what comes from outside; its home must be `GATEWAY_HOME`.
        reader: Reads what other nodes keep.
        release: Has a node delete the value of this name.
        is_node: Whether values of a home may be read: a reference is a text that came from an instance.
        passing: Brings values through an object store; None where they are read from their nodes.
    """

    def __init__(
        self,
        store: Store,
        reader: Reader,
        release: Callable[[str, str], None],
        is_node: Callable[[str], bool],
        passing: Passing | None = None,
    ) -> None:
        store.elsewhere = self._fetch
        self._store = store
        self._reader = reader
        self._release = release
        self._is_node = is_node
        self._passing = passing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held: dict[str, set[str]] = {}  # by node: names of values that requests may need
        self.read = store.read
        self.encoded = store.encoded
        self.size_bytes = store.size_bytes
        self.copy = store.copy

    def put(self, data: bytes) -> Value:
        """Keep a large value here; instances read it from the gateway."""
        value = self._store.put(data)
        self._store.hold(value)
        return value

    def hold(self, value: Value) -> None:
        """Note that a request may need a value that an instance made."""
        if not isinstance(value, bytes):
            for text in names(value):
                found = reference(text)
                if found.home == self._store.home:
                    self._store.hold(text)
                else:
                    self._held.setdefault(found.node, set()).add(found.name)

    def release(self, value: Value) -> None:
        """Have a value deleted wherever it is."""
        if not isinstance(value, bytes):
            for text in names(value):
                found = reference(text)
                if found.home == self._store.home:
                    self._store.delete(found.name)
                else:
                    self._held.get(found.node, set()).discard(found.name)
                    if self._passing is not None:
                        self._passing.release(text)
                    self._release(found.node, found.name)

    def held(self, node: str, pid: int) -> tuple[str, ...]:
        """The names of held values that a process of a node made."""
        starts = (f"{pid}-", f"disk-{pid}-")
        return tuple(name for name in self._held.get(node, ()) if name.startswith(starts))

    def forget(self, node: str) -> None:
        """A node has lost its values."""
        self._held.pop(node, None)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say on which loop values are brought."""
        self._loop = loop

    def _fetch(self, wanted: Reference) -> bytes | bytearray:
        if self._passing is not None and self._loop is not None:
            fetching = self._passing.fetch(f"{wanted.name}:{wanted.size}{wanted.home}")
            return asyncio.run_coroutine_threadsafe(fetching, self._loop).result()
        if not self._is_node(wanted.home):
            raise LostValueError(f"a value on node {wanted.node} is lost: the node is not connected", wanted.node)
        return self._reader.fetch(parse_address(wanted.address), wanted.name, wanted.size, wanted.node)
